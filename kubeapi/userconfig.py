"""Which cluster a person means who types a command: kubectl's own rules for kubeconfig files (1.36).

`--kubeconfig FILE` alone where given; else the files of `$KUBECONFIG`, without those that are empty or not
there; else `~/.kube/config`. The first file that names a current context decides on it, and the first that
describes a cluster, user or context on that.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from kubeapi.errors import ApiError


def files_of(kubeconfig: Path | None, *, environ: Mapping[str, str], home: Path) -> list[Path]:
    """The files to read, in order; none where the person has no kubeconfig at all.

    A file that was asked for by flag is returned whether it exists or not: its absence is an error then.
    """
    if kubeconfig is not None:
        return [kubeconfig]
    named = environ.get("KUBECONFIG")
    files = [Path(part) for part in named.split(os.pathsep) if part] if named else [home / ".kube" / "config"]
    return [file for file in files if file.exists() and (file.is_dir() or file.stat().st_size)]


def current_context(files: Sequence[Path]) -> str | None:
    """The context that kubectl would use; raises `ApiError` for a file that is no kubeconfig.

    The official Python loader takes the last one named; kubectl the first.
    """
    for file in files:
        try:
            read = yaml.safe_load(file.read_text())
        except (OSError, UnicodeError, yaml.YAMLError) as error:
            raise ApiError(f"kubeconfig {file} is not usable: {error}") from error
        if not isinstance(read, dict):
            raise ApiError(f"kubeconfig {file} is not usable: it holds no mapping")
        if read.get("current-context"):
            return str(read["current-context"])
    return None
