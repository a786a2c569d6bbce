"""Which cards a bound pod was given: how that is written into the Binding and read back.

The classic annotations (`…_IDX` and its companions) are what existing tools read; the JSON annotation
adds the UUIDs, so that a card is recognised after indices have shifted. A pod bound by the classic
scheduler carries only the former and is read all the same. Amounts are never taken from an annotation:
they come from the pod's spec.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from gpushare.cards import Card
from gpushare.demand import Demand
from gpushare.errors import AllocationError, NoAllocationError, quoted
from gpushare.names import Names
from gpushare.objects import UNDECODABLE


class CardRef(msgspec.Struct, frozen=True, order=True):
    """A card as an allocation names it. The UUID is empty where the classic scheduler chose."""

    index: int
    uuid: str = ""

    def names_card(self, card: Card) -> bool:
        """Whether `card` is the one meant: by UUID where both have one, else by index."""
        return self.uuid == card.uuid if self.uuid and card.uuid else self.index == card.index


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """The cards of one bound pod, by position: `cards[0]` is every container's first card."""

    node: str
    cards: tuple[CardRef, ...]
    vouched: bool = False
    """Whether our own annotation says so: then a card that the node lacks has gone since. A bare classic
    index that the node lacks may be anything."""

    @property
    def indices(self) -> str:
        """The classic spelling, `1` or `0,2`."""
        return ",".join(str(card.index) for card in self.cards)


class _Written(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON annotation; `containers` maps a container to its units per card position."""

    node: str
    cards: tuple[CardRef, ...]
    containers: dict[str, tuple[int, ...]] = {}


_decoder = msgspec.json.Decoder(_Written)
_INDICES = re.compile(r"(0|[1-9][0-9]{0,3})(,(0|[1-9][0-9]{0,3}))*", re.ASCII)


def allocation_annotations(
    *, node: str, cards: Sequence[Card], demand: Demand, now_ns: int, names: Names
) -> dict[str, str]:
    """Return the annotations of a Binding that gives `cards` (by position) of `node` to a pod.

    The classic `…_POD` and `…_DEV` hold one number where all cards agree, else one per card in the order
    of `…_IDX`.
    """
    refs = tuple(CardRef(card.index, card.uuid) for card in cards)
    allocation = Allocation(node=node, cards=refs)
    written = _Written(
        node=node,
        cards=refs,
        containers={
            container.name: (container.per_card,) * container.slots for container in demand.containers
        },
    )
    return {
        names.index: allocation.indices,
        names.pod_memory: one_or_each([share.memory for share in demand.cards]),
        names.card_memory: one_or_each([card.memory for card in cards]),
        names.assume_time: str(now_ns),
        names.assigned: "false",
        names.allocation: msgspec.json.encode(written).decode(),
    }


def decode_allocation(
    annotations: Mapping[str, str], *, node: str, demand: Demand, names: Names
) -> Allocation:
    """Read back which cards of `node` a bound pod with this demand holds.

    Raises `NoAllocationError` where nothing is written, and `AllocationError` where it cannot be read,
    where it was made for another node, or where it does not give the pod as many different cards as it needs.
    """
    indices = annotations.get(names.index)
    text = annotations.get(names.allocation)
    if indices is None and text is None:
        raise NoAllocationError("has no card allocation")
    if indices is None:
        raise AllocationError(f"has an unreadable card allocation: {names.index} is missing")
    if not _INDICES.fullmatch(indices):
        raise AllocationError(f"has an unreadable card allocation: {names.index} is {quoted(indices)}")
    cards = tuple(CardRef(int(index)) for index in indices.split(","))
    if text is not None:
        written = _decode(text, names=names)
        if written.node != node:
            raise AllocationError(f"has a card allocation made for node {quoted(written.node)}")
        if [card.index for card in written.cards] != [card.index for card in cards]:
            raise AllocationError(
                f"has an unreadable card allocation: {names.index} and {names.allocation} differ"
            )
        cards = written.cards
    if len(cards) != len(demand.cards):
        raise AllocationError(f"has a card allocation of {len(cards)} cards but needs {len(demand.cards)}")
    uuids = [card.uuid for card in cards if card.uuid]
    if len({card.index for card in cards}) != len(cards) or len(set(uuids)) != len(uuids):
        raise AllocationError("has an unreadable card allocation: a card is named twice")
    return Allocation(node=node, cards=cards, vouched=text is not None)


def _decode(text: str, *, names: Names) -> _Written:
    try:
        return _decoder.decode(text)
    except UNDECODABLE as error:
        raise AllocationError(f"has an unreadable card allocation: {names.allocation}: {error}") from error


def one_or_each(values: Sequence[int]) -> str:
    """The classic spelling of a number per card: one where all agree, else all, with commas."""
    return ",".join(str(value) for value in (values[:1] if len(set(values)) == 1 else values))
