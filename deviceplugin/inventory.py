"""The node's cards as they are now, and a way to hear of changes."""

from __future__ import annotations

import asyncio
from collections import Counter

from gpushare.cards import NodeCards


class Inventory:
    """Holds the latest cards; there are none to speak of until the source has found them."""

    def __init__(self) -> None:
        self.cards: NodeCards | None = None
        """`None` before the cards were found for the first time."""
        self.found = asyncio.Event()
        """Set once the cards are known; stays set."""
        self.news = asyncio.Event()
        """Set at the next change. Take it before looking at `cards`; every change makes a new one."""
        self.health_changes: Counter[tuple[str, str]] = Counter()
        """How many times a card turned, by UUID and what it turned to: `healthy` or `unhealthy`."""

    def set(self, cards: NodeCards) -> None:
        """Take over the cards and wake whoever waits for news."""
        was = {card.uuid: card.healthy for card in self.cards.cards} if self.cards else {}
        for card in cards.cards:
            if card.healthy is not was.get(card.uuid, card.healthy):
                self.health_changes[card.uuid, "healthy" if card.healthy else "unhealthy"] += 1
        self.cards = cards
        self.found.set()
        self.wake()

    def wake(self) -> None:
        """Let everybody who waits for news look again."""
        news, self.news = self.news, asyncio.Event()
        news.set()
