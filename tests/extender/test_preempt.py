"""preempt over HTTP (case V11), in both of kube-scheduler's shapes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from sandbox.apiserver.faults import Rule
from tests import build
from tests.extender.cluster import PODS, PREFIX, Cluster, Scheduler, manifest
from tests.waiting import until

WIRE = Path(__file__).parent.parent / "wire"
VERB = f"{PREFIX}/preempt"


def urgent(memory: int, *, priority: int = 1000, slots: int = 1) -> dict[str, Any]:
    """A waiting pod as kube-scheduler sends it."""
    return build.wire(build.pod("urgent", memory=memory, slots=slots, uid="urgent", priority=priority))


async def running(
    cluster: Cluster, scheduler: Scheduler, name: str, memory: int, *, card: int, **options: Any
) -> str:
    """A pod on a card of n1, of a priority; its UID."""
    priority = options.pop("priority", 0)
    pod = build.pod(name, memory=memory, slots=1, on="n1", cards=[card], **options)
    body = manifest(pod)
    body["spec"]["priorityClassName"] = f"p{priority}"
    created = await cluster.request("POST", PODS, body)
    uid: str = created["metadata"]["uid"]
    await scheduler.seen(uid)
    return uid


@pytest.fixture(autouse=True)
async def classes(cluster: Cluster) -> None:
    for value in (0, 5, 1000):
        await cluster.request(
            "POST",
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": f"p{value}"},
                "value": value,
            },
        )


async def preempt(
    scheduler: Scheduler,
    pod: Mapping[str, Any],
    victims: Mapping[str, Sequence[str]],
    *,
    violations: int = 0,
) -> dict[str, Any]:
    """The answer to victims by UID, as with `nodeCacheCapable: true`: nodes with their victims."""
    proposals = {
        node: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": violations}
        for node, uids in victims.items()
    }
    body = {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": proposals}
    answer = await scheduler.post(VERB, body)
    assert answer.status_code == 200, answer.text
    assert list(answer.json()) == ["NodeNameToMetaVictims"]
    found: dict[str, Any] = answer.json()["NodeNameToMetaVictims"]
    return found


def answer(*uids: str, violations: int = 0) -> dict[str, Any]:
    return {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": violations}


async def test_V11_victims_that_free_a_card_keep_their_node(cluster: Cluster, scheduler: Scheduler) -> None:
    await cluster.node("n1", cards=[10000, 10000])
    first = await running(cluster, scheduler, "v1", 6000, card=0)
    await running(cluster, scheduler, "v2", 6000, card=1)
    assert await preempt(scheduler, urgent(9000), {"n1": [first]}) == {"n1": answer(first)}
    assert await scheduler.free("n1") == [4000, 4000], "nothing is changed"


async def test_V11_a_node_where_nothing_helps_is_dropped(cluster: Cluster, scheduler: Scheduler) -> None:
    await cluster.node("n1", cards=[10000, 10000])
    await running(cluster, scheduler, "v1", 6000, card=0, priority=1000)
    small = await running(cluster, scheduler, "small", 2000, card=0)
    await running(cluster, scheduler, "v2", 5000, card=1, priority=1000)
    assert await preempt(scheduler, urgent(9000), {"n1": [small], "ghost": ["x"]}) == {}


async def test_V11_victims_on_the_wrong_card_are_replaced_by_the_one_on_the_right_card(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    await cluster.node("n1", cards=[10000, 10000])
    await running(cluster, scheduler, "v1", 6000, card=0, priority=5)
    small = await running(cluster, scheduler, "small", 2000, card=0)
    second = await running(cluster, scheduler, "v2", 6000, card=1)
    assert await preempt(scheduler, urgent(8000), {"n1": [small]}) == {"n1": answer(second)}


async def test_victims_that_hold_no_card_stay_and_violations_are_kept(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    await cluster.node("n1", cards=[10000, 10000])
    first = await running(cluster, scheduler, "v1", 6000, card=0)
    second = await running(cluster, scheduler, "v2", 6000, card=1)
    found = await preempt(scheduler, urgent(9000), {"n1": ["web", first]}, violations=2)
    assert found == {"n1": answer("web", first, violations=2)}
    small = await running(cluster, scheduler, "small", 3000, card=0)
    more = await running(cluster, scheduler, "more", 1000, card=0)
    found = await preempt(scheduler, urgent(9000), {"n1": [small, more]}, violations=2)
    assert found == {"n1": answer(second, violations=1)}, "no more than victims"


async def test_whole_pods_are_answered_with_uids(cluster: Cluster, scheduler: Scheduler) -> None:
    await cluster.node("n1", cards=[10000, 10000])
    first = await running(cluster, scheduler, "v1", 6000, card=0)
    await running(cluster, scheduler, "v2", 6000, card=1)
    victims = {"Pods": [await cluster.live("v1")], "NumPDBViolations": 1}
    body = {"Pod": urgent(9000), "NodeNameToVictims": {"n1": victims}, "NodeNameToMetaVictims": None}
    found = await scheduler.post(VERB, body)
    assert found.json() == {"NodeNameToMetaVictims": {"n1": answer(first, violations=1)}}


async def test_V12_a_pod_without_cards_keeps_its_victims(scheduler: Scheduler) -> None:
    for pod in (build.pod(memory=0, priority=1000), build.pod(priority=1000)):
        found = await preempt(scheduler, build.wire(pod), {"n1": ["a"], "n2": []})
        assert found == {"n1": answer("a")}


async def test_the_recorded_preempt(cluster: Cluster, scheduler: Scheduler) -> None:
    """20480 for the urgent pod: one node's victim fills a card, one's is on a card with a neighbour that
    may not go, and one node has no card that large."""
    recording = json.loads((WIRE / "preempt.json").read_text())
    sent = recording["body"]["NodeNameToMetaVictims"]
    uids = {node: victims["Pods"][0]["UID"] for node, victims in sent.items()}
    for name, size in {"gpu-a10-0": 24576, "gpu-a10-1": 24576, "gpu-l4-0": 16384}.items():
        await cluster.node(name, cards=[size])
    for name, node, memory, priority in (
        ("v0", "gpu-a10-0", 16384, 0),
        ("v1", "gpu-a10-1", 16384, 0),
        ("neighbour", "gpu-a10-1", 8000, 1000),
        ("v2", "gpu-l4-0", 8192, 0),
    ):
        uid = uids[node] if name.startswith("v") else name
        pod = build.pod(name, memory=memory, uid=uid, on=node, cards=[0], priority=priority)
        scheduler.extender.ledger.set_pod(pod)
    await until(lambda: len(scheduler.extender.ledger.known_nodes()) == 3, what="nodes seen")
    found = await scheduler.post(recording["path"], recording["body"])
    assert found.json() == {"NodeNameToMetaVictims": {"gpu-a10-0": answer(uids["gpu-a10-0"])}}


BAD_BODIES = [
    b"",
    b"[]",
    b"null",
    b"{}",
    b"\xff",
    b"[" * 5000,
    b'{"Pod":null,"NodeNameToMetaVictims":{}}',
    b'{"Pod":{},"NodeNameToVictims":null,"NodeNameToMetaVictims":null}',
    b'{"Pod":{},"NodeNameToMetaVictims":{"n1":null}}',
    b'{"Pod":{},"NodeNameToMetaVictims":{"n1":{"Pods":[{}]}}}',
    b'{"Pod":{},"NodeNameToMetaVictims":{"n1":{"Pods":[{"UID":""}]}}}',
    b'{"Pod":{},"NodeNameToMetaVictims":{"n1":{"Pods":[{"UID":7}]}}}',
    b'{"Pod":{},"NodeNameToMetaVictims":{"n1":{"NumPDBViolations":"many"}}}',
    b'{"Pod":{},"NodeNameToVictims":{"n1":{"Pods":[{"metadata":{}}]}}}',
    json.dumps({"Pod": build.wire(build.pod(memory="-1")), "NodeNameToMetaVictims": {}}).encode(),
]


@pytest.mark.parametrize("body", BAD_BODIES)
async def test_V1_a_bad_body_is_answered_and_survived(
    cluster: Cluster, scheduler: Scheduler, body: bytes
) -> None:
    await cluster.node("n1", cards=[10000])
    first = await running(cluster, scheduler, "v1", 6000, card=0)
    found = await scheduler.post(VERB, body)
    assert (found.status_code, bool(found.json()["error"])) == (400, True)
    assert await preempt(scheduler, urgent(9000), {"n1": [first]}) == {"n1": answer(first)}


async def test_V7_before_the_first_sync_nobody_is_evicted(cluster: Cluster) -> None:
    cluster.faults.add(Rule(action="answer", method="GET", path="/api/v1/pods"))
    async with cluster.extender(synced=False) as scheduler:
        body = {"Pod": urgent(9000), "NodeNameToMetaVictims": {"n1": answer("a")}}
        found = await scheduler.post(VERB, body)
        assert found.status_code == 400
        assert "not ready" in found.json()["error"]


async def test_null_lists_are_empty_ones(scheduler: Scheduler) -> None:
    body = {"Pod": urgent(9000), "NodeNameToMetaVictims": {"n1": {"Pods": None, "NumPDBViolations": 0}}}
    found = await scheduler.post(VERB, body)
    assert found.json() == {"NodeNameToMetaVictims": {}}
