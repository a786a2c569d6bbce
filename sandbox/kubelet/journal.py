"""What happened between kubelet and its plugins, in order, and a way to wait for it without sleeping."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

KEPT = 10_000
"""Calls that are remembered: more than any test makes, and a bound for a node that runs for days."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One entry: an RPC by its method's name, or `Devices` and `StreamEnded` for what a stream brought.

    An RPC is entered when it begins, so that calls under way at the same time show.
    """

    method: str
    resource: str = ""
    pod: str = ""
    """`namespace/name`, where the call is for a pod; the plugin is never told."""
    container: str = ""
    device_ids: tuple[str, ...] = ()
    must_include: tuple[str, ...] = ()
    size: int = 0
    """Devices asked for, or announced."""
    error: str = ""


class Journal:
    """The entries so far, and whoever waits for the next change."""

    def __init__(self) -> None:
        self._calls: deque[Call] = deque(maxlen=KEPT)
        self._changed = asyncio.Event()

    def record(self, call: Call) -> None:
        """Append an entry and wake those who wait."""
        self._calls.append(call)
        self.notify()

    def notify(self) -> None:
        """Let those who wait look again: something changed that is not a call."""
        self._changed.set()
        self._changed = asyncio.Event()

    def calls(self, *methods: str) -> list[Call]:
        """The entries of these methods, oldest first; all of them without an argument."""
        return [call for call in self._calls if not methods or call.method in methods]

    async def changed(self) -> None:
        """Return at the next change."""
        await self._changed.wait()

    async def wait_for(self, predicate: Callable[[], bool], *, deadline: float = 5.0) -> None:
        """Return as soon as the predicate holds; after `deadline` s TimeoutError names the last calls."""
        try:
            async with asyncio.timeout(deadline):
                while not predicate():
                    await self._changed.wait()
        except TimeoutError:
            last = ", ".join(f"{call.method}({call.pod or call.resource})" for call in self.calls()[-8:])
            raise TimeoutError(f"not within {deadline} s; last calls: {last or 'none'}") from None


class Hold:
    """A gate for `Kubelet.before_allocate`: `reached` is set when a call arrives, `release()` opens it."""

    def __init__(self, *, pod: str | None = None) -> None:
        """Hold the calls for one pod (`namespace/name`), or every call."""
        self.pod = pod
        self.reached = asyncio.Event()
        self._released = asyncio.Event()

    async def __call__(self, call: Call) -> None:
        """Wait here until released."""
        if self.pod in (None, call.pod):
            self.reached.set()
            await self._released.wait()

    def release(self) -> None:
        """Let the held calls and all later ones pass."""
        self._released.set()
