"""Where the node's cards come from: the seam between NVML, simulated cards and whatever comes later."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

from deviceplugin.simulated import SimulatedCards
from gpushare.cards import Card


class CardSource(Protocol):
    """Finds cards and watches over them."""

    def follow(self) -> AsyncIterator[tuple[Card, ...]]:
        """Yield all cards once they are found, and again after every change, for ever.

        A source that cannot find them says why in the log and goes on trying; it never ends by itself.
        """


def card_source(cards: str, *, unit: str) -> CardSource:
    """The source that `--cards` names; raises `CardsFileError` for a file that makes no sense."""
    if cards == "nvml":
        from deviceplugin.nvml import NvmlCards  # only here: the library is of no use on other nodes

        return NvmlCards(unit=unit)
    return SimulatedCards(Path(cards))
