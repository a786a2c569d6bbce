"""The ledger's cases (L…) through HTTP and a real API server's watches."""

from __future__ import annotations

import asyncio

import pytest

from sandbox.apiserver import Rule
from tests.build import NAMES, card, container
from tests.extender.cluster import PODS, Cluster, Scheduler, known
from tests.waiting import until


async def bind_all(cluster: Cluster, scheduler: Scheduler, sizes: list[int]) -> list[str | None]:
    """Create and bind a pod per size on n1, one after the other; their card indices."""
    cards = []
    for number, size in enumerate(sizes):
        pod = await cluster.pod(f"p{number}", size)
        assert await scheduler.fits(pod, node="n1")
        assert await scheduler.bind(pod, node="n1") == ""
        cards.append(await cluster.card_of(f"p{number}"))
    return cards


async def test_L1_fragmented_cards_refuse_what_only_their_sum_could_hold(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    await cluster.node("n1", cards=[23552] * 4)
    await known(scheduler, "n1")
    assert await bind_all(cluster, scheduler, [10240] * 8) == ["0", "0", "1", "1", "2", "2", "3", "3"]
    ninth = await cluster.pod("ninth", 10240)
    answer = await scheduler.filter(ninth, nodes=["n1"])
    assert answer["NodeNames"] == []
    assert answer["FailedNodes"] == {"n1": "no single GPU card has enough memory left"}
    assert await scheduler.free("n1") == [3072] * 4


async def test_L2_churn_under_one_name_neither_leaks_nor_doubles(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    await cluster.node("n1", cards=[10000])
    await known(scheduler, "n1")
    for _ in range(200):
        pod = await cluster.pod("sts-0", 8000)
        uid = pod["metadata"]["uid"]
        assert await scheduler.bind(pod, node="n1") == ""
        assert await scheduler.free("n1") == [2000]
        await cluster.delete("sts-0")
        await scheduler.released(uid)
    assert await scheduler.free("n1") == [10000]


@pytest.mark.parametrize("how", ["watch cut", "410"])
async def test_L3_a_delete_nobody_saw_takes_effect_after_the_relist(
    cluster: Cluster, scheduler: Scheduler, how: str
) -> None:
    await cluster.node("n1", cards=[10000])
    await known(scheduler, "n1")
    first = await cluster.pod("a", 4000)
    assert await scheduler.bind(first, node="n1") == ""
    await scheduler.seen(first["metadata"]["uid"])
    frozen = cluster.faults.add(Rule(action="freeze", client="gpushare-extender"))
    await cluster.delete("a")
    second = await cluster.pod("a", 4000)
    if how == "410":
        cluster.faults.expire_history()
    cluster.faults.cut_watches(client="gpushare-extender")
    cluster.faults.remove(frozen.number)
    await scheduler.released(first["metadata"]["uid"])
    assert await scheduler.free("n1") == [10000]
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert await scheduler.bind(second, node="n1") == ""
    assert await scheduler.free("n1") == [6000]


async def test_L4_memory_stays_charged_until_the_pod_is_gone_not_marked(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    await cluster.node("n1", cards=[16384])
    await known(scheduler, "n1")
    first = await cluster.pod("a", 12000)
    assert await scheduler.bind(first, node="n1") == ""
    await cluster.delete("a", grace=30)
    marked = await cluster.live("a")
    assert marked["metadata"]["deletionTimestamp"]
    second = await cluster.pod("b", 8000)
    await until(lambda: second["metadata"]["uid"] in scheduler.extender.waiting, what="b is seen")
    assert not await scheduler.fits(second, node="n1")
    await cluster.delete("a", grace=0)
    await scheduler.released(first["metadata"]["uid"])
    assert await scheduler.fits(second, node="n1")


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
async def test_L5_an_ended_pod_frees_its_card(cluster: Cluster, scheduler: Scheduler, phase: str) -> None:
    await cluster.node("n1", cards=[16384])
    await known(scheduler, "n1")
    pod = await cluster.pod("a", 12000)
    assert await scheduler.bind(pod, node="n1") == ""
    await cluster.phase("a", phase)
    await scheduler.released(pod["metadata"]["uid"])
    assert await cluster.card_of("a") == "0"
    assert await scheduler.free("n1") == [16384]


async def test_L6_a_card_that_goes_and_comes_back(cluster: Cluster, scheduler: Scheduler) -> None:
    await cluster.node("n1", cards=[16384, 16384])
    await known(scheduler, "n1")
    filler = await cluster.pod("filler", 16000)
    pod = await cluster.pod("a", 4000)
    assert await scheduler.bind(filler, node="n1") == ""
    assert await scheduler.bind(pod, node="n1") == ""
    assert await cluster.card_of("a") == "1"
    await cluster.delete("filler")
    await scheduler.released(filler["metadata"]["uid"])
    await cluster.node("n1", cards=[16384])
    await until(lambda: len(scheduler.extender.ledger.view("n1").cards) == 1, what="one card")
    other = await cluster.pod("c", 16000)
    assert await scheduler.bind(other, node="n1") == ""
    assert await cluster.card_of("c") == "0"
    missing = (await scheduler.inspect("n1"))["missing"]
    assert [(pod["name"], pod["usedGPU"]) for pod in missing] == [("a", 4000)]
    await cluster.node("n1", cards=[16384, 16384])
    await until(lambda: len(scheduler.extender.ledger.view("n1").cards) == 2, what="two cards")
    assert await scheduler.free("n1") == [384, 12384]


async def test_L7_an_over_booked_card_has_nothing_free_and_shows_by_how_much(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    await cluster.node("n1", cards=[9000])
    await known(scheduler, "n1")
    pod = await cluster.pod("a", 9000)
    assert await scheduler.bind(pod, node="n1") == ""
    await cluster.node("n1", cards=[8192])
    await until(lambda: scheduler.extender.ledger.view("n1").cards[0].size.memory == 8192, what="smaller")
    assert await scheduler.free("n1") == [0]
    assert (await scheduler.inspect("n1"))["devs"][0]["overCommit"] == 808
    assert not await scheduler.fits(await cluster.pod("d", 1), node="n1")


async def test_L8_what_an_unbound_pod_claims_is_ignored_and_overwritten(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    await cluster.node("n1", cards=[16384, 12000])
    await known(scheduler, "n1")
    forged = {NAMES.index: "0", NAMES.pod_memory: "1"}
    pod = await cluster.pod("a", 10000, annotations=forged)
    await until(lambda: pod["metadata"]["uid"] in scheduler.extender.waiting, what="a is seen")
    assert await scheduler.free("n1") == [16384, 12000]
    assert await scheduler.bind(pod, node="n1") == ""
    annotations = (await cluster.live("a"))["metadata"]["annotations"]
    assert annotations[NAMES.index] == "1"
    assert annotations[NAMES.pod_memory] == "10000"
    assert await scheduler.free("n1") == [16384, 2000]


@pytest.mark.parametrize("index", ["abc", "-1", "99", "", "1.0", "0,0", "1,"])
async def test_L9_an_unreadable_allocation_closes_its_node_alone(
    cluster: Cluster, scheduler: Scheduler, index: str
) -> None:
    await cluster.node("n1", cards=[16384])
    await cluster.node("n2", cards=[16384])
    await known(scheduler, "n1", "n2")
    await cluster.pod("a", 4000, on="n1", annotations={NAMES.index: index})
    await scheduler.shut("n1")
    other = await cluster.pod("b", 100)
    answer = await scheduler.filter(other, nodes=["n1", "n2"])
    assert answer["NodeNames"] == ["n2"]
    assert "default/a" in answer["FailedNodes"]["n1"]
    assert "default/a" in await scheduler.bind(other, node="n1")
    await cluster.delete("a")
    await until(lambda: scheduler.extender.ledger.view("n1").problem is None, what="n1 is open again")
    assert await scheduler.fits(other, node="n1")


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"node":"n1"}', '{"node":"n2","cards":[{"index":0,"uuid":"u"}]}']
)
async def test_L9_broken_or_foreign_json_closes_the_node(
    cluster: Cluster, scheduler: Scheduler, text: str
) -> None:
    await cluster.node("n1", cards=[16384])
    await known(scheduler, "n1")
    await cluster.pod("a", 4000, on="n1", annotations={NAMES.index: "0", NAMES.allocation: text})
    await scheduler.shut("n1")
    assert not await scheduler.fits(await cluster.pod("b", 100), node="n1")


async def test_L10_a_pod_that_bypassed_the_scheduler_closes_its_node(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    await cluster.node("n1", cards=[16384])
    await known(scheduler, "n1")
    await cluster.pod("a", 3000, on="n1")
    await scheduler.shut("n1")
    answer = await scheduler.filter(await cluster.pod("b", 100), nodes=["n1"])
    assert "default/a has no card allocation" in answer["FailedNodes"]["n1"]


async def test_L11_what_a_bind_in_flight_was_promised_is_taken(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    await cluster.node("n1", cards=[10000])
    await known(scheduler, "n1")
    first, second = await cluster.pod("a", 6000), await cluster.pod("b", 6000)
    held = cluster.faults.add(Rule(action="hold", method="POST", path="/pods/a/binding"))
    failing = cluster.faults.add(Rule(action="answer", status=500, method="POST", path="/pods/a/binding"))
    bind = asyncio.create_task(scheduler.bind(first, node="n1"))
    await asyncio.wait_for(held.struck(), 5)
    assert not await scheduler.fits(second, node="n1")
    cluster.faults.remove(held.number)
    assert "a fault was ordered" in await bind
    assert await scheduler.fits(second, node="n1")
    cluster.faults.remove(failing.number)
    assert await scheduler.bind(first, node="n1") == ""
    await scheduler.seen(first["metadata"]["uid"])
    await cluster.patch(f"{PODS}/a", {"metadata": {"labels": {"touched": "yes"}}})
    await cluster.phase("a", "Running")
    assert await scheduler.free("n1") == [4000]


async def test_L13_full_is_worth_a_retry_and_impossible_is_not(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    await cluster.node("full", cards=[8192])
    await cluster.node("bare", cards=[])
    await cluster.node("small", cards=[4096])
    await known(scheduler, "full", "bare", "small")
    assert await scheduler.bind(await cluster.pod("a", 8192), node="full") == ""
    answer = await scheduler.filter(await cluster.pod("b", 8192), nodes=["full", "bare", "small"])
    assert answer["NodeNames"] == []
    assert answer["FailedNodes"] == {"full": "no single GPU card has enough memory left"}
    assert answer["FailedAndUnresolvableNodes"] == {
        "bare": "node shares no GPU cards",
        "small": "GPU memory request is larger than any card of the node",
    }


async def test_L14_mixed_sizes(cluster: Cluster, scheduler: Scheduler) -> None:
    await cluster.node("n1", cards=[8192, 16384])
    await known(scheduler, "n1")
    large, larger, exact = [
        await cluster.pod(f"p{size}-{n}", size) for n, size in enumerate([12000, 12000, 8192])
    ]
    assert await scheduler.bind(large, node="n1") == ""
    assert not await scheduler.fits(larger, node="n1")
    assert await scheduler.bind(exact, node="n1") == ""
    assert [await cluster.card_of(pod["metadata"]["name"]) for pod in (large, exact)] == ["1", "0"]


@pytest.mark.parametrize(
    ("init", "apps", "charged"),
    [
        ([("init", 4000, False)], [3000], 4000),
        ([("side", 1000, True)], [3000], 4000),
        ([("side", 1000, True), ("init", 5000, False)], [3000], 6000),
        ([("init", 5000, False), ("side", 1000, True)], [3000], 5000),
        ([("init", 2000, False)], [], 2000),
    ],
)
async def test_L15_init_containers_and_sidecars_are_charged_at_their_peak(
    cluster: Cluster,
    scheduler: Scheduler,
    init: list[tuple[str, int, bool]],
    apps: list[int],
    charged: int,
) -> None:
    await cluster.node("n1", cards=[10000])
    await known(scheduler, "n1")
    containers = [container(f"app{n}", memory=memory) for n, memory in enumerate(apps)] or [container("app")]
    starting = [container(name, memory=memory, sidecar=sidecar) for name, memory, sidecar in init]
    pod = await cluster.pod("a", containers=containers, init=starting)
    assert await scheduler.bind(pod, node="n1") == ""
    assert await scheduler.free("n1") == [10000 - charged]


async def test_an_unhealthy_card_takes_nobody_and_stays_charged(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    await cluster.node("n1", cards=[16384, 8192])
    await known(scheduler, "n1")
    pod = await cluster.pod("a", 10000)
    assert await scheduler.bind(pod, node="n1") == ""
    await cluster.node("n1", cards=[card(0, memory=16384, healthy=False), 8192])
    await until(lambda: not scheduler.extender.ledger.view("n1").cards[0].card.healthy, what="unhealthy")
    assert await scheduler.free("n1") == [0, 8192]
    assert (await scheduler.inspect("n1"))["devs"][0]["usedGPU"] == 10000
    answer = await scheduler.filter(await cluster.pod("b", 9000), nodes=["n1"])
    assert answer["FailedAndUnresolvableNodes"] == {"n1": "GPU cards large enough are not healthy"}


async def test_a_node_in_another_unit_is_refused_as_such(cluster: Cluster, scheduler: Scheduler) -> None:
    await cluster.node("n1", cards=[16], unit="GiB")
    await known(scheduler, "n1")
    answer = await scheduler.filter(await cluster.pod("a", 10), nodes=["n1"])
    assert answer["FailedAndUnresolvableNodes"] == {
        "n1": "node counts GPU memory in another unit than the scheduler"
    }


async def test_a_classic_node_is_split_evenly(cluster: Cluster, scheduler: Scheduler) -> None:
    await cluster.node("n1", cards=[8138, 8138], classic=True)
    await known(scheduler, "n1")
    assert await bind_all(cluster, scheduler, [5000, 5000]) == ["0", "1"]
    assert await scheduler.free("n1") == [3138, 3138]
