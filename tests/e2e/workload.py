"""Nodes without a kubelet, pods that nobody starts, and what they hold by the API server's account."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from gpushare.cards import Card, NodeCards, encode_cards
from tests.build import NAMES
from tests.e2e.api import Api, Object
from tests.e2e.programs import DEADLINE, eventually

SCHEDULER = "gpushare-scheduler"
SLOTS = 32
NOBODY = "nobody/starts-this:1"


def add_node(
    api: Api,
    name: str,
    *,
    cards: Sequence[int],
    cpu: str = "16",
    labels: Mapping[str, str] | None = None,
    images: Sequence[str] = (),
) -> None:
    """A node that is ready and publishes what the device plugin would, without anything behind it."""
    listed = tuple(
        Card(index=index, uuid=f"GPU-{name}-{index}", memory=memory) for index, memory in enumerate(cards)
    )
    published = encode_cards(NodeCards(unit="MiB", slots=SLOTS, cards=listed))
    meta = {"name": name, "labels": dict(labels or {}), "annotations": {NAMES.cards: published}}
    api.create({"apiVersion": "v1", "kind": "Node", "metadata": meta})
    api.merge(f"/api/v1/nodes/{name}", {"spec": {"taints": None}})  # not ready, as every new node
    amounts = {
        "cpu": cpu,
        "memory": "64Gi",
        "pods": "250",
        NAMES.memory: str(sum(cards)),
        NAMES.count: str(len(cards)),
        NAMES.slot: str(SLOTS * len(cards)),
    }
    status = {
        "capacity": amounts,
        "allocatable": amounts,
        "conditions": [{"type": "Ready", "status": "True", "reason": "Test", "message": ""}],
        "images": [{"names": [image], "sizeBytes": 900_000_000} for image in images],
    }
    api.merge(f"/api/v1/nodes/{name}/status", {"status": status})


def container(name: str = "main", memory: int | str | None = None, **more: Any) -> Object:
    """A container that asks for units of memory, or for none."""
    limits = {} if memory is None else {NAMES.memory: str(memory)}
    return {"name": name, "image": NOBODY, "resources": {"limits": limits}, **more}


def pod(
    name: str,
    memory: int | str | None = None,
    *,
    containers: Sequence[Object] = (),
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    """A pod for our scheduler. It names no slots: admission adds them."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": dict(annotations or {}), "labels": dict(labels or {})},
        "spec": {
            "schedulerName": SCHEDULER,
            "terminationGracePeriodSeconds": 0,
            "containers": list(containers) or [container(memory=memory)],
            **spec,
        },
    }


def place(api: Api, item: Object) -> tuple[str, str]:
    """Create a pod and wait for its binding; its node and its cards."""
    return until_placed(api, api.create(item)["metadata"]["name"])


def until_placed(api: Api, name: str, *, seconds: float = DEADLINE) -> tuple[str, str]:
    """Wait for a pod's binding; its node and its cards."""
    eventually(lambda: placement(api.pod(name))[0], what=f"{name} is bound", seconds=seconds)
    return placement(api.pod(name))


def placement(item: Object) -> tuple[str, str]:
    """A pod's node and its cards' indices, empty while it waits."""
    return item["spec"].get("nodeName", ""), item["metadata"].get("annotations", {}).get(NAMES.index, "")


def waits_for(api: Api, name: str) -> str:
    """Why kube-scheduler has not placed it, in its own words; empty until it has tried."""
    conditions = api.pod(name)["status"].get("conditions", [])
    return next((each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), "")


def refused(api: Api, item: Object, *, because: str) -> None:
    """Create a pod and wait until kube-scheduler says that it finds no place, for this reason."""
    name = api.create(item)["metadata"]["name"]
    eventually(lambda: waits_for(api, name), what=f"{name} is refused")
    said = waits_for(api, name)
    assert because in said, said
    assert placement(api.pod(name)) == ("", "")


def held(pods: Sequence[Object]) -> dict[tuple[str, int], int]:
    """Units held of each card (node, index): the largest of init containers and the sum of the others.

    Counted from the pods alone, in the plainest way; good for pods without sidecars.
    """
    sums: dict[tuple[str, int], int] = defaultdict(int)
    for item in pods:
        text = item["metadata"].get("annotations", {}).get(NAMES.allocation)
        if not item["spec"].get("nodeName") or text is None:
            continue
        written = json.loads(text)
        assert written["node"] == item["spec"]["nodeName"]
        for position, card in enumerate(written["cards"]):
            shares = written["containers"].values()
            sums[written["node"], card["index"]] += sum(
                share[position] for share in shares if position < len(share)
            )
    return dict(sums)
