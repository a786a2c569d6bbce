"""The file that `--config` names: YAML whose keys are the flags without their dashes.

    version: v1
    log-level: debug

It is read strictly: a key that is unknown or written twice, or a value of another type than the setting's,
is a mistake of whoever wrote it, and is named together with the file.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError

from gpushare.errors import GpuShareError, quoted

VERSION = "v1"
_VERSION_KEY = "version"
_NOT_IN_FILES = frozenset({"config"})


class SettingsRefused(GpuShareError):  # noqa: N818 — what was said is refused, all of it at once
    """Settings that make no sense; `faults` has a sentence for each."""

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(faults))


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice: plain YAML would take the last one without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002
        seen = set()
        for key_node, _ in node.value:
            key = str(key_node.value)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"key {quoted(key)} stands twice", problem_mark=key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


def read_file(path: Path, *, kind: type[BaseModel]) -> dict[str, Any]:
    """What a file says, by the field's name in `kind`. Raises `SettingsRefused`."""
    written = _parse(path)
    version = written.pop(_VERSION_KEY, None)
    if version != VERSION:
        said = "is missing" if version is None else f"is {quoted(version)}"
        raise SettingsRefused([f"{path}: version {said}: this program reads 'version: {VERSION}'"])
    fields = {key_of(name): name for name in kind.model_fields if name not in _NOT_IN_FILES}
    values: dict[str, Any] = {}
    faults = []
    for key, value in written.items():
        if key not in fields:
            faults.append(f"{path}: unknown key {quoted(key)}{_hint(key, [*fields, _VERSION_KEY])}")
        elif problem := _type_problem(value, kind=kind, name=fields[key]):
            faults.append(f"{path}: {key}: {problem}; got {quoted(value)}")
        else:
            values[fields[key]] = value
    if faults:
        raise SettingsRefused(faults)
    return values


def key_of(name: str) -> str:
    """How a field is written in a file, and as a flag after its dashes."""
    return name.replace("_", "-")


def _parse(path: Path) -> dict[Any, Any]:
    try:
        written = yaml.load(path.read_bytes(), Loader=_Loader)  # derived from SafeLoader
    except OSError as error:
        raise SettingsRefused([f"{path}: cannot be read: {error.strerror or error}"]) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date such as 2026-13-01
        raise SettingsRefused([f"{path}: is not YAML: {' '.join(str(error).split())[:300]}"]) from error
    if written is None:
        return {}
    if not isinstance(written, dict):
        raise SettingsRefused([f"{path}: must be a mapping of keys to values"])
    return written


def _hint(key: object, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(str(key).lower().replace("_", "-"), known, n=1)
    return f": did you mean {close[0]!r}?" if close else f" (known: {', '.join(sorted(known))})"


def _type_problem(value: object, *, kind: type[BaseModel], name: str) -> str | None:
    """Why the value is not of the field's type. Strictly: in YAML a number needs no quotes."""
    field = kind.model_fields[name]
    try:
        written = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return "must be a text, a number, true or false, or a list or mapping of them"
    described: Any = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
    try:
        # From JSON: strict values from Python would have to be Path objects and the like.
        TypeAdapter(described).validate_json(written, strict=True)
    except ValidationError as error:
        return error.errors()[0]["msg"]
    return None
