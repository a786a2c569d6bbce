"""What Prometheus and the probes are told, over HTTP."""

import contextlib
import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from deviceplugin.counts import CardCounts
from deviceplugin.matching import Listed
from deviceplugin.metrics import CATALOGUE, CallTimes, Snapshot, render
from deviceplugin.plugin import Plugin
from gpushare.bookings import Booking, claim_of
from gpushare.cards import NodeCards
from kubeapi.listen import ListenError, open_socket
from tests.deviceplugin.cluster import Cluster, until
from tests.deviceplugin.pods import NAMES, NODE, C, bound, card

Samples = dict[tuple[str, tuple[str, ...]], float]


def parsed(page: str) -> Samples:
    """Samples by name and the labels' values but the node's, in the order of the labels' names."""
    return {
        (sample.name, tuple(sample.labels[name] for name in sorted(sample.labels) if name != "node")): (
            sample.value
        )
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def shown(snapshot: Snapshot) -> Samples:
    return parsed(render(snapshot, calls=CallTimes(node=NODE)).decode())


CARDS = (card(0, memory=16000), card(1, memory=8000, healthy=False))
TWO = NodeCards(unit="MiB", slots=4, cards=CARDS)
MIB = 2**20


def booking(name: str, *containers: C, cards: tuple[int, ...]) -> Booking:
    claim = claim_of(bound(name, *containers, cards=[CARDS[index] for index in cards]), NAMES)
    assert isinstance(claim, Booking)
    return claim


def test_cards_in_base_units() -> None:
    samples = shown(Snapshot(node=NODE, cards=TWO, bookings=[booking("p", C(memory=1000), cards=(1,))]))
    first, second = ("0", "GPU-0"), ("1", "GPU-1")
    assert samples["gpushare_plugin_card_memory_bytes", first] == 16000 * MIB
    assert samples["gpushare_plugin_card_booked_bytes", first] == 0
    assert samples["gpushare_plugin_card_booked_bytes", second] == 1000 * MIB
    assert [samples["gpushare_plugin_card_healthy", labels] for labels in (first, second)] == [1, 0]
    assert samples["gpushare_plugin_card_slots", first] == 4


def test_kubelets_record_names_the_card_and_the_pods_spec_the_amount() -> None:
    listed = [
        Listed(namespace="default", name="p", held={"a": frozenset({"GPU-0::1"})}),
        Listed(namespace="default", name="unknown", held={"b": frozenset({"GPU-1::0"})}),
    ]
    given = booking("p", C(name="a", memory=1000), cards=(1,))
    samples = shown(Snapshot(node=NODE, cards=TWO, bookings=[given], listed=listed))
    name = "gpushare_plugin_container_memory_bytes"
    assert {key: value for key, value in samples.items() if key[0] == name} == {
        (name, ("0", "a", "default", "p", "GPU-0")): 1000 * MIB,
        (name, ("1", "b", "default", "unknown", "GPU-1")): 0,
    }
    assert samples["gpushare_plugin_card_slots_used", ("0", "GPU-0")] == 1


def test_where_ids_name_no_card_the_annotation_does() -> None:
    listed = [Listed(namespace="default", name="p", held={"a": frozenset({"17", "18"})})]
    given = booking("p", C(name="a", memory=1000), cards=(1,))
    samples = shown(Snapshot(node=NODE, cards=TWO, bookings=[given], listed=listed, ids_name_cards=False))
    labels = ("1", "a", "default", "p", "GPU-1")
    assert samples["gpushare_plugin_container_memory_bytes", labels] == 1000 * MIB
    assert not any("slots" in name for name, _ in samples)


def test_nothing_is_said_of_what_is_not_known() -> None:
    samples = shown(Snapshot(node=NODE, cards=TWO, listed=None))
    assert not any("slots_used" in name or "used_bytes" in name for name, _ in samples)
    assert not any("card" in name for name, _ in shown(Snapshot(node=NODE, cards=None)))


def test_what_the_driver_tells() -> None:
    counts = CardCounts()
    counts.used["GPU-0"] = 12345
    counts.xids["GPU-1", 79] += 2
    counts.xids["GPU-gone", 79] += 1
    counts.failed_probes["GPU-1"] += 3
    samples = shown(Snapshot(node=NODE, cards=TWO, counts=counts, health_changes={("GPU-1", "unhealthy"): 1}))
    assert samples["gpushare_plugin_card_used_bytes", ("0", "GPU-0")] == 12345
    assert samples["gpushare_plugin_card_xids_total", ("1", "GPU-1", "79")] == 2
    assert samples["gpushare_plugin_card_failed_probes_total", ("1", "GPU-1")] == 3
    assert samples["gpushare_plugin_card_health_changes_total", ("1", "unhealthy", "GPU-1")] == 1
    assert not any("GPU-gone" in labels for _, labels in samples)


def test_everything_exported_is_in_the_catalogue_and_the_other_way_round() -> None:
    counts = CardCounts()
    counts.used["GPU-0"] = 1
    counts.xids["GPU-0", 79] += 1
    calls = CallTimes(node=NODE)
    calls.observe("allocate", started=0)
    page = render(
        Snapshot(
            node=NODE,
            cards=TWO,
            listed=[Listed(namespace="default", name="p", held={"a": frozenset({"GPU-0::1"})})],
            counts=counts,
            health_changes={("GPU-1", "unhealthy"): 1},
            problems={"cards": None},
            rivals={"nvidia.com/gpu": 2},
        ),
        calls=calls,
    )
    exported = {}
    for family in text_string_to_metric_families(page.decode()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        exported[name] = (
            family.type,
            {tuple(sorted(sample.labels.keys() - {"le"})) for sample in family.samples},
        )
    assert exported == {name: (kind, {tuple(sorted(labels))}) for name, (kind, labels) in CATALOGUE.items()}


@contextlib.asynccontextmanager
async def served(one_node: Cluster, *, ready: bool = True) -> AsyncIterator[tuple[Plugin, str]]:
    """A plugin with its HTTP side, and the latter's address."""
    listener = open_socket("127.0.0.1:0")
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with one_node.plugin(ready=ready, listener=listener) as plugin:
        yield plugin, url


async def get(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.text()


async def test_series_come_and_go_with_pods_and_cards(one_node: Cluster) -> None:
    def of_pods(samples: Samples) -> list[tuple[str, ...]]:
        return [labels for name, labels in samples if name == "gpushare_plugin_container_memory_bytes"]

    async with served(one_node) as (plugin, url):
        await one_node.run("p", C(memory=1000), cards=[1])
        samples = parsed((await get(f"{url}/metrics"))[1])
        assert of_pods(samples) == [("1", "main", "default", "p", "GPU-1")]
        assert samples["gpushare_plugin_card_slots_used", ("1", "GPU-1")] == 1
        assert samples["gpushare_plugin_registrations_total", ()] == 1
        assert samples["gpushare_plugin_call_seconds_count", ("allocate", "answered")] == 1
        await one_node.delete("p")
        await until(lambda: not plugin.view.all(), what=plugin.view.all)
        one_node.write_cards({"uuid": "GPU-0", "memory": 16000})
        await until(lambda: one_node.slots_known() == 4, what=one_node.slots_known)
        samples = parsed((await get(f"{url}/metrics"))[1])
        assert of_pods(samples) == []
        assert not any("GPU-1" in labels for _, labels in samples)


async def test_refusals_are_counted_by_kind(one_node: Cluster) -> None:
    async with served(one_node) as (_, url):
        pod = await one_node.create("p", C(memory=1000))
        await one_node.bind(pod)
        await one_node.refusal("p")
        samples = parsed((await get(f"{url}/metrics"))[1])
        assert samples["gpushare_plugin_call_seconds_count", ("prefer", "bad_pod")] == 1


async def test_a_card_that_turns_is_counted(one_node: Cluster) -> None:
    async with served(one_node) as (_, url):
        one_node.write_cards(
            {"uuid": "GPU-0", "memory": 16000}, {"uuid": "GPU-1", "memory": 8000, "healthy": False}
        )
        await until(lambda: one_node.slots_known() == 4, what=one_node.slots_known)
        samples = parsed((await get(f"{url}/metrics"))[1])
        assert samples["gpushare_plugin_card_health_changes_total", ("1", "unhealthy", "GPU-1")] == 1
        assert samples["gpushare_plugin_card_healthy", ("1", "GPU-1")] == 0


async def test_probes(one_node: Cluster) -> None:
    await one_node.node.stop()
    async with served(one_node, ready=False) as (plugin, url):
        await until(lambda: len(plugin.problems()) == 1, what=plugin.problems)
        assert await get(f"{url}/healthz") == (200, "ok\n")
        assert await get(f"{url}/readyz") == (503, "kubelet: not registered\n")
        assert parsed((await get(f"{url}/metrics"))[1])["gpushare_plugin_ready", ("kubelet",)] == 0
        await one_node.node.start()
        await until(lambda: not plugin.problems(), what=plugin.problems)
        assert await get(f"{url}/readyz") == (200, "ok\n")


def test_I3_an_address_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ListenError, match=f"cannot listen on {address}: Address already in use"):
            open_socket(address)
