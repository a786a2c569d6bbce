"""Following a source of cards with time in the test's hands."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from deviceplugin.nvmlcards import NvmlCards
from gpushare.cards import Card
from tests.running import running
from tests.waiting import DEADLINE


class Clock:
    """Sleeps end when the test says so."""

    def __init__(self) -> None:
        self._resting = asyncio.Event()
        self._wake = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        """What the source does between two looks."""
        self._wake = asyncio.Event()
        self._resting.set()
        try:
            await self._wake.wait()
        finally:
            self._resting.clear()

    async def looked(self) -> None:
        """Return once the source has looked and rests."""
        async with asyncio.timeout(DEADLINE):
            await self._resting.wait()

    async def tick(self, times: int = 1) -> None:
        """Have the source look so many times."""
        for _ in range(times):
            await self.looked()
            self._resting.clear()
            self._wake.set()
            await self.looked()


class Followed:
    """What a source has said so far."""

    def __init__(self, source: NvmlCards, *, clock: Clock) -> None:
        self.source = source
        self.clock = clock
        self.news: list[tuple[Card, ...]] = []

    @property
    def cards(self) -> tuple[Card, ...]:
        """The latest."""
        return self.news[-1]

    @property
    def sick(self) -> dict[int, str]:
        """Index and reason of the cards that are not healthy."""
        return {card.index: card.reason for card in self.cards if not card.healthy}

    def sizes(self) -> dict[int, tuple[str, int]]:
        """UUID and units by index."""
        return {card.index: (card.uuid, card.memory) for card in self.cards}

    async def run(self) -> None:
        async with contextlib.aclosing(self.source.follow()) as follow:  # type: ignore[type-var]
            async for cards in follow:
                self.news.append(cards)

    async def tick(self, times: int = 1) -> None:
        """Have the source look so many times."""
        await self.clock.tick(times)


@contextlib.asynccontextmanager
async def following(source: NvmlCards, *, clock: Clock) -> AsyncIterator[Followed]:
    """Follow a source, from its first look on, until the context ends."""
    followed = Followed(source, clock=clock)
    async with running(followed.run()):
        await clock.looked()
        yield followed
