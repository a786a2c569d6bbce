"""The metrics of pods that wait although they would fit, or although they outrank others."""

from __future__ import annotations

import pytest

from extender.fragmentation import FragmentationWatch
from gpushare.ledger import Ledger
from gpushare.objects import Pod
from tests import build
from tests.build import NAMES
from tests.extender.cluster import Cluster, Scheduler
from tests.waiting import until


def cluster_of(*pods: Pod) -> Ledger:
    """Two nodes of 10000 a card: 10000 free on n1, as 4000 and 6000; nothing free on n2."""
    ledger = Ledger(names=NAMES, unit="MiB")
    ledger.set_node(build.node("n1", cards=[10000, 10000]))
    ledger.set_node(build.node("n2", cards=[10000]))
    for name, memory, node, card in (("a", 6000, "n1", 0), ("b", 4000, "n1", 1), ("c", 10000, "n2", 0)):
        ledger.set_pod(build.pod(name, memory=memory, on=node, cards=[card]))
    return ledger


async def look(ledger: Ledger, *waiting: Pod, active: bool = True) -> FragmentationWatch:
    by_uid = {pod.metadata.uid: pod for pod in waiting}
    watch = FragmentationWatch(ledger, waiting=by_uid, is_active=lambda: active)
    await watch.look()
    return watch


async def count(ledger: Ledger, *waiting: Pod, active: bool = True) -> int:
    return (await look(ledger, *waiting, active=active)).pods


async def test_every_pod_that_is_held_up_counts() -> None:
    first, second = (build.pod(memory=9000, priority=7) for _ in range(2))
    two_cards = build.pod(memory=10000, slots=2, priority=7)
    assert await count(cluster_of(), first, second, two_cards) == 3


@pytest.mark.parametrize(
    ("why", "pod"),
    [
        ("outranks nobody", build.pod(memory=9000)),
        ("fits", build.pod(memory=6000, priority=7)),
        ("fits two cards", build.pod(memory=8000, slots=2, priority=7)),
        ("is larger than the sum", build.pod(memory=18000, slots=2, priority=7)),
        ("is larger than any card", build.pod(memory=10001, priority=7)),
        ("needs no card", build.pod(memory=0, priority=7)),
        ("asks for nonsense", build.pod(memory="-1", priority=7)),
        ("is held back", build.pod(memory=9000, priority=7, gates=["kueue.x-k8s.io/admission"])),
    ],
)
async def test_other_pods_do_not_count(why: str, pod: Pod) -> None:
    assert await count(cluster_of(), pod) == 0, why


async def test_a_pod_that_another_node_takes_does_not_count() -> None:
    ledger = cluster_of()
    held_up = build.pod(memory=9000, priority=7)
    assert await count(ledger, held_up) == 1
    ledger.set_node(build.node("n3", cards=[10000]))
    assert await count(ledger, held_up) == 0


async def test_waiting_pods_that_would_find_a_card_are_counted_each() -> None:
    first, second = (build.pod(memory=6000) for _ in range(2))
    waiting = first, second, build.pod(memory=8000, slots=2, priority=7), build.pod(memory=9000, priority=7)
    assert (await look(cluster_of(), *waiting)).fitting == 3


@pytest.mark.parametrize(
    ("why", "pod"),
    [
        ("finds no room", build.pod(memory=6001)),
        ("finds no two cards", build.pod(memory=8002, slots=2)),
        ("needs no card", build.pod(memory=0)),
        ("asks for nonsense", build.pod(memory="-1")),
        ("is held back", build.pod(memory=6000, gates=["kueue.x-k8s.io/admission"])),
    ],
)
async def test_nobody_need_ask_for_other_waiting_pods(why: str, pod: Pod) -> None:
    assert (await look(cluster_of(), pod)).fitting == 0, why


async def test_in_a_full_cluster_no_waiting_pod_would_find_a_card() -> None:
    ledger = Ledger(names=NAMES, unit="MiB")
    ledger.set_node(build.node("n1", cards=[10000]))
    ledger.set_pod(build.pod("a", memory=10000, on="n1", cards=[0]))
    waiting = [build.pod(memory=5000) for _ in range(3)]
    assert (await look(ledger, *waiting)).fitting == 0
    ledger.set_node(build.node("n2", cards=[10000]))
    assert (await look(ledger, *waiting)).fitting == 3


async def test_a_replica_that_is_not_active_counts_nothing() -> None:
    found = await look(cluster_of(), build.pod(memory=9000, priority=7), build.pod(memory=1), active=False)
    assert (found.pods, found.fitting) == (0, 0)


async def test_the_counts_are_in_the_metrics(cluster: Cluster, scheduler: Scheduler) -> None:
    await cluster.node("n1", cards=[10000, 10000])
    for index, memory in enumerate((6000, 4000)):
        name = f"p{index}"
        pod = await cluster.pod(name, memory, slots=1, on="n1", cards=[index])
        await scheduler.seen(pod["metadata"]["uid"])
    await cluster.request(
        "POST",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "urgent"},
            "value": 7,
            "globalDefault": True,
        },
    )
    await cluster.pod("urgent", 9000, slots=1)
    await cluster.pod("small", 100, slots=1)
    await cluster.pod("smaller", 10, slots=1)
    await until(lambda: len(scheduler.extender.waiting) == 3, what="all seen")
    await scheduler.extender.fragmentation.look()
    text = (await scheduler.http.get(f"{scheduler.url}/metrics")).text
    assert "\ngpushare_fragmentation_waiting_pods 1.0\n" in text
    assert "\ngpushare_fitting_waiting_pods 2.0\n" in text
