"""Says what is being waited for, once that takes so long that a person would wonder."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

SECONDS = 2.0


class Patience:
    """Tells of every wait at most once, so that a watch does not repeat itself."""

    def __init__(self, *, tell: Callable[[str], None], seconds: float = SECONDS) -> None:
        """`tell` is called while the wait goes on, after so many `seconds` of it."""
        self._tell = tell
        self._seconds = seconds
        self._told: set[str] = set()

    @contextlib.contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """For as long as the body takes; `what` completes "waiting for"."""
        timer = asyncio.get_running_loop().call_later(self._seconds, self._say, what)
        try:
            yield
        finally:
            timer.cancel()

    def _say(self, what: str) -> None:
        if what not in self._told:
            self._told.add(what)
            self._tell(f"waiting for {what}")
