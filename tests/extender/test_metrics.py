"""/metrics: what is exported, in base units, and that series go with what they are about."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

import pytest
from prometheus_client.parser import text_string_to_metric_families

from extender import metrics
from extender.cardseries import allocation_lines
from extender.core import Extender
from extender.exposition import Exposition
from gpushare import __version__
from gpushare.cards import Card
from gpushare.inspection import inspect
from gpushare.ledger import Ledger
from gpushare.placement import Policy
from gpushare.refusals import Reason
from kubeapi.client import KubeApi
from kubeapi.leases import Elector
from sandbox.apiserver import Rule
from tests import build
from tests.build import NAMES
from tests.extender.cluster import Cluster, Scheduler
from tests.waiting import until

MIB = 2**20
Labels = tuple[tuple[str, str], ...]


class Scraped:
    """One answer of /metrics."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self._values: dict[tuple[str, Labels], float] = {}
        for family in self.families.values():
            for sample in family.samples:
                key = (sample.name, tuple(sorted(sample.labels.items())))
                assert key not in self._values, f"{key} twice"
                self._values[key] = sample.value

    def value(self, name: str, **labels: str) -> float | None:
        return self._values.get((name, tuple(sorted(labels.items()))))

    def series(self, name: str) -> dict[Labels, float]:
        return {labels: value for (found, labels), value in self._values.items() if found == name}

    def cards(self, name: str) -> dict[tuple[str, str, str], float]:
        """By node, card and UUID."""
        series = self.series(f"gpushare_card_{name}")
        return {_place(dict(labels)): value for labels, value in series.items()}


def _place(labels: Mapping[str, str]) -> tuple[str, str, str]:
    return labels["node"], labels["card"], labels["uuid"]


async def scrape(scheduler: Scheduler) -> Scraped:
    answer = await scheduler.http.get(f"{scheduler.url}/metrics")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    return Scraped(answer.text)


async def test_cards_in_bytes_as_they_are_booked(cluster: Cluster, scheduler: Scheduler) -> None:
    await cluster.node("n1", cards=[8192, build.card(1, memory=16384, healthy=False)])
    await scheduler.seen_nodes("n1")
    pod = await cluster.pod("a", 3000)
    assert await scheduler.bind(pod, node="n1") == ""
    found = await scrape(scheduler)
    one, two = ("n1", "0", "GPU-n1-0"), ("n1", "1", "GPU-n1-1")
    assert found.cards("memory_bytes") == {one: 8192 * MIB, two: 16384 * MIB}
    assert found.cards("booked_bytes") == {one: 3000 * MIB, two: 0}
    assert found.cards("pods") == {one: 1, two: 0}
    assert found.cards("healthy") == {one: 1, two: 0}
    assert found.cards("overcommit_bytes") == {one: 0, two: 0}


async def test_L12_what_is_free_is_what_a_new_pod_may_get() -> None:
    ledger = Ledger(names=NAMES, unit="MiB", reserve=1024)
    ledger.set_node(build.node("n1", cards=[8192, build.card(1, memory=16384, healthy=False), 4096], slots=2))
    ledger.set_pod(build.pod("a", memory=3000, on="n1", cards=[0]))
    for name in ("b", "c"):
        ledger.set_pod(build.pod(name, memory=100, on="n1", cards=[2]))
    free = list(Scraped(await text_of(ledger)).cards("free_bytes").values())
    assert free == [(8192 - 1024 - 3000) * MIB, 0, 0], "by its bookings; unhealthy; without a slot"


async def test_L9_a_closed_node_has_nothing_free() -> None:
    ledger = Ledger(names=NAMES, unit="MiB")
    ledger.set_node(build.node("n1", cards=[8192]))
    ledger.set_pod(build.pod("bad", memory=3000, on="n1", annotations={NAMES.index: "abc"}))
    assert list(Scraped(await text_of(ledger)).cards("free_bytes").values()) == [0]


async def test_L9_L12_inspect_says_of_every_card_what_the_metric_says() -> None:
    ledger = Ledger(names=NAMES, unit="MiB", reserve=1024)
    ledger.set_node(build.node("n1", cards=[8192, build.card(1, memory=16384, healthy=False), 4096], slots=2))
    ledger.set_pod(build.pod("a", memory=3000, on="n1", cards=[0]))
    for name in ("b", "c"):
        ledger.set_pod(build.pod(name, memory=100, on="n1", cards=[2]))
    ledger.set_node(build.node("closed", cards=[8192]))
    ledger.set_pod(build.pod("bad", memory=3000, on="closed", annotations={NAMES.index: "abc"}))
    ledger.set_node(build.node("other-unit", cards=[8], unit="GiB"))
    found = inspect(ledger)
    assert found is not None
    shown = {
        (node.name, str(card.id), card.uuid): card.free_gpu * MIB
        for node in found.nodes
        for card in node.devs
    }
    assert shown == Scraped(await text_of(ledger)).cards("free_bytes")
    assert sorted(shown.values()) == [0, 0, 0, 0, (8192 - 1024 - 3000) * MIB]


