"""One opening of NVML with the thread that waits for XIDs, and a way to call what blocks.

NVML's calls can block for seconds on a sick card, or for ever. So each runs in a daemon thread of its own:
neither the event loop nor the end of the process waits for one that does not come back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from deviceplugin.errors import SourceError
from deviceplugin.nvml import Nvml
from deviceplugin.nvmlsightings import Look, Xid

log = logging.getLogger(__name__)

WAIT_SECONDS = 0.5
"""For one wait for an XID: how long closing may have to wait for the thread."""
_PAUSE_SECONDS = 5.0
"""After a wait that failed: a lost card makes the next ones fail at once, too."""

T = TypeVar("T")


def in_thread(call: Callable[[], T]) -> asyncio.Future[T]:
    """Run what may block in a daemon thread; whoever stops waiting leaves it to itself."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: Exception | None) -> None:
        if outcome.done():
            return
        if error is None:
            outcome.set_result(value)  # type: ignore[arg-type]
        else:
            outcome.set_exception(error)

    def work() -> None:
        value: T | None = None
        error: Exception | None = None
        try:
            value = call()
        except Exception as raised:  # noqa: BLE001 — whoever waits gets it
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=work, name="nvml", daemon=True).start()
    return outcome


class Session:
    """NVML open, and its XIDs delivered. `look` and `close` block, and are called one at a time."""

    def __init__(self, *, on_xid: Callable[[Xid], None], on_trouble: Callable[[], None]) -> None:
        """Open NVML; raises `SourceError`. Both callbacks come from another thread.

        `on_trouble` says that a card may be lost: waiting for XIDs failed.
        """
        self._nvml = Nvml()
        self._on_xid = on_xid
        self._on_trouble = on_trouble
        self._closing = threading.Event()
        self._waiter: threading.Thread | None = None

    @property
    def at(self) -> int | None:
        """NVML's index of the GPU that is being asked right now."""
        return self._nvml.at

    def look(self) -> Look:
        """Ask every card; raises `SourceError`."""
        look = self._nvml.look()
        if self._waiter is None and self._nvml.has_events:  # now that there is something to wait for
            self._waiter = threading.Thread(target=self._wait, name="nvml-xids", daemon=True)
            self._waiter.start()
        return look

    def close(self) -> None:
        """End the waiting, then close NVML; left open if the wait does not end in time."""
        self._closing.set()
        if self._waiter is not None:
            self._waiter.join(timeout=4 * WAIT_SECONDS)
            if self._waiter.is_alive():
                log.warning("NVML stays open reason='a wait for XIDs does not end'")
                return
        self._nvml.close()

    def _wait(self) -> None:
        complaint = ""
        while not self._closing.is_set():
            try:
                xid = self._nvml.next_xid(seconds=WAIT_SECONDS)
            except SourceError as error:
                if str(error) != complaint:
                    complaint = str(error)
                    log.warning("XIDs may be missed reason=%r", complaint)
                self._on_trouble()
                self._closing.wait(_PAUSE_SECONDS)
            else:
                if xid is not None and not self._closing.is_set():
                    self._on_xid(xid)
