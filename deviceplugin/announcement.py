"""What the plugin tells kubelet and the cluster about the node's cards: pure translations.

To kubelet: a few slots per card, since a device per unit of memory neither fits into kubelet's 4 MiB
message nor survives its bookkeeping (the square of the number of devices, since 1.36); or, in units mode,
such units all the same. To the cluster: the node annotation and the plain capacities.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Set

from deviceplugin.holdings import units_beside, units_on
from deviceplugin.kubeletapi import deviceplugin_v1beta1_pb2 as v1beta1
from deviceplugin.slots import slot_id
from gpushare.bookings import Booking
from gpushare.cards import NodeCards
from gpushare.names import Names

HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"
"""kubelet's own words (device plugin API v1beta1, 1.36)."""

_FRAME_BYTES = 4
"""Tag and length of a device and of its ID, as long as both are below 128 bytes (protobuf)."""


def slot_ids(cards: NodeCards) -> Iterator[str]:
    """The IDs of all slots."""
    return (slot_id(card.uuid, number=number) for card in cards.cards for number in range(cards.slots))


def unit_ids(count: int) -> Iterator[str]:
    """The IDs of so many units: short, the same after every restart, and of no card in particular.

    When the node gets smaller, the last ones go.
    """
    return (str(number) for number in range(count))


def device_list(cards: NodeCards) -> v1beta1.ListAndWatchResponse:
    """All slots of all cards; a card's slots are healthy or not together."""
    topology = _topology(cards)
    return v1beta1.ListAndWatchResponse(
        devices=[
            v1beta1.Device(
                ID=slot_id(card.uuid, number=number),
                health=HEALTHY if card.healthy else UNHEALTHY,
                topology=topology,
            )
            for card in cards.cards
            for number in range(cards.slots)
        ]
    )


def unit_list(cards: NodeCards, *, down: Collection[str]) -> v1beta1.ListAndWatchResponse:
    """All units of all cards, those that are `down` not healthy."""
    topology = _topology(cards)
    return v1beta1.ListAndWatchResponse(
        devices=[
            v1beta1.Device(ID=unit, health=UNHEALTHY if unit in down else HEALTHY, topology=topology)
            for unit in unit_ids(cards.memory)
        ]
    )


def units_down(
    cards: NodeCards, *, bookings: Iterable[Booking], held: Set[str], down: Set[str]
) -> frozenset[str]:
    """Choose the units to report as not healthy: as many as the cards that are out of order have free.

    Never one that is `held`: kubelet would refuse to restart its container, whichever card that is on. Those
    that are `down` already stay so as far as possible, since every change costs kubelet; then the last come
    first.
    """
    booked = tuple(bookings)
    count = sum(
        max(0, card.memory - sum(units_on(card, booking=booking) for booking in booked))
        for card in cards.cards
        if not card.healthy
    )
    free = [unit for unit in unit_ids(cards.memory) if unit not in held]
    free.sort(key=lambda unit: (unit not in down, -int(unit)))
    return frozenset(free[:count])


def list_bytes(ids: Iterable[str], *, cards: NodeCards) -> int:
    """Bytes of kubelet's message with these IDs, counted as if all devices were unhealthy."""
    rest = v1beta1.Device(health=UNHEALTHY, topology=_topology(cards)).ByteSize()
    return sum(_FRAME_BYTES + rest + len(device) for device in ids)


def _topology(cards: NodeCards) -> v1beta1.TopologyInfo | None:
    """The NUMA node, only where all cards share one.

    kubelet's Topology Manager settles on a NUMA node before it asks which slots the pod should have, and then
    offers slots of that node alone: with cards on several nodes it would insist on a card that the scheduler
    did not choose, and the pod would fail (devicemanager `filterByAffinity`, 1.36).
    """
    places = {card.numa for card in cards.cards}
    numa = next(iter(places)) if len(places) == 1 else None
    return None if numa is None else v1beta1.TopologyInfo(nodes=[v1beta1.NUMANode(ID=numa)])


def node_capacity(cards: NodeCards, *, bookings: Iterable[Booking], names: Names) -> dict[str, int]:
    """The capacities that the plugin owns on its node.

    Memory is what healthy cards have and what is still booked on others, those that are not listed any more
    included: kube-scheduler subtracts all pods' requests from it, so that its remainder stays right for the
    healthy cards.
    """
    healthy = [card for card in cards.cards if card.healthy]
    memory = sum(card.memory for card in healthy)
    memory += sum(units_beside(healthy, booking=booking) for booking in bookings)
    return {names.memory: memory, names.count: len(cards.cards)}