async def test_series_go_with_their_pod_card_and_node(cluster: Cluster, scheduler: Scheduler) -> None:
    await cluster.node("n1", cards=[8192, 8192])
    await cluster.node("n2", cards=[8192])
    await scheduler.seen_nodes("n1", "n2")
    pod = await cluster.pod("a", 3000)
    assert await scheduler.bind(pod, node="n1") == ""
    await cluster.delete("a")
    await scheduler.released(pod["metadata"]["uid"])
    await cluster.node("n1", cards=[8192])
    await cluster.request("DELETE", "/api/v1/nodes/n2")
    ledger = scheduler.extender.ledger
    await until(lambda: len(ledger.view("n1").cards) == 1 and ledger.known_nodes() == ["n1"])
    found = await scrape(scheduler)
    assert found.cards("booked_bytes") == {("n1", "0", "GPU-n1-0"): 0}
    assert {name for name in found.families if "_card_" in name or "_node_" in name} <= {
        metric.name for metric in metrics.ALLOCATION
    }


async def test_L7_overcommit_is_shown(cluster: Cluster, scheduler: Scheduler) -> None:
    await cluster.node("n1", cards=[8192])
    await cluster.create(build.pod("a", memory=9000, on="n1", cards=[0]))
    await until(lambda: scheduler.extender.ledger.view("n1").cards)
    await until(lambda: scheduler.extender.ledger.view("n1").cards[0].over_commit)
    assert (await scrape(scheduler)).cards("overcommit_bytes") == {("n1", "0", "GPU-n1-0"): 808 * MIB}


async def test_L9_a_closed_node_has_a_series_until_it_opens(cluster: Cluster, scheduler: Scheduler) -> None:
    await cluster.node("n1", cards=[8192])
    await cluster.node("n2", cards=[8192])
    await scheduler.seen_nodes("n1", "n2")
    await cluster.create(build.pod("bad", memory=3000, on="n1", annotations={NAMES.index: "abc"}))
    await scheduler.shut("n1")
    found = await scrape(scheduler)
    assert found.series("gpushare_node_closed") == {(("node", "n1"), ("reason", "closed")): 1}
    await cluster.delete("bad")
    await until(lambda: scheduler.extender.ledger.view("n1").problem is None)
    assert (await scrape(scheduler)).series("gpushare_node_closed") == {}


async def test_L6_bookings_on_a_missing_card_are_counted(cluster: Cluster, scheduler: Scheduler) -> None:
    await cluster.node("n1", cards=[8192, 8192])
    await cluster.create(build.pod("a", memory=3000, on="n1", cards=[1]))
    await until(lambda: scheduler.extender.ledger.known_nodes())
    await cluster.node("n1", cards=[8192])
    await until(lambda: scheduler.extender.ledger.view("n1").missing)
    series = (await scrape(scheduler)).series("gpushare_node_missing_card_bookings")
    assert series == {(("node", "n1"),): 1}


async def test_requests_and_refusals_are_counted(cluster: Cluster, scheduler: Scheduler) -> None:
    await cluster.node("n1", cards=[8192])
    await cluster.node("n2", cards=[8192])
    await cluster.node("n3", cards=[4096])
    await scheduler.seen_nodes("n1", "n2", "n3")
    large, small = await cluster.pod("large", 8192), await cluster.pod("small", 1000)
    for node in ("n1", "n2"):
        pod = await cluster.pod(f"on-{node}", 8000)
        assert await scheduler.bind(pod, node=node) == ""
    assert await scheduler.fits(small, node="n3")
    refused = await scheduler.filter(large, nodes=["n1", "n2", "n3", "n4"])
    assert refused["NodeNames"] == []
    await scheduler.prioritize(small, nodes=["n1", "n3"])
    assert await scheduler.bind(large, node="n1") != ""
    await scheduler.post("/gpushare-scheduler/filter", b"garbage")
    found = await scrape(scheduler)

    def requests(verb: str, outcome: str) -> float | None:
        return found.value("gpushare_request_duration_seconds_count", verb=verb, outcome=outcome)

    assert requests("filter", "fit") == 1
    assert requests("filter", "none_fit") == 1
    assert requests("filter", "error") == 1
    assert requests("prioritize", "ok") == 1
    assert requests("bind", "bound") == 2
    assert requests("bind", "refused") == 1
    assert found.series("gpushare_refusals_total") == {
        (("reason", "no_room"), ("verb", "filter")): 1,
        (("reason", "too_large"), ("verb", "filter")): 1,
        (("reason", "unknown_node"), ("verb", "filter")): 1,
        (("reason", "no_room"), ("verb", "bind")): 1,
    }
    assert found.value("gpushare_waiting_pods") == 2
    assert found.families["gpushare_request_duration_seconds"].type == "histogram"


