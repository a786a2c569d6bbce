"""What ends the command with exit code 1."""

from __future__ import annotations

from gpushare.errors import GpuShareError


class NodeNotFoundError(GpuShareError):
    """There is no node by a name that was asked for."""

    def __init__(self, node: str) -> None:
        super().__init__(f'node "{node}" not found')


class NoAnswerError(GpuShareError):
    """The extender did not answer, or not in a way that we can read: its `inspect` has to be computed."""
