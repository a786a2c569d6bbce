"""Cards that are being cleared for a nominated pod (case V11), over HTTP and through the watch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpushare.refusals import Reason
from tests import build
from tests.extender.cluster import PODS, PREFIX, Cluster, Scheduler, manifest
from tests.waiting import until

Pod = dict[str, Any]
URGENT = "urgent"
NO_ROOM = str(Reason.NO_ROOM)


@pytest.fixture(autouse=True)
async def urgency(cluster: Cluster) -> None:
    body = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": URGENT},
        "value": 1000,
    }
    await cluster.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)


async def urgent(cluster: Cluster, name: str, memory: int, **options: Any) -> Pod:
    """A waiting pod of high priority, or with `on` and `cards` a bound one."""
    body = manifest(build.pod(name, memory=memory, slots=options.pop("slots", 1), **options))
    body["spec"]["priorityClassName"] = URGENT
    return await cluster.request("POST", PODS, body)


async def nominate(cluster: Cluster, scheduler: Scheduler, name: str, *, node: str | None) -> None:
    """As kube-scheduler writes it, or with no node withdraws it; returns once the extender has seen it."""
    patch = {"status": {"nominatedNodeName": node}}
    pod = await cluster.patch(f"{PODS}/{name}/status", patch)
    waiting = scheduler.extender.waiting

    def seen() -> bool:
        found = waiting.get(pod["metadata"]["uid"])
        return found is not None and found.nominated_node == (node or "")

    await until(seen, what=f"{name} is nominated to {node}")


async def test_V11_a_smaller_pod_is_refused_the_card_and_may_come_again(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    await cluster.node("n1", cards=[10000])
    await urgent(cluster, "u", 9000)
    low = await cluster.pod("low", 4500, slots=1)
    await scheduler.seen_nodes("n1")
    assert await scheduler.fits(low, node="n1")
    await nominate(cluster, scheduler, "u", node="n1")
    found = await scheduler.filter(low, nodes=["n1"])
    assert (found["NodeNames"], found["FailedNodes"]) == ([], {"n1": NO_ROOM})
    assert found["FailedAndUnresolvableNodes"] == {}, "kube-scheduler may look for victims"
    assert await scheduler.prioritize(low, nodes=["n1"]) == {"n1": 0}
    assert NO_ROOM in await scheduler.bind(low, node="n1")
    assert await scheduler.free("n1") == [10000], "nothing is booked for it"
    await nominate(cluster, scheduler, "u", node=None)
    assert await scheduler.fits(low, node="n1")
    assert await scheduler.bind(low, node="n1") == ""


async def test_V11_a_pod_over_two_cards_is_refused_in_its_own_words(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    await cluster.node("n1", cards=[10000, 10000])
    await urgent(cluster, "u", 9000)
    await nominate(cluster, scheduler, "u", node="n1")
    wide = await cluster.pod("wide", 4000, slots=2)
    found = await scheduler.filter(wide, nodes=["n1"])
    assert found["FailedNodes"] == {"n1": str(Reason.TOO_FEW_CARDS)}


async def test_V11_filter_prioritize_and_bind_mean_the_same_card(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    """By itself `low` would go to card 0 of n1 and leave the least there."""
    await cluster.node("n1", cards=[10000, 12000])
    await cluster.node("n2", cards=[11000])
    for name in ("u1", "u2"):
        await urgent(cluster, name, 9000)
    low = await cluster.pod("low", 3000, slots=1)
    await scheduler.seen_nodes("n1", "n2")
    best = await scheduler.prioritize(low, nodes=["n1", "n2"])
    assert best["n1"] == 10
    for name in ("u1", "u2"):
        await nominate(cluster, scheduler, name, node="n1")
    assert (await scheduler.filter(low, nodes=["n1", "n2"]))["NodeNames"] == ["n1", "n2"]
    best = await scheduler.prioritize(low, nodes=["n1", "n2"])
    assert best["n2"] == 10, "8,000 are left there, 9,000 on card 1 of n1"
    assert await scheduler.bind(low, node="n1") == ""
    assert await cluster.card_of("low") == "1"


async def test_V11_the_urgent_pod_gets_its_card_when_the_victims_have_ended(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    await cluster.node("n1", cards=[10000])
    for name in ("v1", "v2"):
        victim = await cluster.pod(name, 3000, slots=1)
        assert await scheduler.bind(victim, node="n1") == ""
    pod = await urgent(cluster, "u", 9000)
    await nominate(cluster, scheduler, "u", node="n1")
    low = await cluster.pod("low", 2000, slots=1)
    assert await scheduler.fits(low, node="n1"), "nobody goes: it would never find a place here"
    for name in ("v1", "v2"):
        await cluster.delete(name, grace=30)
    held = scheduler.extender.ledger.bookings
    await until(lambda: all(booking.ending for booking in held()), what="both are told to end")
    assert not await scheduler.fits(low, node="n1")
    for name in ("v1", "v2"):
        await cluster.delete(name)
    await until(lambda: not list(held()), what="both have ended")
    assert not await scheduler.fits(low, node="n1")
    assert await scheduler.bind(pod, node="n1") == ""
    await scheduler.seen(pod["metadata"]["uid"])
    assert not await scheduler.fits(low, node="n1")
    small = await cluster.pod("small", 1000, slots=1)
    assert await scheduler.fits(small, node="n1"), "counted once"


async def gone(cluster: Cluster) -> None:
    await cluster.delete("u")


async def gone_unseen(cluster: Cluster) -> None:
    cluster.faults.expire_history()
    await cluster.delete("u")
    cluster.faults.expire_history()
    cluster.faults.cut_watches(client="gpushare-extender")


async def ended(cluster: Cluster) -> None:
    await cluster.phase("u", "Failed")


@pytest.mark.parametrize("end", [gone, gone_unseen, ended])
async def test_V11_a_nominated_pod_that_is_gone_leaves_the_card(
    cluster: Cluster, scheduler: Scheduler, end: Callable[[Cluster], Any]
) -> None:
    await cluster.node("n1", cards=[10000])
    await urgent(cluster, "u", 9000)
    await nominate(cluster, scheduler, "u", node="n1")
    low = await cluster.pod("low", 4500, slots=1)
    assert not await scheduler.fits(low, node="n1")
    await end(cluster)
    await until(lambda: scheduler.extender.nominations.nodes == set(), what="the nomination is forgotten")
    assert await scheduler.fits(low, node="n1")


async def test_V11_preempt_leaves_the_first_pods_card_to_it(cluster: Cluster, scheduler: Scheduler) -> None:
    await cluster.node("n1", cards=[10000, 10000])
    uids = {}
    for name, memory, card in (("v", 6000, 0), ("w", 8000, 1), ("x", 1000, 0)):
        body = manifest(build.pod(name, memory=memory, slots=1, on="n1", cards=[card]))
        uids[name] = (await cluster.request("POST", PODS, body))["metadata"]["uid"]
        await scheduler.seen(uids[name])
    await urgent(cluster, "u", 9000)
    await nominate(cluster, scheduler, "u", node="n1")
    second = await urgent(cluster, "second", 8000)
    await cluster.delete("v", grace=30)
    booking = scheduler.extender.ledger.booking
    await until(lambda: getattr(booking(uids["v"]), "ending", False), what="v is told to end")

    async def victims(*names: str) -> list[str]:
        proposed = {"Pods": [{"UID": uids[name]} for name in names], "NumPDBViolations": 0}
        body = {"Pod": second, "NodeNameToMetaVictims": {"n1": proposed}}
        answer = (await scheduler.post(f"{PREFIX}/preempt", body)).json()["NodeNameToMetaVictims"]
        return [name for name, uid in uids.items() for pod in answer["n1"]["Pods"] if pod["UID"] == uid]

    assert await victims("v", "x") == ["w"]
    await nominate(cluster, scheduler, "u", node=None)
    assert await victims("v", "x") == ["v", "x"]
