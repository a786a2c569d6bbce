"""bind (cases V…): one write, one charge, and what happens when answers get lost."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from sandbox.apiserver import Rule
from tests.build import NAMES, container
from tests.extender.cluster import PODS, Cluster, Scheduler
from tests.waiting import until


async def ready(cluster: Cluster, scheduler: Scheduler, **cards: list[int]) -> None:
    for name, sizes in cards.items():
        await cluster.node(name, cards=sizes)
    await until(lambda: set(cards) <= set(scheduler.extender.ledger.known_nodes()), what="nodes seen")


def bound_to(pod: dict[str, Any]) -> str | None:
    node: str | None = pod["spec"].get("nodeName")
    return node


async def test_V2_the_error_names_request_node_and_what_is_free(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    await ready(cluster, scheduler, n1=[8192, 4096])
    error = await scheduler.bind(await cluster.pod("a", 8193), node="n1")
    assert error == (
        "node n1 cannot take 8193 units (GPU memory request is larger than any card of the node); "
        "free per card: card 0: 8192, card 1: 4096"
    )
    assert bound_to(await cluster.live("a")) is None


async def test_node_and_card_land_in_one_write(cluster: Cluster, scheduler: Scheduler) -> None:
    await ready(cluster, scheduler, n1=[8192, 16384])
    containers = [container("main", memory=3000), container("log"), container("aux", memory=1000)]
    pod = await cluster.pod("a", containers=containers)
    before = int(pod["metadata"]["resourceVersion"])
    assert await scheduler.bind(pod, node="n1") == ""
    live = await cluster.live("a")
    assert int(live["metadata"]["resourceVersion"]) == before + 1
    assert bound_to(live) == "n1"
    annotations = live["metadata"]["annotations"]
    assert annotations.pop(NAMES.assume_time).isdigit()
    assert annotations == {
        "ALIYUN_COM_GPU_MEM_IDX": "0",
        "ALIYUN_COM_GPU_MEM_POD": "4000",
        "ALIYUN_COM_GPU_MEM_DEV": "8192",
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "false",
        "aliyun.com/gpu-allocation": (
            '{"node":"n1","cards":[{"index":0,"uuid":"GPU-n1-0"}],"containers":{"main":[3000],"aux":[1000]}}'
        ),
    }


@pytest.mark.parametrize("standing", ["seen", "bound"])
async def test_V3_binding_again_is_fine_and_charges_once(
    cluster: Cluster, scheduler: Scheduler, standing: str
) -> None:
    await ready(cluster, scheduler, n1=[8192, 8192])
    pod = await cluster.pod("a", 3000)
    if standing == "bound":  # the watch is late
        cluster.faults.add(Rule(action="freeze", client="gpushare-extender"))
    assert await scheduler.bind(pod, node="n1") == ""
    await scheduler.seen(pod["metadata"]["uid"], standing=standing)
    version = (await cluster.live("a"))["metadata"]["resourceVersion"]
    assert await scheduler.bind(pod, node="n1") == ""
    assert (await cluster.live("a"))["metadata"]["resourceVersion"] == version
    assert await scheduler.free("n1") == [5192, 8192]


async def test_V3_two_binds_of_one_pod_at_once(cluster: Cluster, scheduler: Scheduler) -> None:
    await ready(cluster, scheduler, n1=[8192], n2=[8192])
    pod = await cluster.pod("a", 3000)
    held = cluster.faults.add(Rule(action="hold", method="POST", path="/binding"))
    first = asyncio.create_task(scheduler.bind(pod, node="n1"))
    await asyncio.wait_for(held.struck(), 5)
    second = asyncio.create_task(scheduler.bind(pod, node="n1"))
    assert "is being bound to node n1" in await scheduler.bind(pod, node="n2")
    cluster.faults.remove(held.number)
    assert (await first, await second) == ("", "")
    assert held.hits == 1
    assert await scheduler.free("n1") == [5192]
    assert await scheduler.free("n2") == [8192]


async def test_V3_the_api_server_says_it_is_there_already(cluster: Cluster, scheduler: Scheduler) -> None:
    """The other replica bound it, to another card than this one would have chosen."""
    await ready(cluster, scheduler, n1=[8192, 4096])
    pod = await cluster.pod("a", 3000)
    cluster.faults.add(Rule(action="freeze", client="gpushare-extender"))
    async with cluster.extender(client="other-replica") as other:
        await ready(cluster, other, n1=[8192, 4096])
        assert await other.bind(pod, node="n1") == ""
    assert await scheduler.bind(pod, node="n1") == ""
    assert await cluster.card_of("a") == "1"
    assert await scheduler.free("n1") == [8192, 1096]


async def test_V3_it_is_on_another_node_already(cluster: Cluster, scheduler: Scheduler) -> None:
    await ready(cluster, scheduler, n1=[8192], n2=[8192])
    pod = await cluster.pod("a", 3000)
    cluster.faults.add(Rule(action="freeze", client="gpushare-extender"))
    async with cluster.extender(client="other-replica") as other:
        await ready(cluster, other, n1=[8192], n2=[8192])
        assert await other.bind(pod, node="n2") == ""
    assert await scheduler.bind(pod, node="n1") == "pod default/a is bound to node n2 already"
    assert await scheduler.free("n1") == [8192]
    assert await scheduler.free("n2") == [5192]


async def test_V4_a_pod_that_was_replaced_is_not_touched(cluster: Cluster, scheduler: Scheduler) -> None:
    await ready(cluster, scheduler, n1=[8192])
    old = await cluster.pod("a", 3000)
    await until(lambda: old["metadata"]["uid"] in scheduler.extender.waiting, what="old a is seen")
    cluster.faults.add(Rule(action="freeze", client="gpushare-extender"))
    await cluster.delete("a")
    new = await cluster.pod("a", 4000)
    error = await scheduler.bind(old, node="n1")
    assert "UID" in error
    live = await cluster.live("a")
    assert live["metadata"] == new["metadata"]
    assert bound_to(live) is None
    assert await scheduler.free("n1") == [8192]


async def test_V5_fields_this_client_does_not_know_survive(cluster: Cluster, scheduler: Scheduler) -> None:
    await ready(cluster, scheduler, n1=[8192])
    pod = await cluster.pod("a", 3000, annotations={"example.com/kept": "yes"})
    pod = await cluster.patch(f"{PODS}/a", {"metadata": {"labels": {"new.example.com/field": "kept"}}})
    assert await scheduler.bind(pod, node="n1") == ""
    live = await cluster.live("a")
    assert live["metadata"]["annotations"]["example.com/kept"] == "yes"
    assert live["metadata"]["labels"] == {"new.example.com/field": "kept"}
    assert live["spec"] == pod["spec"] | {"nodeName": "n1"}


async def test_V6_a_slow_api_server_and_many_binds_at_once(cluster: Cluster, scheduler: Scheduler) -> None:
    await ready(cluster, scheduler, **{f"n{number}": [10000] for number in range(4)})
    pods = [await cluster.pod(f"p{number}", 1000) for number in range(40)]
    await until(lambda: len(scheduler.extender.waiting) == 40, what="all pods seen")
    cluster.faults.add(Rule(action="delay", seconds=2.0, client="gpushare-extender", method="POST"))

    async def timed(number: int) -> tuple[str, float]:
        begun = time.monotonic()
        return await scheduler.bind(pods[number], node=f"n{number % 4}"), time.monotonic() - begun

    outcomes = await asyncio.gather(*(timed(number) for number in range(40)))
    assert [error for error, _ in outcomes] == [""] * 40
    assert max(seconds for _, seconds in outcomes) < 5
    for number in range(4):
        assert await scheduler.free(f"n{number}") == [0]


async def test_V8_a_lost_answer_is_resolved_by_reading_the_pod(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    await ready(cluster, scheduler, n1=[8192])
    pod = await cluster.pod("a", 3000)
    lost = cluster.faults.add(Rule(action="drop", when="after", method="POST", path="/binding", count=1))
    assert await scheduler.bind(pod, node="n1") == ""
    assert lost.hits == 1
    assert bound_to(await cluster.live("a")) == "n1"
    assert await scheduler.free("n1") == [5192]


async def test_V8_a_write_that_may_still_land_keeps_its_cards(cluster: Cluster, scheduler: Scheduler) -> None:
    await ready(cluster, scheduler, n1=[8192])
    pod, other = await cluster.pod("a", 6000), await cluster.pod("b", 6000)
    held = cluster.faults.add(Rule(action="hold", method="POST", path="/pods/a/binding"))
    begun = time.monotonic()
    error = await scheduler.bind(pod, node="n1")
    assert time.monotonic() - begun < 4
    assert "outcome unknown" in error
    assert not await scheduler.fits(other, node="n1")
    cluster.faults.remove(held.number)  # now it lands
    await scheduler.seen(pod["metadata"]["uid"])
    assert bound_to(await cluster.live("a")) == "n1"
    assert await scheduler.free("n1") == [2192]


async def test_an_unknown_outcome_ends_with_the_pod(cluster: Cluster, scheduler: Scheduler) -> None:
    await ready(cluster, scheduler, n1=[8192])
    pod = await cluster.pod("a", 6000)
    cluster.faults.add(Rule(action="drop", method="POST", path="/binding"))
    assert "outcome unknown" in await scheduler.bind(pod, node="n1")
    await cluster.delete("a")
    await scheduler.released(pod["metadata"]["uid"])
    assert await scheduler.free("n1") == [8192]


async def test_a_throttled_bind_waits_as_told_and_succeeds(cluster: Cluster, scheduler: Scheduler) -> None:
    await ready(cluster, scheduler, n1=[8192])
    pod = await cluster.pod("a", 6000)
    rule = Rule(action="answer", status=429, retry_after=1, method="POST", path="/binding", count=1)
    cluster.faults.add(rule)
    begun = time.monotonic()
    assert await scheduler.bind(pod, node="n1") == ""
    assert time.monotonic() - begun >= 1


async def test_a_gated_pod_is_refused_in_the_api_servers_words(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    await ready(cluster, scheduler, n1=[8192])
    body = {
        "metadata": {"name": "a"},
        "spec": {
            "schedulingGates": [{"name": "example.com/gate"}],
            "containers": [
                {"name": "m", "image": "i", "resources": {"limits": {NAMES.memory: "10", NAMES.slot: "1"}}}
            ],
        },
    }
    pod = await cluster.request("POST", PODS, body)
    assert "schedulingGates" in await scheduler.bind(pod, node="n1")
    assert await scheduler.free("n1") == [8192]


async def test_V9_a_pod_without_the_resource_is_not_bound(cluster: Cluster, scheduler: Scheduler) -> None:
    await ready(cluster, scheduler, n1=[8192])
    pod = await cluster.pod("a")
    assert "asks for no aliyun.com/gpu-mem" in await scheduler.bind(pod, node="n1")
    assert bound_to(await cluster.live("a")) is None


async def test_V12_zero_units_are_bound_without_a_card(cluster: Cluster, scheduler: Scheduler) -> None:
    await ready(cluster, scheduler, n1=[8192])
    pod = await cluster.pod("a", 0)
    assert await scheduler.bind(pod, node="n1") == ""
    live = await cluster.live("a")
    assert bound_to(live) == "n1"
    assert NAMES.index not in live["metadata"].get("annotations", {})
    await until(lambda: pod["metadata"]["uid"] not in scheduler.extender.waiting, what="a is seen bound")
    assert await scheduler.free("n1") == [8192]
    assert (await scheduler.inspect("n1"))["closed"] is None


async def test_a_pod_the_watch_has_not_shown_is_read(cluster: Cluster, scheduler: Scheduler) -> None:
    await ready(cluster, scheduler, n1=[8192])
    cluster.faults.add(Rule(action="freeze", client="gpushare-extender"))
    pod = await cluster.pod("a", 3000)
    assert await scheduler.bind(pod, node="n1") == ""
    assert await cluster.card_of("a") == "0"


async def test_binds_at_once_never_share_what_only_one_can_have(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    await ready(cluster, scheduler, n1=[10000, 10000])
    pods = [await cluster.pod(f"p{number}", 6000) for number in range(10)]
    errors = await asyncio.gather(*(scheduler.bind(pod, node="n1") for pod in pods))
    assert errors.count("") == 2
    assert await scheduler.free("n1") == [4000, 4000]


async def test_V4_a_replaced_pod_that_nobody_waits_for_is_not_touched(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    """The watch has shown neither: the pod is read, and by that name it is another one now."""
    await ready(cluster, scheduler, n1=[8192])
    cluster.faults.add(Rule(action="freeze", client="gpushare-extender"))
    old = await cluster.pod("a", 3000)
    await cluster.delete("a")
    new = await cluster.pod("a", 4000)
    assert "is gone" in await scheduler.bind(old, node="n1")
    assert (await cluster.live("a"))["metadata"] == new["metadata"]
    assert await scheduler.free("n1") == [8192]
    assert scheduler.extender.ledger.booking(new["metadata"]["uid"]) is None


@pytest.mark.parametrize(
    ("name", "namespace"), [("b", "default"), ("a", "other"), ("a/status", "default"), ("../../x", "..")]
)
async def test_a_name_that_is_not_the_uids_is_refused(
    cluster: Cluster, scheduler: Scheduler, name: str, namespace: str
) -> None:
    await ready(cluster, scheduler, n1=[8192])
    pod = await cluster.pod("a", 3000)
    await until(lambda: pod["metadata"]["uid"] in scheduler.extender.waiting, what="a is seen")
    misnamed = {"metadata": pod["metadata"] | {"name": name, "namespace": namespace}}
    assert "is not the one of UID" in await scheduler.bind(misnamed, node="n1")
    assert bound_to(await cluster.live("a")) is None
    assert await scheduler.free("n1") == [8192]


async def test_a_name_never_leads_to_another_path(cluster: Cluster, scheduler: Scheduler) -> None:
    await ready(cluster, scheduler, n1=[8192])
    seen = cluster.faults.add(
        Rule(action="delay", method="GET", client="gpushare-extender", path="^/api/v1/nodes")
    )
    stranger = {"metadata": {"name": "../../../../nodes/n1?x=", "namespace": "..", "uid": "u"}}
    assert await scheduler.bind(stranger, node="n1") != ""
    assert seen.hits == 0
