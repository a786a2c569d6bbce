"""Whether every pod got what it asked for. Pure: what was seen goes in, faults and the JSON come out.

Three accounts have to agree: what the pods' specs and annotations say, what the extender has booked, and
what the containers were started with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpushare.allocation import decode_allocation
from gpushare.cards import Card
from gpushare.demand import demand_of
from gpushare.errors import AllocationError
from gpushare.names import VISIBLE_DEVICES, Names
from sandbox.demo.board import PlacedPod, ShownNode
from sandbox.demo.cluster import Environments
from sandbox.demo.script import Expected, Story


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """The cluster after the last step."""

    nodes: Sequence[ShownNode]
    pods: Sequence[PlacedPod]
    booked: Mapping[str, Mapping[int, int]]
    """Node → card → units, by the extender."""
    environments: Environments

    def card(self, *, node: str, index: int) -> Card | None:
        """One card of a node, `None` where there is none."""
        cards = (card for shown in self.nodes if shown.name == node for card in shown.cards)
        return next((card for card in cards if card.index == index), None)


def faults(seen: Seen, *, story: Story, names: Names) -> list[str]:
    """Everything that is not as it has to be, as sentences."""
    return [
        *_story_faults(seen, story=story),
        *(fault for pod in seen.pods if pod.node for fault in _pod_faults(pod, seen=seen, names=names)),
        *_card_faults(seen),
    ]


def _story_faults(seen: Seen, *, story: Story) -> Iterator[str]:
    pods = {pod.name: pod for pod in seen.pods}
    if pods.keys() != set(story.pods):
        yield f"created were {sorted(story.pods)}, there are {sorted(pods)}"
    may_wait = {expected.pod for expected in story.expected if expected.refusal}
    for pod in seen.pods:
        if not pod.is_running and pod.name not in may_wait:
            yield f"{pod.key} does not run: phase {pod.phase}, {pod.refusal or 'no reason known'}"
    for expected in story.expected:
        found = pods.get(expected.pod)
        if found is None:
            continue
        if (found.node, found.cards) != (expected.node, expected.cards):
            yield f"{found.key} is on {_place(found)} instead of {_place(expected)}"
        if found.refusal != expected.refusal:
            yield f"{found.key} was refused with {found.refusal!r} instead of {expected.refusal!r}"


def _place(where: PlacedPod | Expected) -> str:
    return f"{where.node} cards {list(where.cards)}" if where.node else "no node"


def _pod_faults(pod: PlacedPod, *, seen: Seen, names: Names) -> Iterator[str]:
    demand = demand_of(pod.spec, names)
    assert demand is not None, "only pods that ask for memory are looked at"
    asked = [share.memory for share in demand.cards]
    if asked != [pod.memory] * len(pod.cards):
        yield f"{pod.key} asks for {asked} and was given {pod.memory} on cards {list(pod.cards)}"
    try:
        allocation = decode_allocation(pod.annotations, node=pod.node, demand=demand, names=names)
    except AllocationError as error:
        yield f"{pod.key} {error}"
        return
    uuids = [card.uuid for card in allocation.cards]
    cards = [card for index in pod.cards if (card := seen.card(node=pod.node, index=index))]
    if [card.uuid for card in cards] != uuids:
        yield f"{pod.key} was given {uuids}, but cards {list(pod.cards)} of {pod.node} are others"
    environments = seen.environments.get((pod.namespace, pod.name), {})
    for container in (*(pod.spec.init_containers or ()), *(pod.spec.containers or ())):
        needs = demand.container(container.name)
        env = environments.get(container.name)
        wanted: dict[str, str | None] = {VISIBLE_DEVICES: None}
        if needs is not None:
            wanted = {
                VISIBLE_DEVICES: ",".join(uuids[: needs.slots]),
                names.index: ",".join(map(str, pod.cards[: needs.slots])),
                names.container_memory: str(needs.per_card),
                names.pod_memory: str(pod.memory),
                names.card_memory: ",".join({str(card.memory) for card in cards}),
            }
        if env is None:
            yield f"{pod.key}: container {container.name} was not started"
            continue
        for variable, value in wanted.items():
            if env.get(variable) != value:
                yield f"{pod.key}: container {container.name} has {variable}={env.get(variable)}, not {value}"


def _card_faults(seen: Seen) -> Iterator[str]:
    for node in seen.nodes:
        for card in node.cards:
            held = held_on(seen.pods, node=node.name, index=card.index)
            booked = seen.booked.get(node.name, {}).get(card.index)
            if held > card.memory:
                yield f"{node.name} card {card.index} has {card.memory} units and holds {held}"
            if booked != held:
                yield f"{node.name} card {card.index} holds {held} units, the extender has booked {booked}"


def held_on(pods: Sequence[PlacedPod], *, node: str, index: int) -> int:
    """Units that pods hold of a card, by their annotations."""
    return sum(pod.memory for pod in pods if pod.node == node and index in pod.cards)


def as_json(seen: Seen) -> dict[str, Any]:
    """The demo's result for programs."""
    return {
        "pods": [
            {
                "namespace": pod.namespace,
                "name": pod.name,
                "node": pod.node,
                "cards": list(pod.cards),
                "uuids": [
                    card.uuid for index in pod.cards if (card := seen.card(node=pod.node, index=index))
                ],
                "memory": pod.memory,
                "env": seen.environments.get((pod.namespace, pod.name), {}),
            }
            for pod in seen.pods
            if pod.node
        ],
        "refused": [
            {"namespace": pod.namespace, "name": pod.name, "reason": pod.refusal}
            for pod in seen.pods
            if not pod.node
        ],
        "nodes": [
            {
                "name": node.name,
                "cards": [
                    {
                        "index": card.index,
                        "uuid": card.uuid,
                        "memory": card.memory,
                        "booked": seen.booked.get(node.name, {}).get(card.index, 0),
                    }
                    for card in node.cards
                ],
            }
            for node in seen.nodes
        ],
    }
