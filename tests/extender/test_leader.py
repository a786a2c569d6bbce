"""Active and standby (V7): one replica answers, and one that may have lost the lease writes nothing."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from extender.binder import DEADLINE
from kubeapi.leases import LeaseTiming, pod_namespace
from sandbox.apiserver import Rule
from tests.extender.cluster import PREFIX, Cluster
from tests.extender.electing import Clock, pair, replica
from tests.waiting import until


async def test_V7_only_the_leader_is_ready_and_binds(cluster: Cluster) -> None:
    async with pair(cluster, Clock()) as (leader, standby):
        said = "not the leader: first holds lease kube-system/gpushare"
        assert await leader.readiness() == (200, "ok")
        assert await standby.readiness() == (503, said)
        pod = await cluster.pod("a", 1000)
        answer = await standby.filter(pod, nodes=["n1"])
        assert (answer["Error"], answer["NodeNames"]) == (said, None)
        assert await standby.bind(pod, node="n1") == said
        assert "nodeName" not in (await cluster.live("a"))["spec"]
        assert await leader.fits(pod, node="n1")
        assert await leader.bind(pod, node="n1") == ""
        await standby.seen(pod["metadata"]["uid"])
        assert await standby.free("n1") == [7192]  # it follows, and can be read


async def test_a_clean_stop_hands_over_at_once(cluster: Cluster) -> None:
    clock = Clock()
    await cluster.node("n1", cards=[8192])
    async with contextlib.AsyncExitStack() as running:
        async with replica(cluster, "first", clock) as first:
            await first.leading()
            second = await running.enter_async_context(replica(cluster, "second", clock))
            await until(lambda: second.elector.holder == "first", what="the lease is seen")
        await second.leading()
        assert clock.now == 0.0
        assert await second.readiness() == (200, "ok")


async def test_V7_a_leader_that_cannot_renew_answers_no_more_before_another_does(cluster: Cluster) -> None:
    clock = Clock()
    async with pair(cluster, clock) as (first, second):
        pod = await cluster.pod("a", 6000)
        cut = cluster.faults.add(Rule(action="hold", client="first/leader-election"))
        await cut.struck()
        clock.now = 9.0
        assert first.elector.term is not None
        clock.now = 11.0
        lost = "not the leader: lease kube-system/gpushare could not be renewed"
        assert await first.readiness() == (503, lost)
        assert await first.bind(pod, node="n1") == lost
        assert (await second.readiness())[0] == 503  # nobody: the lease is the first one's for 4 s yet
        await second.succeeding(clock)
        assert clock.now >= 15.0
        assert await second.bind(pod, node="n1") == ""
        cluster.faults.clear()
        await until(lambda: first.elector.holder == "second", what="the old leader sees the new one")
        assert await first.readiness() == (
            503,
            "not the leader: second holds lease kube-system/gpushare",
        )


async def test_V7_a_bind_in_flight_when_the_lease_is_lost_writes_nothing(cluster: Cluster) -> None:
    clock = Clock()
    async with pair(cluster, clock) as (first, second):
        pod = await cluster.pod("a", 6000)
        await until(lambda: pod["metadata"]["uid"] in first.extender.waiting, what="the pod is seen")
        lease = cluster.faults.add(Rule(action="hold", client="first/leader-election"))
        await asyncio.wait_for(lease.struck(), 10)
        # It has been let in, and is looking at the node's pods when it stops being the leader.
        slow = cluster.faults.add(Rule(action="hold", client="first", method="GET", path="/pods"))
        bind = asyncio.create_task(first.bind(pod, node="n1"))
        await asyncio.wait_for(slow.struck(), 10)
        clock.now = 10.1
        cluster.faults.remove(slow.number)
        assert await bind == "not the leader any more"
        await second.succeeding(clock)
        cluster.faults.clear()
        assert "nodeName" not in (await cluster.live("a"))["spec"]
        assert await first.free("n1") == [8192]
        assert await second.bind(pod, node="n1") == ""
        await first.seen(pod["metadata"]["uid"])
        assert await first.free("n1") == [2192]


async def test_a_replica_competes_once_it_has_something_to_answer_from(cluster: Cluster) -> None:
    held = cluster.faults.add(Rule(action="hold", method="GET", path="/api/v1/pods", client="first"))
    async with replica(cluster, "first", Clock()) as first, replica(cluster, "second", Clock()) as second:
        await asyncio.wait_for(held.struck(), 5)
        await second.leading()
        assert (await first.readiness())[0] == 503
        assert "not the leader: nobody" in await first.bind(await cluster.pod("a", 1000), node="n1")
        cluster.faults.clear()
        await until(lambda: first.elector.holder == "second", what="it competes")


async def test_what_the_lease_says(cluster: Cluster) -> None:
    async with replica(cluster, "first", Clock()) as first:
        await first.leading()
        (lease,) = cluster.api.objects("leases")
        assert lease["metadata"]["name"] == "gpushare"
        assert lease["metadata"]["namespace"] == "kube-system"
        spec = lease["spec"]
        assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("first", 15)
        assert spec["leaseTransitions"] == 0

        def renewed() -> bool:
            (now,) = cluster.api.objects("leases")
            return bool(now["spec"]["renewTime"] > spec["renewTime"])

        await until(renewed, what="the lease is renewed")
    (lease,) = cluster.api.objects("leases")
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseDurationSeconds"]) == ("", 1)


async def test_without_a_lease_every_replica_answers(cluster: Cluster) -> None:
    await cluster.node("n1", cards=[8192])
    async with cluster.extender() as first, cluster.extender(client="other-replica") as second:
        for each in (first, second):
            assert (await each.http.get(f"{each.url}/readyz")).text == "ok"
            assert (await each.post(f"{PREFIX}/bind", b"{}")).status_code == 200
    assert cluster.api.objects("leases") == []


def test_a_bind_ends_before_another_replica_can_begin() -> None:
    """It is let in at the last moment of a term; its last read comes 0.4 s after its deadline."""
    timing = LeaseTiming()
    assert timing.duration - timing.renew_deadline > DEADLINE + 0.4


def test_the_leases_namespace_is_the_pods_own(tmp_path: Path) -> None:
    assert pod_namespace(tmp_path) == "kube-system"
    (tmp_path / "namespace").write_text("gpushare\n")
    assert pod_namespace(tmp_path) == "gpushare"
