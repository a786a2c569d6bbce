"""What is so, read from the API server's objects and computed in the plainest way: no product arithmetic.

The needs of the few kinds of pods are written down by hand.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gpushare.cards import Card
from tests import build
from tests.build import NAMES, container

SLOTS = 3

Needs = tuple[tuple[int, int], ...]
"""(units, slots) per card position."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of pod."""

    asked: Mapping[str, Any]
    """Options of `build.pod`."""
    needs: Needs
    containers: Mapping[str, list[int]]
    """What the allocation says of each container."""


KINDS: Mapping[str, Kind] = {
    "small": Kind(asked={"memory": 3}, needs=((3, 1),), containers={"main": [3]}),
    "half": Kind(asked={"memory": 6}, needs=((6, 1),), containers={"main": [6]}),
    "large": Kind(asked={"memory": 9}, needs=((9, 1),), containers={"main": [9]}),
    "two-cards": Kind(asked={"memory": 8, "slots": 2}, needs=((4, 1), (4, 1)), containers={"main": [4, 4]}),
    "init": Kind(
        asked={
            "init": [container("i", memory=6), container("s", memory=1, sidecar=True)],
            "containers": [container("c", memory=2)],
        },
        needs=((6, 2),),
        containers={"i": [6], "s": [1], "c": [2]},
    ),
    "sidecar-first": Kind(
        asked={
            "init": [container("s", memory=1, sidecar=True), container("i", memory=5)],
            "containers": [container("c", memory=3), container("log")],
        },
        needs=((6, 2),),
        containers={"s": [1], "i": [5], "c": [3]},
    ),
    "wide-and-narrow": Kind(
        asked={"containers": [container("wide", memory=6, slots=2), container("narrow", memory=2)]},
        needs=((5, 2), (3, 1)),
        containers={"wide": [3, 3], "narrow": [2]},
    ),
    "zero": Kind(asked={"memory": 0}, needs=(), containers={}),
}

Pod = Mapping[str, Any]
"""As the API server has it."""


def kind_of(pod: Pod) -> Kind:
    """Pods are named after their kind."""
    return KINDS[pod["metadata"]["name"].rpartition("-")[0]]


def is_live(pod: Pod) -> bool:
    return pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")


def node_of(pod: Pod) -> str:
    node: str = pod["spec"].get("nodeName", "")
    return node


def uid_of(pod: Pod) -> str:
    uid: str = pod["metadata"]["uid"]
    return uid


def allocation(pod: Pod) -> dict[str, Any]:
    """The JSON annotation of a bound pod."""
    found: dict[str, Any] = json.loads(pod["metadata"]["annotations"][NAMES.allocation])
    return found


def check_complete(pod: Pod) -> None:
    """A bound pod says all that the node side and existing tools read, and says it right."""
    kind, annotations = kind_of(pod), pod["metadata"].get("annotations", {})
    if not kind.needs:
        assert NAMES.allocation not in annotations
        return
    written = allocation(pod)
    assert written["node"] == node_of(pod)
    assert written["containers"] == kind.containers
    assert len({card["uuid"] for card in written["cards"]}) == len(kind.needs)
    assert annotations[NAMES.index] == ",".join(str(card["index"]) for card in written["cards"])
    amounts = [str(memory) for memory, _ in kind.needs]
    assert annotations[NAMES.pod_memory] in (amounts[0] if len(set(amounts)) == 1 else "", ",".join(amounts))
    assert annotations[NAMES.card_memory]
    assert annotations[NAMES.assume_time].isdigit()
    assert annotations[NAMES.assigned] == "false"


def on_cards(pod: Pod, *, written: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    """(UUID, units, slots) that a bound pod holds, by its allocation."""
    refs = written["cards"] if kind_of(pod).needs else []
    return [(ref["uuid"], *need) for ref, need in zip(refs, kind_of(pod).needs, strict=True)]


def totals(pods: Iterable[Pod], *, written: Mapping[str, Any]) -> dict[tuple[str, str], tuple[int, int]]:
    """(units, slots) by (node, card UUID); `written` has the allocation of each pod by UID."""
    memory: Counter[tuple[str, str]] = Counter()
    slots: Counter[tuple[str, str]] = Counter()
    for pod in pods:
        for uuid, units, wanted in on_cards(pod, written=written[uid_of(pod)]):
            memory[node_of(pod), uuid] += units
            slots[node_of(pod), uuid] += wanted
    return {key: (memory[key], slots[key]) for key in memory}


State = Literal["ok", "unit", "garbage", "zeroed"]
"""What a node publishes: its cards, another unit, nonsense, or nothing, as its kubelet registered anew."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """A node as its plugin publishes it."""

    cards: tuple[Card, ...]
    state: State = "ok"

    @property
    def open_cards(self) -> tuple[Card, ...]:
        """The cards that new pods may get, as far as the node goes."""
        return tuple(card for card in self.cards if card.healthy) if self.state == "ok" else ()


def node_body(name: str, published: Published) -> dict[str, Any]:
    """The node's object; what it does not publish is `None`, as a merge patch removes it."""
    unit = "GiB" if published.state == "unit" else "MiB"
    node = build.node(name, cards=published.cards, unit=unit, slots=SLOTS)
    annotations: dict[str, str | None] = dict(node.annotations)
    capacity: dict[str, str | None] = {key: str(value) for key, value in node.capacity.items()}
    if published.state == "garbage":
        annotations[NAMES.cards] = '{"unit":"MiB","cards":['
    if published.state == "zeroed":
        annotations, capacity = dict.fromkeys(annotations), dict.fromkeys(capacity)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": annotations},
        "status": {"capacity": {"cpu": "8", "memory": "64Gi", "pods": "110"} | capacity},
    }
