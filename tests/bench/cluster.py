"""The clusters that are measured: nodes of 8 cards, and pods as large as real ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests import build

CARD = 24576
CARDS = 8
SLOTS = 32

_NOISE = [
    {
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": {f"f:field-{number}": {".": {}, f"k:{number}": {}} for number in range(36)},
            "f:spec": {f"f:field-{number}": {".": {}, f"k:{number}": {}} for number in range(36)},
        },
        "manager": "kube-controller-manager",
        "operation": "Update",
        "time": "2026-01-01T00:00:00Z",
    }
]
"""What a real API server sends along with every object: a pod comes to 3.5 KB."""


def names(count: int) -> list[str]:
    return [f"gpu-node-{number:04d}" for number in range(count)]


def nodes(count: int) -> Iterator[dict[str, Any]]:
    for name in names(count):
        yield {"apiVersion": "v1", "kind": "Node"} | build.wire(build.node(name, cards=[CARD] * CARDS))


def bound_pods(count: int, *, per_node: int) -> Iterator[dict[str, Any]]:
    """Bound pods on the cards of every node in turn; with 8 a node, one on every card."""
    for name in names(count):
        for index in range(per_node):
            pod = build.pod(f"{name}-{index}", memory=8000, slots=1, on=name, cards=[index % CARDS])
            yield _real(build.wire(pod), phase="Running")


def waiting_pods(count: int, *, memory: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        pod = build.pod(f"waiting-{number}", memory=memory, slots=1, uid=f"uid-waiting-{number}")
        yield _real(build.wire(pod), phase="Pending")


def _real(pod: dict[str, Any], *, phase: str) -> dict[str, Any]:
    metadata = {key: value for key, value in pod["metadata"].items() if value is not None}
    spec = {key: value for key, value in pod["spec"].items() if value is not None}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata | {"managedFields": _NOISE},
        "spec": spec,
        "status": {"phase": phase, "hostIP": "10.0.0.1", "podIP": "10.1.0.1", "qosClass": "BestEffort"},
    }
