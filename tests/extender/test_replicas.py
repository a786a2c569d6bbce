"""Two replicas of which one is active at a time (case V7), and what a late watch must not cost."""

from __future__ import annotations

import asyncio

import pytest

from extender.verification import QUIET
from sandbox.apiserver import Rule
from tests.extender.cluster import Cluster, Scheduler, known
from tests.waiting import until


async def test_V7_what_the_other_replica_bound_counts_though_the_watch_has_not_shown_it(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    await cluster.node("n1", cards=[10000])
    first, second = await cluster.pod("a", 6000), await cluster.pod("b", 6000)
    async with cluster.extender(client="replica-2") as replica:
        await known(scheduler, "n1")
        await known(replica, "n1")
        frozen = cluster.faults.add(Rule(action="freeze", client="replica-2"))
        assert await scheduler.bind(first, node="n1") == ""
        assert await replica.fits(second, node="n1"), "its watch is late"
        assert "cannot take 6000 units" in await replica.bind(second, node="n1")
        assert await replica.free("n1") == [4000]
        cluster.faults.remove(frozen.number)
        await replica.seen(first["metadata"]["uid"])
        await cluster.delete("a")
        await replica.released(first["metadata"]["uid"])
        assert await replica.bind(second, node="n1") == ""


async def test_V7_a_list_that_is_older_than_the_watch_brings_nobody_back(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    await cluster.node("n1", cards=[10000])
    await known(scheduler, "n1")
    gone = await cluster.pod("gone", 6000)
    assert await scheduler.bind(gone, node="n1") == ""
    await scheduler.seen(gone["metadata"]["uid"])
    scheduler.extender.became_active()
    held = cluster.faults.add(
        Rule(action="hold", when="after", method="GET", path="^/api/v1/pods$", client="gpushare-extender")
    )
    bind = asyncio.create_task(scheduler.bind(await cluster.pod("b", 6000), node="n1"))
    await asyncio.wait_for(held.struck(), 5)
    await cluster.delete("gone")
    await scheduler.released(gone["metadata"]["uid"])
    cluster.faults.remove(held.number)
    assert await bind == ""
    assert await scheduler.free("n1") == [4000]


async def test_a_node_is_read_once_for_many_binds(cluster: Cluster, scheduler: Scheduler) -> None:
    await cluster.node("n1", cards=[10000])
    await known(scheduler, "n1")
    lists = cluster.faults.add(Rule(action="delay", method="GET", path="^/api/v1/pods$"))
    pods = [await cluster.pod(f"p{number}", 1000) for number in range(10)]
    assert set(await asyncio.gather(*(scheduler.bind(pod, node="n1") for pod in pods[:5]))) == {""}
    assert set(await asyncio.gather(*(scheduler.bind(pod, node="n1") for pod in pods[5:]))) == {""}
    assert lists.hits == 1


async def test_without_a_look_at_the_node_nothing_is_bound(cluster: Cluster, scheduler: Scheduler) -> None:
    await cluster.node("n1", cards=[10000])
    await known(scheduler, "n1")
    pod = await cluster.pod("a", 6000)
    failing = cluster.faults.add(
        Rule(action="answer", status=500, message="etcd is away", method="GET", path="^/api/v1/pods$")
    )
    assert "etcd is away" in await scheduler.bind(pod, node="n1")
    assert await scheduler.free("n1") == [10000]
    cluster.faults.remove(failing.number)
    assert await scheduler.bind(pod, node="n1") == ""


def test_a_pause_that_no_change_of_leader_fits_into() -> None:
    assert QUIET <= 2.0


@pytest.mark.parametrize("gone", ["before the list", "never"])
async def test_a_pod_bound_during_a_relist_is_kept_and_asked_for(
    cluster: Cluster, scheduler: Scheduler, gone: str
) -> None:
    """Its list was asked for before the bind and taken after the pod had gone: no event will tell."""
    await cluster.node("n1", cards=[10000])
    await known(scheduler, "n1")
    lists = scheduler.extender.relists
    held = cluster.faults.add(
        Rule(action="hold", method="GET", path="^/api/v1/pods$", client="gpushare-extender", count=1)
    )
    cluster.faults.expire_history()
    cluster.faults.cut_watches(client="gpushare-extender")
    await asyncio.wait_for(held.struck(), 5)
    pod = await cluster.pod("a", 6000)
    assert await scheduler.bind(pod, node="n1") == ""
    if gone == "before the list":
        await cluster.delete("a")
    cluster.faults.remove(held.number)
    await until(lambda: scheduler.extender.relists > lists, what="relisted")
    if gone == "before the list":
        await scheduler.released(pod["metadata"]["uid"])
        assert await scheduler.free("n1") == [10000]
    else:
        await scheduler.seen(pod["metadata"]["uid"])
        assert await scheduler.free("n1") == [4000]
