"""Watches: the changes of a collection from a version on, as one client's selectors see them."""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable

from sandbox.apiserver.errors import Expired
from sandbox.apiserver.faults import Caller
from sandbox.apiserver.history import Change, Record, event_line, present
from sandbox.apiserver.kinds import Kind
from sandbox.apiserver.selectors import Selector
from sandbox.apiserver.store import Store

_INITIAL_END = "k8s.io/initial-events-end"


class Watch:
    """One open watch. It holds a position in the history, not a queue of its own."""

    def __init__(
        self,
        *,
        store: Store,
        kind: Kind,
        namespace: str,
        selector: Selector,
        caller: Caller,
        version: int | None,
        timeout_s: float | None,
        bookmark_s: float | None,
        marks_initial_end: bool = False,
        frozen: Callable[[Caller], bool],
    ) -> None:
        """``version`` None starts with the state as it is; ``bookmark_s`` None sends no bookmarks."""
        self.kind = kind
        self.caller = caller
        self._store = store
        self._namespace = namespace
        self._selector = selector
        self._version = version
        self._bookmark_s = bookmark_s
        self._marks_initial_end = marks_initial_end
        self._frozen = frozen
        self._history = store.history(kind)
        self._wakeup = self._history.subscribe()
        self.is_cut = False
        """Whether it is to end like a broken connection."""
        self._ended = False
        self._bookmark_due = False
        self._deadline = None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s

    def end(self) -> None:
        """Close it; what has not been sent stays unsent."""
        self._ended = True
        self._wakeup.set()

    def cut(self) -> None:
        """End it like a broken connection."""
        self.is_cut = True
        self.end()

    def send_bookmark(self) -> None:
        """Send a bookmark now, if the client allows them."""
        self._bookmark_due = True
        self._wakeup.set()

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Lines of JSON, as many at a time as there are."""
        try:
            try:
                position = self._start()
            except Expired as error:
                yield event_line("ERROR", error.status())
                return
            if self._version is None:
                yield self._initial_events()
            async for chunk in self._follow(position):
                yield chunk
        finally:
            self._history.unsubscribe(self._wakeup)

    def _start(self) -> int:
        version = self._store.version if self._version is None else self._version
        return self._history.position_after(version)

    def _initial_events(self) -> bytes:
        page = self._store.page(self.kind, namespace=self._namespace, selector=self._selector)
        lines = [event_line("ADDED", present(self.kind, record.body)) for record in page.records]
        if self._marks_initial_end:
            lines.append(self._bookmark(annotations={_INITIAL_END: "true"}))
        return b"".join(lines)

    async def _follow(self, position: int) -> AsyncGenerator[bytes, None]:
        clock = asyncio.get_running_loop().time
        next_bookmark = self._next_bookmark(clock())
        while True:
            self._wakeup.clear()
            if self._ended:
                return
            if self._frozen(self.caller):
                await self._wakeup.wait()
                continue
            try:
                changes = self._history.read(position)
            except Expired:
                return  # too slow: Kubernetes closes such a watch too, and the next one answers 410
            if changes:
                position += len(changes)
                if chunk := b"".join(line for change in changes if (line := self._line(change))):
                    yield chunk
                continue
            now = clock()
            if self._deadline is not None and now >= self._deadline:
                return
            if self._bookmark_s is not None and (self._bookmark_due or now >= next_bookmark):
                yield self._bookmark()
                self._bookmark_due = False
                next_bookmark = self._next_bookmark(now)
                continue
            due = min(next_bookmark, float("inf") if self._deadline is None else self._deadline)
            await _wait(self._wakeup, None if due == float("inf") else due - now)

    def _next_bookmark(self, now: float) -> float:
        # Spread by a quarter, so that a thousand watches do not send theirs at the same instant.
        return (
            float("inf") if self._bookmark_s is None else now + self._bookmark_s * random.uniform(0.75, 1.0)
        )

    def _line(self, change: Change) -> bytes:
        """The change as this watch sees it: entering the selection is ADDED, leaving it DELETED."""
        before, after = self._selects(change.previous), self._selects(change.record)
        if after:
            return change.line(self.kind, "MODIFIED" if before else "ADDED")
        return change.line(self.kind, "DELETED") if before else b""

    def _selects(self, record: Record | None) -> bool:
        return (
            record is not None
            and (not self._namespace or record.namespace == self._namespace)
            and self._selector.matches(record.subject)
        )

    def _bookmark(self, *, annotations: dict[str, str] | None = None) -> bytes:
        metadata: dict[str, object] = {"resourceVersion": str(self._store.version)}
        if annotations:
            metadata["annotations"] = annotations
        head = {"kind": self.kind.kind, "apiVersion": self.kind.api_version}
        return event_line("BOOKMARK", {**head, "metadata": metadata, **self.kind.bookmark})


async def _wait(wakeup: asyncio.Event, timeout_s: float | None) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await wakeup.wait()
    except TimeoutError:
        pass
