"""What of the node's cards is shared: cards left out, memory kept back, sizes of cards that report none.

One text serves a whole DaemonSet: an item applies on every node, or with `NODE:` before it on that one.

    --exclude 0,GPU-8c0a…,node-a:1          index or UUID; a GPU in MIG mode stands for its instances
    --memory-of node-b:0=98304,GPU-77…=65536 units, for cards whose memory NVML does not report
    --reserve 1024                           units of every card that are not announced at all
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from deviceplugin.errors import SettingError
from gpushare.cards import UNITS, Card
from gpushare.errors import quoted

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sharing:
    """The rules of one node. Cards are named by index (in decimal) or UUID."""

    unit: str = "MiB"
    excluded: frozenset[str] = frozenset()
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Units of cards that report no memory."""
    reserve: int = 0
    """Units kept back on every card."""
    named_here: frozenset[str] = frozenset()
    """Cards of which something was said for this node alone, `NODE:CARD`."""

    @classmethod
    def parse(
        cls, *, node: str, unit: str = "MiB", exclude: str = "", memory_of: str = "", reserve: int = 0
    ) -> Sharing:
        """Read the settings' texts for `node`; raises `SettingError` for an item that makes no sense."""
        places = [_place(item) for item in _items(exclude)]
        excluded = frozenset(name for place, name in places if place in ("", node))
        sizes: dict[str, int] = {}
        for item in _items(memory_of):
            card, equals, size = item.partition("=")
            place, name = _place(card)
            places.append((place, name))
            if not equals or not (size.isascii() and size.isdigit()) or int(size) == 0:
                raise SettingError(f"{quoted(item)} is not [NODE:]CARD=UNITS with a whole number above zero")
            # What is said of this node wins over what is said of all.
            if place == node or (place == "" and name not in sizes):
                sizes[name] = int(size)
        named_here = frozenset(name for place, name in places if place and place == node)
        return cls(unit=unit, excluded=excluded, sizes=sizes, reserve=reserve, named_here=named_here)

    def excludes(self, names: Iterable[str]) -> bool:
        """Whether a card that goes by any of these names is left out."""
        return not self.excluded.isdisjoint(names)

    def tell_of_unknown(self, names: Collection[str]) -> None:
        """Log which cards the settings name that are none of this node's; `names` is all that those go by.

        It is a mistake where it was said of this node. Where one list serves all nodes, the card may well be
        another's.
        """
        for setting, named in (("exclude", self.excluded), ("memory-of", self.sizes.keys())):
            for name in sorted(named - set(names)):
                if name in self.named_here:
                    log.warning("this node has no such card %s=%s", setting, quoted(name))
                else:
                    log.info("this node has no such card %s=%s; another may", setting, quoted(name))

    def units(self, usable_bytes: int | None, *, names: Iterable[str]) -> int | None:
        """The size to announce, 0 where nothing is left of the card.

        `None` where the card reports no memory and none is configured under any of its names.
        """
        if usable_bytes is not None:
            return max(0, usable_bytes // UNITS[self.unit] - self.reserve)
        known = [self.sizes[name] for name in names if name in self.sizes]
        return max(0, known[0] - self.reserve) if known else None

    def apply(self, cards: Iterable[Card]) -> tuple[Card, ...]:
        """Those of the cards that are shared, less what is kept back; for cards whose size is known."""
        return tuple(
            msgspec.structs.replace(card, memory=card.memory - self.reserve)
            for card in cards
            if not self.excludes((card.uuid, str(card.index))) and card.memory > self.reserve
        )


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _place(item: str) -> tuple[str, str]:
    """Split `NODE:CARD`; neither node names nor UUIDs have a colon in them."""
    place, colon, name = item.rpartition(":")
    if not name or (colon and not place) or ":" in place or "=" in item:
        raise SettingError(f"{quoted(item)} is not [NODE:]CARD with an index or a UUID as card")
    return place, name
