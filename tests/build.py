"""Builders of the objects that tests are about, so that a test only says what matters to it.

`node("n1", cards=[8192, 16384])` and `pod("a", memory=3000, on="n1", cards=[1])` are the notations
`n1 [8192,16384]` and `A 3000@1` of the cases. `wire` turns either into the JSON that the API server sends.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gpushare.allocation import allocation_annotations
from gpushare.cards import Card, NodeCards, encode_cards
from gpushare.demand import Demand, demand_of
from gpushare.names import Names
from gpushare.objects import (
    Container,
    Node,
    NodeAddress,
    NodeStatus,
    ObjectMeta,
    Pod,
    PodSpec,
    PodStatus,
    Resources,
    SchedulingGate,
)

NAMES = Names.of()

_uids = itertools.count(1)


def card(
    index: int = 0, *, memory: int, node: str = "n1", uuid: str | None = None, healthy: bool = True
) -> Card:
    """A card with the UUID that `pod(..., cards=[index])` will name, unless another is given."""
    return Card(
        index=index, uuid=f"GPU-{node}-{index}" if uuid is None else uuid, memory=memory, healthy=healthy
    )


def node(
    name: str = "n1",
    *,
    cards: Sequence[int | Card],
    slots: int = 32,
    unit: str = "MiB",
    classic: bool = False,
    address: str = "",
) -> Node:
    """A node with cards of these sizes; a `classic` one publishes only its totals, as the old plugin does."""
    all_cards = tuple(
        card(index, memory=item, node=name) if isinstance(item, int) else item
        for index, item in enumerate(cards)
    )
    capacity: dict[str, str | int | float] = {
        NAMES.memory: str(sum(item.memory for item in all_cards)),
        NAMES.count: str(len(all_cards)),
    }
    annotations = {NAMES.cards: encode_cards(NodeCards(unit=unit, slots=slots, cards=all_cards))}
    return Node(
        metadata=ObjectMeta(name=name, annotations=None if classic else annotations),
        status=NodeStatus(
            capacity=capacity if classic else capacity | {NAMES.slot: str(slots * len(cards))},
            addresses=(NodeAddress("Hostname", name), NodeAddress("InternalIP", address))
            if address
            else None,
        ),
    )


def container(
    name: str = "main",
    *,
    memory: int | str | None = None,
    slots: int | str | None = None,
    sidecar: bool = False,
) -> Container:
    """A container; `sidecar` only means something among the init containers."""
    asked = {NAMES.memory: memory, NAMES.slot: slots}
    limits: dict[str, str | int | float] = {
        key: str(value) for key, value in asked.items() if value is not None
    }
    return Container(
        name=name,
        resources=Resources(limits=limits or None),
        restart_policy="Always" if sidecar else None,
    )


def demand(pod: Pod) -> Demand:
    """The demand of a pod that is known to ask for memory."""
    found = demand_of(pod.spec, NAMES)
    assert found is not None, f"{pod.key} asks for no memory"
    return found


def pod(
    name: str = "a",
    *,
    memory: int | str | None = None,
    slots: int | str | None = None,
    containers: Sequence[Container] | None = None,
    init: Sequence[Container] = (),
    uid: str | None = None,
    on: str = "",
    cards: Sequence[int | Card] | None = None,
    annotations: Mapping[str, str] | None = None,
    phase: str = "Pending",
    deleting: bool = False,
    priority: int | None = None,
    created: str | None = None,
    gates: Sequence[str] = (),
    nominated: str = "",
) -> Pod:
    """A pod of one container asking for `memory` and `slots`, or of the given `containers`.

    `on` binds it to a node. With `cards` it also carries what our Binding would have written for these
    cards of that node (numbers name them as `node` builds them); `annotations` come on top. Every pod has
    its own UID unless one is given.
    """
    spec = PodSpec(
        node_name=on or None,
        init_containers=tuple(init) or None,
        containers=tuple(containers or (container(memory=memory, slots=slots),)),
        priority=priority,
        scheduling_gates=tuple(SchedulingGate(name=name) for name in gates) or None,
    )
    written: dict[str, str] = {}
    if cards is not None:
        chosen = [card(item, memory=1, node=on) if isinstance(item, int) else item for item in cards]
        asked = demand(Pod(spec=spec))
        written = allocation_annotations(node=on, cards=chosen, demand=asked, now_ns=1, names=NAMES)
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=uid or f"uid-{name}-{next(_uids)}",
            creation_timestamp=created,
            deletion_timestamp="2026-01-01T00:00:00Z" if deleting else None,
            annotations=(written | dict(annotations or {})) or None,
        ),
        spec=spec,
        status=PodStatus(phase=phase, nominated_node_name=nominated or None),
    )


def wire(obj: Pod | Node) -> dict[str, Any]:
    """The same object as decoded JSON, absent parts as `null` as Go writes them."""
    decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(obj))
    return decoded
