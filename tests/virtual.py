"""An event loop whose clock only moves when nothing else is left to do.

Deadlines and backoffs of minutes pass at once, every run of the same steps is the same, and a test can let
the loop make a few turns and stop: in between is every point at which a program can be interrupted.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar
from unittest import mock

T = TypeVar("T")


class _Clockwork(selectors.SelectSelector):
    """Waits for no socket: passing time is all that it does."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everybody waits and nothing is left to happen")
        self.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """asyncio with a clock of its own. Real sockets, threads and processes do not work on it."""

    def __init__(self) -> None:
        self._clockwork = _Clockwork()
        super().__init__(self._clockwork)

    def time(self) -> float:
        return self._clockwork.now

    def turn(self, turns: int = 1) -> None:
        """Run what is ready now, and so on this many times; no time passes."""
        for _ in range(turns):
            self.call_soon(self.stop)
            self.run_forever()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run until the coroutine is done."""
        return self.run_until_complete(coroutine)

    def advance(self, seconds: float) -> None:
        """Let time pass, with everything that is due in it."""
        self.run_until_complete(asyncio.sleep(seconds))

    @contextlib.contextmanager
    def as_clock(self) -> Iterator[None]:
        """Make `time.monotonic` this loop's clock too."""
        with mock.patch("time.monotonic", self.time):
            yield
