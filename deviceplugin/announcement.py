"""What the plugin tells kubelet and the cluster about the node's cards: pure translations.

To kubelet: a few slots per card, since a device per unit of memory neither fits into kubelet's 4 MiB
message nor survives its bookkeeping (the square of the number of devices, since 1.36). To the cluster:
the node annotation and the plain capacities.
"""

from __future__ import annotations

from collections.abc import Iterable

from deviceplugin.holdings import units_on
from deviceplugin.kubeletapi import deviceplugin_v1beta1_pb2 as v1beta1
from deviceplugin.slots import slot_id
from gpushare.bookings import Booking
from gpushare.cards import NodeCards
from gpushare.names import Names

HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"
"""kubelet's own words (device plugin API v1beta1, 1.36)."""


def device_list(cards: NodeCards) -> v1beta1.ListAndWatchResponse:
    """All slots of all cards; a card's slots are healthy or not together.

    The NUMA node is named only where all cards share one. kubelet's Topology Manager settles on a NUMA
    node before it asks which slots the pod should have, and then offers slots of that node alone: with
    cards on several nodes it would insist on a card that the scheduler did not choose, and the pod would
    fail (devicemanager `filterByAffinity`, 1.36).
    """
    places = {card.numa for card in cards.cards}
    numa = next(iter(places)) if len(places) == 1 else None
    topology = None if numa is None else v1beta1.TopologyInfo(nodes=[v1beta1.NUMANode(ID=numa)])
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


def node_capacity(cards: NodeCards, *, bookings: Iterable[Booking], names: Names) -> dict[str, int]:
    """The capacities that the plugin owns on its node.

    Memory is what healthy cards have and what is still booked on the others: kube-scheduler subtracts all
    pods' requests from it, so that its remainder stays right for the healthy cards.
    """
    held = tuple(bookings)
    memory = sum(
        card.memory if card.healthy else sum(units_on(card, booking=booking) for booking in held)
        for card in cards.cards
    )
    return {names.memory: memory, names.count: len(cards.cards)}
