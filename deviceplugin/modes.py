"""What kubelet counts: slots of cards, or units of memory. Everything that depends on it is one `Mode`.

*Slots* are a few devices per card, whose IDs name it; memory is a plain capacity of the node. *Units* are the
classic way, for clusters that allow no admission changes: one device per unit of memory, whose IDs name no
card, so that pods need no slot; a container then has one card, and kubelet keeps the books of the memory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from deviceplugin.announcement import (
    device_list,
    list_bytes,
    node_capacity,
    slot_ids,
    unit_ids,
    unit_list,
    units_down,
)
from deviceplugin.errors import ListTooLargeError
from deviceplugin.kubeletapi import deviceplugin_v1beta1_pb2 as v1beta1
from gpushare.bookings import Booking
from gpushare.cards import UNITS, UNLIMITED_SLOTS, NodeCards
from gpushare.names import Names

DEFAULT_SLOTS = 32
"""Slots per card: how many containers may see it."""
DEFAULT_MOST_DEVICES = 4096
"""Every new or changed ID costs kubelet a walk over all allocated ones (1.36): 16,384 blocked it for 27 s."""
MOST_BYTES = 4 * 1024 * 1024
"""What kubelet receives in one message (1.36); it cannot be changed."""


class Mode(Protocol):
    """What depends on the resource that kubelet counts."""

    names: Names
    resource: str
    """What is registered with kubelet."""
    slots: int
    """Slots per card that the node publishes to the scheduler."""
    ids_name_cards: bool
    """Whether a device's ID says which card it is of: then kubelet asks us which IDs to take."""

    def check(self, cards: NodeCards) -> None:
        """Raise `ListTooLargeError` if kubelet should not be given a list of these cards."""

    async def devices(self, cards: NodeCards) -> v1beta1.ListAndWatchResponse:
        """The list for kubelet."""

    def capacity(self, cards: NodeCards, *, bookings: Iterable[Booking]) -> dict[str, int]:
        """The capacities of the node that are ours to write; kubelet writes those it counts."""


class Slots:
    """The mode for everybody who can have a slot added to their pods."""

    ids_name_cards = True

    def __init__(
        self, *, names: Names, slots: int = DEFAULT_SLOTS, most_devices: int = DEFAULT_MOST_DEVICES
    ) -> None:
        self.resource = names.slot
        self.slots = slots
        self.names = names
        self._most_devices = most_devices

    def check(self, cards: NodeCards) -> None:
        count, size = len(cards.cards) * self.slots, list_bytes(slot_ids(cards), cards=cards)
        if _is_too_large(count, size=size, most_devices=self._most_devices):
            raise ListTooLargeError(
                f"--slots {self.slots} a card {_limits(count, size=size, most_devices=self._most_devices)}; "
                "choose fewer --slots"
            )

    async def devices(self, cards: NodeCards) -> v1beta1.ListAndWatchResponse:
        return device_list(cards)

    def capacity(self, cards: NodeCards, *, bookings: Iterable[Booking]) -> dict[str, int]:
        return node_capacity(cards, bookings=bookings, names=self.names)


class Units:
    """The classic mode. Which units are unhealthy is decided anew with every list.

    No unit belongs to a card, and kubelet refuses to restart a container whose units are not healthy. So of a
    card that is out of order only those units are reported that nobody holds, as many as it has free; what
    is left for the scheduler is the sum of the healthy cards and what is still booked on the others.
    """

    ids_name_cards = False
    slots = UNLIMITED_SLOTS

    def __init__(
        self,
        *,
        names: Names,
        bookings: Callable[[], Iterable[Booking]],
        held: Callable[[], Awaitable[frozenset[str]]],
        most_devices: int = DEFAULT_MOST_DEVICES,
    ) -> None:
        """`bookings` are those of the node's live pods, `held` the units that kubelet has handed out."""
        self.resource = names.memory
        self.names = names
        self._bookings = bookings
        self._held = held
        self._most_devices = most_devices
        self._down: frozenset[str] = frozenset()

    def check(self, cards: NodeCards) -> None:
        count, size = cards.memory, list_bytes(unit_ids(cards.memory), cards=cards)
        if _is_too_large(count, size=size, most_devices=self._most_devices):
            limits = _limits(count, size=size, most_devices=self._most_devices)
            raise ListTooLargeError(f"one device per {cards.unit} {limits}; {self._remedy(cards)}")

    def _remedy(self, cards: NodeCards) -> str:
        larger = {unit: size for unit, size in UNITS.items() if size > UNITS[cards.unit]}
        for unit, size in sorted(larger.items(), key=lambda item: item[1]):
            count = sum(card.memory * UNITS[cards.unit] // size for card in cards.cards)
            new_size = list_bytes(unit_ids(count), cards=cards)
            if not _is_too_large(count, size=new_size, most_devices=self._most_devices):
                return (
                    f"the smallest unit that works is {unit}, with {count} devices: give --unit {unit} to "
                    "all programs, or choose --mode slots"
                )
        return "no unit is large enough: choose --mode slots"

    async def devices(self, cards: NodeCards) -> v1beta1.ListAndWatchResponse:
        if all(card.healthy for card in cards.cards):
            self._down = frozenset()
        else:
            held = await self._held()
            self._down = units_down(cards, bookings=self._bookings(), held=held, down=self._down)
        return unit_list(cards, down=self._down)

    def capacity(self, cards: NodeCards, *, bookings: Iterable[Booking]) -> dict[str, int]:
        capacity = node_capacity(cards, bookings=bookings, names=self.names)
        del capacity[self.resource]
        return capacity


def _is_too_large(count: int, *, size: int, most_devices: int) -> bool:
    return count > most_devices or size > MOST_BYTES


def _limits(count: int, *, size: int, most_devices: int) -> str:
    return (
        f"makes {count} devices, a list of {size} bytes: --max-devices allows {most_devices} devices, and "
        f"kubelet receives {MOST_BYTES} bytes"
    )