async def test_L9_a_closed_nodes_refusal_counts_by_its_reason_alone(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    await cluster.node("n1", cards=[8192])
    await scheduler.seen_nodes("n1")
    await cluster.create(build.pod("bad", memory=3000, on="n1"))
    await scheduler.shut("n1")
    pod = await cluster.pod("a", 1000)
    assert not await scheduler.fits(pod, node="n1")
    assert "default/bad" in await scheduler.bind(pod, node="n1")
    assert (await scrape(scheduler)).series("gpushare_refusals_total") == {
        (("reason", "closed"), ("verb", "filter")): 1,
        (("reason", "closed"), ("verb", "bind")): 1,
    }


async def test_what_became_of_binds(cluster: Cluster, scheduler: Scheduler) -> None:
    await cluster.node("n1", cards=[8192])
    await scheduler.seen_nodes("n1")
    pod = await cluster.pod("a", 1000)
    cluster.faults.add(Rule(action="answer", status=503, method="POST", path="/binding", count=1))
    assert await scheduler.bind(pod, node="n1") == ""
    cluster.faults.add(Rule(action="answer", status=409, method="POST", path="/binding", count=1))
    assert await scheduler.bind(await cluster.pod("b", 1000), node="n1") != ""
    found = await scrape(scheduler)
    assert found.value("gpushare_bind_retries_total") == 1
    assert found.value("gpushare_bind_conflicts_total") == 1
    assert found.value("gpushare_binds_unsettled") == 0


async def test_the_watches_and_the_replica(cluster: Cluster, scheduler: Scheduler) -> None:
    found = await scrape(scheduler)
    for kind in ("nodes", "pods"):
        assert found.value("gpushare_watch_lists_total", kind=kind) == 1
        age = found.value("gpushare_watch_last_event_age_seconds", kind=kind)
        assert age is not None
        assert 0 <= age < 60
    await until(lambda: all(each.problem is None for each in scheduler.extender.reflectors))
    assert found.value("gpushare_build_info", version=__version__) == 1
    assert (found.value("gpushare_ready"), found.value("gpushare_active")) == (1, 1)
    assert (found.value("process_resident_memory_bytes") or 0) > 10 * MIB


async def test_a_replica_that_is_not_ready_exports_no_allocation(cluster: Cluster) -> None:
    await cluster.node("n1", cards=[8192])
    held = cluster.faults.add(Rule(action="hold", method="GET", path="^/api/v1/pods$"))
    async with cluster.extender(synced=False) as scheduler:
        await until(lambda: scheduler.extender.ledger.known_nodes())
        found = await scrape(scheduler)
        assert (found.value("gpushare_ready"), found.value("gpushare_active")) == (0, 0)
        assert not any("_card_" in name or "_node_" in name for name in found.families)
        assert found.series("gpushare_watch_last_event_age_seconds").keys() == {(("kind", "nodes"),)}
        cluster.faults.remove(held.number)


async def test_a_standby_exports_no_allocation(cluster: Cluster, scheduler: Scheduler) -> None:
    await cluster.node("n1", cards=[8192])
    await scheduler.seen_nodes("n1")
    async with await KubeApi.connect(cluster.kubeconfig, user_agent="standby") as api:
        elector = Elector(api, name="lease", namespace="kube-system", identity="never leads")
        standby = Extender(api, names=NAMES, unit="MiB", policy=Policy.BINPACK, elector=elector)
        standby.ledger.set_node(build.node("n1", cards=[8192]))
        for reflector in standby.reflectors:
            reflector.synced.set()
        text = b"".join([chunk async for chunk in Exposition(standby).chunks()]).decode()
    found = Scraped(text)
    assert found.value("gpushare_active") == 0
    assert not any("_card_" in name or "_node_" in name for name in found.families)
    assert (await scrape(scheduler)).cards("pods") == {("n1", "0", "GPU-n1-0"): 0}


async def test_everything_exported_is_in_the_catalogue_and_the_other_way_round(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    await scheduler.extender.audit.once()
    await scheduler.post("/gpushare-scheduler/bind", b"garbage")
    text = (await scheduler.http.get(f"{scheduler.url}/metrics")).text
    helps = [line.split(" ", 3)[2:] for line in text.splitlines() if line.startswith("# HELP gpushare_")]
    assert dict(helps) == {each.name: each.help for each in metrics.CATALOGUE}
    types = [line.split(" ")[2:] for line in text.splitlines() if line.startswith("# TYPE gpushare_")]
    assert dict(types) == {each.name: each.kind for each in metrics.CATALOGUE}
    assert len(helps) == len(types) == len(metrics.CATALOGUE)


@pytest.mark.parametrize("metric", metrics.CATALOGUE, ids=[each.name for each in metrics.CATALOGUE])
def test_names_follow_prometheus(metric: metrics.Metric) -> None:
    assert metric.name.startswith("gpushare_")
    assert metric.name.isascii()
    assert metric.name == metric.name.lower()
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert not {"mib", "gib", "ms", "milliseconds"} & set(metric.name.split("_"))


async def text_of(ledger: Ledger) -> str:
    return "".join([line async for line in allocation_lines(ledger)])


async def test_GiB_are_bytes_too() -> None:
    ledger = Ledger(names=NAMES, unit="GiB")
    ledger.set_node(build.node("n1", cards=[80], unit="GiB"))
    ledger.set_pod(build.pod("a", memory=10, on="n1", cards=[0]))
    found = Scraped(await text_of(ledger))
    assert list(found.cards("memory_bytes").values()) == [80 * 2**30]
    assert list(found.cards("booked_bytes").values()) == [10 * 2**30]


async def test_a_node_of_another_unit_is_not_mistaken() -> None:
    ledger = Ledger(names=NAMES, unit="GiB")
    ledger.set_node(build.node("n1", cards=[8192], unit="MiB"))
    ledger.set_pod(build.pod("a", memory=10, on="n1", cards=[0]))
    found = Scraped(await text_of(ledger))
    assert list(found.cards("booked_bytes").values()) == [10 * 2**30], "pods ask in the cluster's unit"
    assert list(found.cards("overcommit_bytes").values()) == [2 * 2**30]
    assert list(found.cards("memory_bytes").values()) == [8 * 2**30]
    assert found.series("gpushare_node_closed") == {(("node", "n1"), ("reason", "unit_mismatch")): 1}


async def test_a_uuid_cannot_break_the_text() -> None:
    ledger = Ledger(names=NAMES, unit="MiB")
    uuid = 'GPU"}\n\\evil'
    ledger.set_node(build.node("n1", cards=[Card(index=0, uuid=uuid, memory=8192)]))
    found = Scraped(await text_of(ledger))
    assert set(found.cards("memory_bytes")) == {("n1", "0", uuid)}


async def test_a_node_that_goes_during_a_scrape_is_left_out() -> None:
    ledger = Ledger(names=NAMES, unit="MiB")
    for name in ("n1", "n2"):
        ledger.set_node(build.node(name, cards=[8192]))
    lines = allocation_lines(ledger)
    text = await anext(lines)
    ledger.remove_node("n2")
    text += "".join([line async for line in lines])
    assert {node for node, _, _ in Scraped(text).cards("memory_bytes")} == {"n1"}


async def test_a_scrape_of_a_large_cluster_lets_verbs_through() -> None:
    """Ratio within one run: the longest turn of the loop against the whole scrape."""
    ledger = Ledger(names=NAMES, unit="MiB")
    for number in range(400):
        ledger.set_node(build.node(f"n{number}", cards=[8192] * 8))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    begun = time.process_time()  # so that whatever else the machine does weighs nothing
    text = await text_of(ledger)
    took = time.process_time() - begun
    beside.cancel()
    assert text.count("\n") > 400 * 8 * 5
    assert turns > took / 0.02, "others ran less often than every 20 ms"


def test_every_reason_has_a_slug_of_its_own() -> None:
    slugs = {metrics.slug_of(str(reason)) for reason in Reason}
    assert len(slugs) == len(Reason)
    assert "other" not in slugs
