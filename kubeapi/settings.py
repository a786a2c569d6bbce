"""Settings of a program as one typed object: flags before environment before `--config` before defaults.

A program declares a subclass of `Settings`; every field is a flag (`log_level` → `--log-level`), an
environment variable (`GPUSHARE_LOG_LEVEL`) and a key of the file (`log-level`, see `kubeapi.configfile`), and
its docstring is the flag's help.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    CliSettingsSource,
    EnvSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from gpushare.errors import ResourceNameError, quoted
from gpushare.names import DEFAULT_MEMORY_RESOURCE, Names
from kubeapi.configfile import SettingsRefused, key_of, read_file

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
        cli_implicit_flags=True,
        use_attribute_docstrings=True,
        frozen=True,
        extra="ignore",
    )

    config: Path | None = None
    """YAML file of these settings (version: v1); flags and environment win over it"""
    kubeconfig: Path | None = None
    """kubeconfig file; without it the pod's service account is used"""
    resource: str = DEFAULT_MEMORY_RESOURCE
    """extended resource that counts GPU memory; every other name derives from it"""
    unit: Unit = "MiB"
    """what one unit of the resource counts, the same in the whole cluster"""
    log_level: LogLevel = "info"
    """least severe lines to log"""

    @field_validator("config", "kubeconfig", mode="before")
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
    try:
        return read(kind, program=program, argv=argv)
    except SettingsRefused as refusal:
        for fault in refusal.faults:
            print(f"{program}: {fault}", file=sys.stderr)
        sys.exit(2)


def read(kind: type[S], *, program: str, argv: Sequence[str] | None = None) -> S:
    """Read the settings of `program`, now: asked again, it follows a file that has changed.

    Raises `SettingsRefused` with every fault; `SystemExit` for `--help` and for a flag that does not exist.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        flags = CliSettingsSource[kind](kind, cli_prog_name=program, cli_parse_args=arguments)()  # type: ignore[valid-type]
        given = {**EnvSettingsSource(kind)(), **flags}
    except SettingsError as error:
        raise SettingsRefused([str(error)]) from error
    config = Path(given["config"]) if given.get("config") else None
    written = read_file(config, kind=kind) if config else {}
    try:
        return kind(**{**written, **given})
    except ValidationError as error:
        in_file = {name: f"{config}: {key_of(name)}" for name in written.keys() - given.keys()}
        raise SettingsRefused([_explain(fault, places=in_file) for fault in error.errors()]) from error


def _explain(fault: Any, *, places: Mapping[str, str]) -> str:
    message: str = fault["msg"].removeprefix("Value error, ")
    if not fault["loc"]:
        return message  # about several settings together: it names them
    name = str(fault["loc"][0])
    place = places.get(name, f"--{key_of(name)} (or GPUSHARE_{name.upper()})")
    if fault["type"] == "missing":
        return f"{place}: must be given"
    return f"{place}: {message}; got {quoted(fault['input'])}"
