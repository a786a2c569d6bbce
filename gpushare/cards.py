"""The cards of a node: what the device plugin publishes and the extender reads.

The node annotation carries JSON like
`{"unit":"MiB","slots":32,"cards":[{"index":0,"uuid":"GPU-…","memory":24576,"model":"…","healthy":true,"numa":0}]}`.
Nodes of the classic device plugin have no such annotation, only capacities: their cards are an even split.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import msgspec

from gpushare.demand import MOST_CARDS
from gpushare.errors import CardsError, QuantityError, quoted
from gpushare.names import Names
from gpushare.objects import UNDECODABLE, Node
from gpushare.quantities import parse_units

UNITS = {"MiB": 2**20, "GiB": 2**30}
"""What one unit of the memory resource may count, in bytes. One per cluster."""

UNLIMITED_SLOTS = 2**31 - 1
"""Slots of a card on a node whose device plugin announces none: never the limit."""

_Index = Annotated[int, msgspec.Meta(ge=0, le=9999)]  # what an allocation can name: `gpushare.allocation`
_Positive = Annotated[int, msgspec.Meta(gt=0)]

LARGEST_CARD = 2**40
"""Units no card reaches. Above it sums of cards would pass what Kubernetes can count (int64)."""

_Memory = Annotated[int, msgspec.Meta(gt=0, le=LARGEST_CARD)]


class Card(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """A GPU or a MIG instance. `memory` is in units, less what the driver keeps for itself."""

    index: _Index
    """NVML's order, which is PCI bus order; stable while no card appears or goes."""
    uuid: str
    """NVML's UUID; empty on nodes of the classic device plugin, which does not publish it."""
    memory: _Memory
    model: str = ""
    healthy: bool = True
    reason: str = ""
    """Why the card is not healthy."""
    numa: int | None = None


class NodeCards(msgspec.Struct, frozen=True, kw_only=True):
    """All cards of one node."""

    unit: str
    slots: _Positive
    """Slots per card."""
    cards: tuple[Card, ...]

    @property
    def memory(self) -> int:
        """Units over all cards, healthy or not."""
        return sum(card.memory for card in self.cards)


_decoder = msgspec.json.Decoder(NodeCards)


def encode_cards(cards: NodeCards) -> str:
    """Return the annotation's text. The same cards always give the same text."""
    return msgspec.json.encode(cards).decode()


def decode_cards(text: str) -> NodeCards:
    """Read the annotation's text; keys it does not know are ignored.

    Raises `CardsError` for anything that is not such JSON, two cards of one index or UUID, or an unknown
    unit. An empty list of cards is fine: the node has none at present.
    """
    try:
        node_cards = _decoder.decode(text)
    except UNDECODABLE as error:
        raise CardsError(str(error)) from error
    check_cards(node_cards.cards)
    if node_cards.unit not in UNITS:
        raise CardsError(f"unknown unit {quoted(node_cards.unit)}, expected MiB or GiB")
    if any(not card.uuid for card in node_cards.cards):
        raise CardsError("a card has an empty UUID")
    return node_cards


def check_cards(cards: Sequence[Card]) -> None:
    """Raise `CardsError` if two cards share an index or a UUID."""
    indices = Counter(card.index for card in cards)
    uuids = Counter(card.uuid for card in cards if card.uuid)
    for what, values in (("index", indices), ("UUID", uuids)):
        twice = [value for value, times in values.items() if times > 1]
        if twice:
            raise CardsError(f"two cards have the {what} {twice[0]}")


def cards_of(node: Node, *, names: Names, unit: str) -> NodeCards | None:
    """Return a node's cards, or `None` where the node shares none.

    A node without the annotation but with the classic capacities gets an even split in the cluster's
    `unit` and no slot limit. Raises `CardsError` where either cannot be read.
    """
    text = node.annotations.get(names.cards)
    if text is not None:
        return decode_cards(text)
    if names.memory not in node.capacity or names.count not in node.capacity:
        return None
    try:
        total = parse_units(str(node.capacity[names.memory]))
        count = parse_units(str(node.capacity[names.count]))
    except QuantityError as error:
        raise CardsError(f"node capacity is unreadable: {error}") from error
    if count == 0 or total < count:
        return None
    if count > MOST_CARDS:
        raise CardsError(f"node capacity is unreadable: {count} cards on one node")
    cards = tuple(Card(index=index, uuid="", memory=total // count) for index in range(count))
    return NodeCards(unit=unit, slots=UNLIMITED_SLOTS, cards=cards)
