"""Which cluster a person means who types a command: kubectl's own rules for kubeconfig files (1.36).

`--kubeconfig FILE` alone where given; else the files of `$KUBECONFIG`, without those that are empty or not
there; else `~/.kube/config`. The first file that names a current context decides on it, and the first that
describes a cluster, user or context on that.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from kubeapi.errors import ApiError

_DEFAULT = "~/.kube/config"
# A safe one too, and ten times faster, where it is built.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def files_of(kubeconfig: Path | None, *, environ: Mapping[str, str], home: Path) -> list[Path]:
    """The files to read, in order; none where the person has no kubeconfig at all.

    A file that was asked for by flag is returned whether it exists or not: its absence is an error then.
    """
    if kubeconfig is not None:
        return [kubeconfig]
    named = environ.get("KUBECONFIG")
    files = [Path(part) for part in named.split(os.pathsep) if part] if named else [home / ".kube" / "config"]
    return [file for file in files if file.exists() and (file.is_dir() or file.stat().st_size)]


def nowhere(*, environ: Mapping[str, str], context: str | None) -> str:
    """What to tell a person for whom there are no `files_of`."""
    sought = f" for context {context!r}" if context else ""
    named = environ.get("KUBECONFIG")
    looked = f"what $KUBECONFIG names ({named})" if named else f"$KUBECONFIG is not set, and {_DEFAULT}"
    return f"no kubeconfig{sought}: {looked} is missing or empty; give --kubeconfig FILE"


def current_context(files: Sequence[Path]) -> str | None:
    """The context that kubectl would use; raises `ApiError` for a file that is no kubeconfig.

    The official Python loader takes the last one named; kubectl the first.
    """
    found = (read_kubeconfig(file).get("current-context") for file in files)
    return next((str(context) for context in found if context), None)


def read_kubeconfig(file: Path) -> dict[str, Any]:
    """What the file says; raises `ApiError` for one that cannot be a kubeconfig, and says why."""
    try:
        read = yaml.load(file.read_bytes(), Loader=_LOADER)
    except FileNotFoundError as error:
        raise _unusable(file, "no such file") from error
    except OSError as error:
        raise _unusable(file, error.strerror or str(error)) from error
    except (UnicodeError, yaml.YAMLError) as error:
        raise _unusable(file, str(error)) from error
    if read is None:
        raise _unusable(file, "it is empty")
    if not isinstance(read, dict):
        raise _unusable(file, "it holds no mapping")
    return read


def _unusable(file: Path, why: str) -> ApiError:
    return ApiError(f"kubeconfig {file} is not usable: {why}")
