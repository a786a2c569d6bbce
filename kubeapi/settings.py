"""Settings of a program: flags before environment before defaults, as one typed object.

A program declares a subclass of `Settings`; every field is a flag (`log_level` → `--log-level`) and an
environment variable (`GPUSHARE_LOG_LEVEL`), and its docstring is the flag's help.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import ValidationError, field_validator
from pydantic_settings import BaseSettings, CliApp, CliSettingsSource, SettingsConfigDict, SettingsError

from gpushare.errors import ResourceNameError, quoted
from gpushare.names import DEFAULT_MEMORY_RESOURCE, Names

Unit = Literal["MiB", "GiB"]
LogLevel = Literal["debug", "info", "warning", "error"]

S = TypeVar("S", bound="Settings")


class Settings(BaseSettings):
    """What both programs are told."""

    model_config = SettingsConfigDict(
        env_prefix="GPUSHARE_",
        cli_kebab_case=True,
        cli_avoid_json=True,
        cli_hide_none_type=True,
        use_attribute_docstrings=True,
        frozen=True,
        extra="ignore",
    )

    kubeconfig: Path | None = None
    """kubeconfig file; without it the pod's service account is used"""
    resource: str = DEFAULT_MEMORY_RESOURCE
    """extended resource that counts GPU memory; every other name derives from it"""
    unit: Unit = "MiB"
    """what one unit of the resource counts, the same in the whole cluster"""
    log_level: LogLevel = "info"
    """least severe lines to log"""

    @field_validator("kubeconfig", mode="before")
    @classmethod
    def _empty_is_none(cls, value: object) -> object:
        return None if value == "" else value  # as a chart leaves it; Path("") would be the current folder

    @field_validator("resource")
    @classmethod
    def _is_extended_resource(cls, value: str) -> str:
        try:
            Names.of(value)
        except ResourceNameError as error:
            raise ValueError(str(error)) from error
        return value

    @property
    def names(self) -> Names:
        return Names.of(self.resource)


def load(kind: type[S], *, program: str, argv: Sequence[str] | None = None) -> S:
    """Read the settings of `program`; ends the process with code 2 and a message for bad ones."""
    source = CliSettingsSource[kind](kind, cli_prog_name=program)  # type: ignore[valid-type]
    try:
        return CliApp.run(
            kind, cli_args=list(sys.argv[1:] if argv is None else argv), cli_settings_source=source
        )
    except (ValidationError, SettingsError) as error:
        sys.exit(_explain(error, program=program))


def _explain(error: ValidationError | SettingsError, *, program: str) -> int:
    if isinstance(error, SettingsError):
        print(f"{program}: {error}", file=sys.stderr)
        return 2
    for fault in error.errors():
        name = str(fault["loc"][0]) if fault["loc"] else "settings"
        flag = "--" + name.replace("_", "-")
        variable = "GPUSHARE_" + name.upper()
        message = fault["msg"].removeprefix("Value error, ")
        said = "must be given" if fault["type"] == "missing" else f"{message}; got {quoted(fault['input'])}"
        print(f"{program}: {flag} (or {variable}): {said}", file=sys.stderr)
    return 2
