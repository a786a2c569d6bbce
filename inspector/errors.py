"""What ends the command with exit code 1.

Exception
├── GpuShareError
│   ├── NodeNotFoundError
│   ├── NeitherWayError         the extender did not answer, and the lists were refused
│   └── NoAnswerError           the extender did not answer: compute it instead
│       └── NoExtenderError     there is none where it was looked for
└── OutputError                 what was found cannot be written: ends a watch too
"""

from __future__ import annotations

from gpushare.errors import GpuShareError


class NodeNotFoundError(GpuShareError):
    """There is no node by a name that was asked for."""

    def __init__(self, node: str) -> None:
        super().__init__(f'node "{node}" not found')


class NoAnswerError(GpuShareError):
    """The extender did not answer, or not in a way that we can read: its `inspect` has to be computed."""


class NoExtenderError(NoAnswerError):
    """The namespace has no Service of the extender's."""

    def __init__(self, namespace: str) -> None:
        super().__init__(f"no gpushare extender found in {namespace} (give -n where it is installed)")


class NeitherWayError(GpuShareError):
    """Two sentences, a line each: why the extender's answer was not to be had, and why not the lists."""

    def __init__(self, *, extender: Exception, lists: Exception) -> None:
        super().__init__(f"{extender}\nnor can it be computed from nodes and pods: {lists}")


class OutputError(Exception):
    """Standard output takes no more."""
