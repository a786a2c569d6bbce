"""Where the node's cards come from: the seam between NVML, simulated cards and whatever comes later."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

from deviceplugin.counts import CardCounts
from deviceplugin.health import Thresholds
from deviceplugin.healthxids import HealthSwitches
from deviceplugin.sharing import Sharing
from deviceplugin.simulated import SimulatedCards
from gpushare.cards import Card


class CardSource(Protocol):
    """Finds cards and watches over them."""

    problem: str | None
    """Why the cards cannot be read now; `None` while they can."""
    counts: CardCounts

    def follow(self) -> AsyncIterator[tuple[Card, ...]]:
        """Yield all cards once they are found, and again after every change, for ever.

        A source that cannot find them says why in the log and in `problem`, and goes on trying; it never
        ends by itself.
        """

    def device_nodes(self, uuid: str) -> tuple[str, ...]:
        """Paths in `/dev` of a card's own nodes, see `devicenodes`; none where they are not known."""


def card_source(
    cards: str,
    *,
    sharing: Sharing,
    switches: HealthSwitches,
    thresholds: Thresholds,
    interval: float,
) -> CardSource:
    """The source that `--cards` names, asked every `interval` seconds.

    Raises `CardsFileError` for a file that makes no sense.
    """
    if cards == "nvml":
        from deviceplugin.nvmlcards import NvmlCards  # only here: the library is of no use on other nodes

        return NvmlCards(sharing=sharing, switches=switches, thresholds=thresholds, interval=interval)
    return SimulatedCards(Path(cards), sharing=sharing)
