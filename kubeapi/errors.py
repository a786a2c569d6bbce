"""What can go wrong between us and the API server.

ApiError
├── ApiUnreachable   nothing was sent, or nothing came back: the outcome of a write is unknown
└── ApiRefused       the API server answered with a status of 400 or more
"""

from __future__ import annotations

from gpushare.errors import GpuShareError


class ApiError(GpuShareError):
    """Any failed exchange with the API server."""


class ApiUnreachable(ApiError):  # noqa: N818 — reads as the state it names
    """No answer: refused, cut or too late. Whether a write happened is unknown."""


class ApiRefused(ApiError):  # noqa: N818
    """The API server said no. `reason` is Kubernetes' machine-readable one, `message` its sentence."""

    def __init__(self, *, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        super().__init__(f"API server answered {status} {reason}: {message}")
