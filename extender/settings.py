"""What the extender can be told, each as a flag and as an environment variable `GPUSHARE_…`."""

from __future__ import annotations

from typing import Literal

from pydantic import field_validator

from kubeapi.settings import Settings


class ExtenderSettings(Settings):
    """The extender's settings."""

    listen: str = "127.0.0.1:39999"
    """HOST:PORT to serve on"""
    policy: Literal["binpack", "spread"] = "binpack"
    """which of the fitting cards a pod gets: the one with the least left, or the most"""

    @field_validator("listen")
    @classmethod
    def _has_host_and_port(cls, value: str) -> str:
        split_address(value)
        return value


def split_address(address: str) -> tuple[str, int]:
    """`HOST:PORT` or `[IPv6]:PORT` in two; raises `ValueError`."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError("must read HOST:PORT, for example 127.0.0.1:39999")
    return host, int(port)
