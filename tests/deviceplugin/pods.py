"""Pods as the tests write them, as JSON objects and as the structs that the plugin reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from deviceplugin.pods import NodePod
from gpushare.allocation import allocation_annotations
from gpushare.cards import Card
from gpushare.demand import demand_of
from gpushare.names import Names

NAMES = Names.of()
NODE = "n1"


@dataclass(frozen=True, kw_only=True)
class C:
    """A container: memory in units, slots (0: it says nothing of them), and what kind it is."""

    name: str = "main"
    memory: int = 0
    slots: int = 1
    kind: str = "app"

    def manifest(self) -> dict[str, Any]:
        asked = {NAMES.memory: self.memory, NAMES.slot: self.slots} if self.memory else {}
        limits = {resource: str(amount) for resource, amount in asked.items() if amount}
        always = {"restartPolicy": "Always"} if self.kind == "sidecar" else {}
        return {"name": self.name, "image": "app", "resources": {"limits": limits}, **always}


def manifest(name: str, *containers: C, annotations: Mapping[str, str] | None = None) -> dict[str, Any]:
    """An unbound pod."""
    return {
        "metadata": {"name": name, "namespace": "default", "annotations": dict(annotations or {})},
        "spec": {
            "initContainers": [each.manifest() for each in containers if each.kind != "app"],
            "containers": [each.manifest() for each in containers if each.kind == "app"],
        },
    }


def binding_annotations(pod: Mapping[str, Any], *, cards: Sequence[Card], node: str = NODE) -> dict[str, str]:
    """What the extender writes into the Binding that gives these cards to the pod."""
    demand = demand_of(msgspec.convert(pod, NodePod).spec, NAMES)
    assert demand is not None
    return allocation_annotations(node=node, cards=cards, demand=demand, now_ns=1, names=NAMES)


def bound(
    name: str,
    *containers: C,
    cards: Sequence[Card] = (),
    uid: str = "",
    phase: str = "Pending",
    node: str = NODE,
    **annotations: str,
) -> NodePod:
    """A bound pod as the API server shows it; without `cards` it was bound past the scheduler."""
    pod = manifest(name, *containers)
    given = binding_annotations(pod, cards=cards, node=node) if cards else {}
    pod["metadata"] |= {"uid": uid or f"uid-{name}", "annotations": given | annotations}
    pod["spec"]["nodeName"] = node
    pod["status"] = {"phase": phase}
    return msgspec.convert(pod, NodePod)


def card(index: int, *, memory: int = 16000, uuid: str = "", **more: Any) -> Card:
    """A card with a UUID that tells its index."""
    return Card(index=index, uuid=uuid or f"GPU-{index}", memory=memory, **more)
