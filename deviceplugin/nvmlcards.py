"""NVIDIA's cards, found through NVML and watched: a `CardSource`.

Every few seconds all cards are asked (the probe, and whatever came or went in between); XIDs count at once.
A driver that does not answer at start is asked again until it does, and `problem` says what is wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from deviceplugin.counts import CardCounts
from deviceplugin.errors import SourceError
from deviceplugin.health import Fault, Thresholds
from deviceplugin.healthxids import HealthSwitches
from deviceplugin.nvmlroster import Roster
from deviceplugin.nvmlsession import WAIT_SECONDS, Session, in_thread
from deviceplugin.nvmlsightings import Look, Xid
from deviceplugin.sharing import Sharing
from gpushare.cards import Card
from kubeapi.backoff import Backoff

log = logging.getLogger(__name__)

INTERVAL = 10.0
"""Seconds between two looks."""
_STALL_SECONDS = 30.0
"""A look that takes longer hangs: opening NVML takes seconds a card where no persistence daemon runs."""
_LOOKS_A_SESSION = 6
"""With a card missing NVML is opened anew after so many looks: costly, and the only way to see it return."""
_CLOSE_SECONDS = 6 * WAIT_SECONDS


class NvmlCards:
    """The cards of this node, for ever."""

    def __init__(
        self,
        *,
        sharing: Sharing,
        switches: HealthSwitches | None = None,
        thresholds: Thresholds | None = None,
        interval: float = INTERVAL,
        backoff: Backoff | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        stall: float = _STALL_SECONDS,
    ) -> None:
        """`sleep` waits between looks; `stall` is how long, in seconds, a look may take."""
        self.problem: str | None = "NVML has not answered yet"
        self.counts = CardCounts()
        self._roster = Roster(
            sharing=sharing,
            switches=switches or HealthSwitches(),
            thresholds=thresholds or Thresholds(),
            counts=self.counts,
        )
        self._interval = interval
        self._backoff = backoff or Backoff(first=1.0, longest=30.0)
        self._sleep = sleep
        self._stall = stall
        self._is_found = False
        self._session: Session | None = None
        self._looks = 0
        """Since NVML was opened, with a card missing."""
        self._is_stale = False
        self._looking: asyncio.Future[Look] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()
        self._is_urgent = False

    def device_nodes(self, uuid: str) -> tuple[str, ...]:
        """As the driver numbers them; none for a card that has not been seen."""
        return self._roster.device_nodes(uuid)

    async def follow(self) -> AsyncIterator[tuple[Card, ...]]:
        """Yield the cards once the driver answers, and again whenever one of them changes."""
        self._loop = asyncio.get_running_loop()
        sent: tuple[Card, ...] | None = None
        is_resting = False
        step = self._start(self._ask())
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                if step.done() or (is_resting and self._is_urgent):
                    if step.done():
                        step.result()
                    step.cancel()
                    is_resting = not is_resting
                    step = self._start(self._sleep(self._pause()) if is_resting else self._ask())
                if self._is_found and (cards := self._roster.cards) != sent:
                    sent = cards
                    yield cards
        finally:
            step.cancel()
            await self._close()

    def _start(self, step: Awaitable[object]) -> asyncio.Future[object]:
        """Begin to ask or to rest; its end is news."""
        future = asyncio.ensure_future(step)
        future.add_done_callback(lambda _: self._news.set())
        return future

    async def _ask(self) -> None:
        """Have the roster learn from one look at all cards, or from its failure."""
        self._is_urgent = False
        if self._looking is None:
            self._looking = in_thread(self._look)
        await asyncio.wait({self._looking}, timeout=self._stall)
        if not self._looking.done():  # there is no way to stop it: the next look is this one still
            gpu = self._session.at if self._session else None
            at = "being opened" if gpu is None else f"asked for GPU {gpu}"
            self._complain(f"NVML has not answered for {self._stall:g} s, {at}")
            self._roster.fail(Fault(text="the driver does not answer"), gpu=gpu)
            return
        looking, self._looking = self._looking, None
        try:
            look = looking.result()
        except SourceError as error:
            self._is_stale = True
            self._complain(str(error))
            self._roster.fail(Fault(text=str(error.__cause__ or error)))
            return
        self._roster.take(look)
        self._looks = self._looks + 1 if self._roster.has_missing else 0
        if not self._is_found and not self._roster.cards:
            log.warning("no cards to share; whatever NVML lists later is taken")
        self._is_found = True
        self.problem = None

    def _look(self) -> Look:
        """In a thread: open NVML where needed, and ask all cards. Raises `SourceError`."""
        if self._session is not None and (self._is_stale or self._looks >= _LOOKS_A_SESSION):
            session, self._session = self._session, None
            session.close()
        if self._session is None:
            self._session = Session(on_xid=self._on_xid, on_trouble=self._on_trouble)
            self._is_stale, self._looks = False, 0
        return self._session.look()

    def _pause(self) -> float:
        return self._interval if self._is_found else self._backoff.next()

    def _complain(self, problem: str) -> None:
        if not self._is_found or problem != self.problem:
            log.warning("no word from the cards reason=%r", problem)
        self.problem = problem

    def _on_xid(self, xid: Xid) -> None:
        self._call(lambda: self._roster.hit(xid))

    def _on_trouble(self) -> None:
        def hurry() -> None:
            self._is_urgent = True

        self._call(hurry)

    def _call(self, change: Callable[[], None]) -> None:
        """From another thread: have something changed in the loop's, and looked at."""

        def apply() -> None:
            change()
            self._news.set()

        assert self._loop is not None  # `follow` sets it before it opens anything
        with contextlib.suppress(RuntimeError):  # closed: nobody is there to hear of it
            self._loop.call_soon_threadsafe(apply)

    async def _close(self) -> None:
        """Close NVML unless something hangs in it; the process may end all the same."""
        if self._looking is not None:
            await asyncio.wait({self._looking}, timeout=_CLOSE_SECONDS)
            if not self._looking.done():
                log.warning("NVML stays open reason='it does not answer'")
                return
            self._looking.exception()
        if self._session is not None:
            session, self._session = self._session, None
            await asyncio.wait({in_thread(session.close)}, timeout=_CLOSE_SECONDS)
