"""filter, prioritize and their bodies (cases V…), as kube-scheduler would see them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpushare.placement import Policy
from tests.build import NAMES, container
from tests.extender.cluster import PREFIX, Cluster, Scheduler, known

WIRE = Path(__file__).parent.parent / "wire"


def asking(memory: object, *, slots: object = None, **annotations: str) -> dict[str, Any]:
    """A pod as kube-scheduler might send it, quantities spelled as given."""
    limits = {NAMES.memory: memory} | ({} if slots is None else {NAMES.slot: slots})
    return {
        "metadata": {"name": "a", "namespace": "default", "uid": "u", "annotations": annotations},
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
    }


def raw_node(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"kept": "as it came"}}, "spec": {"podCIDR": "10.0.0.0/24"}}


async def test_V1_names_in_names_out(cluster: Cluster, scheduler: Scheduler) -> None:
    await cluster.node("n1", cards=[8192])
    await known(scheduler, "n1")
    answer = await scheduler.filter(asking("3000"), nodes=["n1", "ghost"])
    assert answer == {
        "Nodes": None,
        "NodeNames": ["n1"],
        "FailedNodes": {"ghost": "node is not known to the GPU scheduler yet"},
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }


async def test_V1_nodes_in_the_same_nodes_out(cluster: Cluster, scheduler: Scheduler) -> None:
    await cluster.node("n1", cards=[8192])
    await cluster.node("bare", cards=[])
    await known(scheduler, "n1", "bare")
    items = [raw_node("bare"), raw_node("n1")]
    body = {"Pod": asking("3000"), "Nodes": {"metadata": {}, "items": items}, "NodeNames": None}
    answer = (await scheduler.post(f"{PREFIX}/filter", body)).json()
    assert answer["Nodes"]["items"] == [raw_node("n1")]
    assert answer["NodeNames"] is None
    assert answer["FailedAndUnresolvableNodes"] == {"bare": "node shares no GPU cards"}


async def test_V1_both_shapes_are_answered_in_both(cluster: Cluster, scheduler: Scheduler) -> None:
    await cluster.node("n1", cards=[8192])
    await known(scheduler, "n1")
    body = {"Pod": asking("3000"), "Nodes": {"items": [raw_node("n1")]}, "NodeNames": ["n1"]}
    answer = (await scheduler.post(f"{PREFIX}/filter", body)).json()
    assert answer["NodeNames"] == ["n1"]
    assert answer["Nodes"]["items"] == [raw_node("n1")]


@pytest.mark.parametrize(
    ("nodes", "names"), [({"items": None}, None), ({"items": []}, None), (None, []), ({}, None)]
)
async def test_V1_no_nodes_to_choose_from_is_no_error(scheduler: Scheduler, nodes: Any, names: Any) -> None:
    body = {"Pod": asking("3000"), "Nodes": nodes, "NodeNames": names}
    answer = (await scheduler.post(f"{PREFIX}/filter", body)).json()
    assert answer["Error"] == ""
    assert answer["NodeNames"] == names
    assert (answer["Nodes"] or {"items": None})["items"] == (None if nodes is None else [])


BAD_BODIES = [
    b"",
    b"[]",
    b"null",
    b"{",
    b"{}",
    b'"text"',
    b"\xff\xfe",
    b'{"Pod":null,"NodeNames":["n1"]}',
    b'{"Pod":{},"Nodes":null,"NodeNames":null}',
    b'{"Pod":{},"NodeNames":[1]}',
    b'{"Pod":{"spec":{"containers":{}}},"NodeNames":["n1"]}',
    b'{"Pod":{},"Nodes":{"items":[{}]}}',
    b'{"Pod":{},"Nodes":{"items":[null]}}',
    b"[" * 5000,
]


@pytest.mark.parametrize("body", BAD_BODIES)
async def test_V1_a_bad_body_is_answered_and_survived(
    cluster: Cluster, scheduler: Scheduler, body: bytes
) -> None:
    await cluster.node("n1", cards=[8192])
    await known(scheduler, "n1")
    answer = await scheduler.post(f"{PREFIX}/filter", body)
    assert (answer.status_code, bool(answer.json()["Error"])) == (200, True)
    answer = await scheduler.post(f"{PREFIX}/prioritize", body)
    assert (answer.status_code, bool(answer.json()["error"])) == (400, True)
    answer = await scheduler.post(f"{PREFIX}/bind", body)
    assert (answer.status_code, bool(answer.json()["Error"])) == (200, True)
    assert await scheduler.fits(asking("3000"), node="n1")


async def test_V12_zero_units_fit_everywhere(cluster: Cluster, scheduler: Scheduler) -> None:
    await cluster.node("n1", cards=[8192])
    await cluster.node("bare", cards=[])
    await known(scheduler, "n1", "bare")
    answer = await scheduler.filter(asking("0"), nodes=["n1", "bare", "ghost"])
    assert answer["NodeNames"] == ["n1", "bare", "ghost"]


async def test_V13_bytes_for_units_can_never_fit(cluster: Cluster, scheduler: Scheduler) -> None:
    await cluster.node("n1", cards=[16384])
    await known(scheduler, "n1")
    answer = await scheduler.filter(asking("10Gi"), nodes=["n1"])
    assert answer["FailedAndUnresolvableNodes"] == {
        "n1": "GPU memory request is larger than any card of the node"
    }


@pytest.mark.parametrize(
    ("text", "units"), [("1k", 1000), ("1Ki", 1024), ("1e3", 1000), ("2000m", 2), (7, 7)]
)
async def test_V14_every_spelling_of_a_quantity(
    cluster: Cluster, scheduler: Scheduler, text: object, units: int
) -> None:
    await cluster.node("exact", cards=[units])
    await cluster.node("short", cards=[units - 1])
    await known(scheduler, "exact", "short")
    assert (await scheduler.filter(asking(text), nodes=["exact", "short"]))["NodeNames"] == ["exact"]


@pytest.mark.parametrize("text", ["500m", "-1", "", " 1", "1.5", "NaN", "ten", 1.5, "1_0", "١"])
async def test_V14_what_is_no_quantity_is_an_error(
    cluster: Cluster, scheduler: Scheduler, text: object
) -> None:
    await cluster.node("n1", cards=[8192])
    await known(scheduler, "n1")
    answer = await scheduler.filter(asking(text), nodes=["n1"])
    assert "container 'main'" in answer["Error"]
    assert answer["NodeNames"] is None


async def test_V15_the_chosen_card_is_named_by_its_index(cluster: Cluster, scheduler: Scheduler) -> None:
    await cluster.node("n1", cards=[1000, 9000, 5000])
    await known(scheduler, "n1")
    assert await scheduler.bind(await cluster.pod("a", 4000), node="n1") == ""
    assert await cluster.card_of("a") == "2"


async def test_V16_a_container_over_several_cards(cluster: Cluster, scheduler: Scheduler) -> None:
    await cluster.node("n1", cards=[6000, 4000, 6000])
    await known(scheduler, "n1")
    pod = await cluster.pod("a", 10000, slots=2)
    assert await scheduler.bind(pod, node="n1") == ""
    annotations = (await cluster.live("a"))["metadata"]["annotations"]
    assert annotations[NAMES.index] == "0,2"
    assert annotations[NAMES.pod_memory] == "5000"
    assert json.loads(annotations[NAMES.allocation]) == {
        "node": "n1",
        "cards": [{"index": 0, "uuid": "GPU-n1-0"}, {"index": 2, "uuid": "GPU-n1-2"}],
        "containers": {"main": [5000, 5000]},
    }
    assert await scheduler.free("n1") == [1000, 4000, 1000]
    await cluster.delete("a")
    await scheduler.released(pod["metadata"]["uid"])
    assert await scheduler.free("n1") == [6000, 4000, 6000]


async def test_V16_memory_that_does_not_divide_is_refused(cluster: Cluster, scheduler: Scheduler) -> None:
    await cluster.node("n1", cards=[16384, 16384])
    await known(scheduler, "n1")
    answer = await scheduler.filter(asking("10001", slots="2"), nodes=["n1"])
    assert "does not divide evenly" in answer["Error"]


async def test_V17_more_than_one_card_of_one_card(cluster: Cluster, scheduler: Scheduler) -> None:
    await cluster.node("n1", cards=[16384, 16384])
    await known(scheduler, "n1")
    answer = await scheduler.filter(asking("20000"), nodes=["n1"])
    assert answer["FailedAndUnresolvableNodes"] == {
        "n1": "GPU memory request is larger than any card of the node"
    }


async def test_slots_of_a_card_are_a_limit_of_their_own(cluster: Cluster, scheduler: Scheduler) -> None:
    await cluster.node("n1", cards=[8192], slots=2)
    await known(scheduler, "n1")
    pair = [container("one", memory=100), container("two", memory=100)]
    assert await scheduler.bind(await cluster.pod("a", containers=pair), node="n1") == ""
    answer = await scheduler.filter(asking("100"), nodes=["n1"])
    assert answer["FailedNodes"] == {"n1": "GPU cards with enough memory left have no slot left"}


async def test_a_pod_without_the_resource_passes_everywhere(scheduler: Scheduler) -> None:
    pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "main"}]}}
    assert (await scheduler.filter(pod, nodes=["x", "y"]))["NodeNames"] == ["x", "y"]


async def test_filter_and_prioritize_change_nothing(cluster: Cluster, scheduler: Scheduler) -> None:
    await cluster.node("n1", cards=[8192])
    await known(scheduler, "n1")
    for _ in range(5):
        assert await scheduler.fits(asking("8192"), node="n1")
        assert await scheduler.prioritize(asking("8192"), nodes=["n1"]) == {"n1": 10}
    assert await scheduler.free("n1") == [8192]


async def test_binpack_prefers_the_exact_fit_and_one_node_gets_ten(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    sizes = {"n1": 12207, "n2": 8138, "n3": 4069, "n4": 16276, "n5": 12207}
    for name, size in sizes.items():
        await cluster.node(name, cards=[size])
    await known(scheduler, *sizes)
    scores = await scheduler.prioritize(asking("8138"), nodes=["n1", "n2", "n3", "n4", "n5"])
    assert scores["n2"] == 10
    assert scores["n3"] == 0
    assert 10 > scores["n1"] > scores["n5"] > scores["n4"]


async def test_spread_prefers_the_emptiest_and_a_pod_may_ask_for_it(cluster: Cluster) -> None:
    await cluster.node("n1", cards=[8192])
    await cluster.node("n2", cards=[16384])
    async with cluster.extender(policy=Policy.SPREAD) as spread, cluster.extender() as pack:
        await known(spread, "n1", "n2")
        await known(pack, "n1", "n2")
        plain, wants_spread = asking("4000"), asking("4000", **{NAMES.policy: "spread"})
        assert (await spread.prioritize(plain, nodes=["n1", "n2"]))["n2"] == 10
        assert (await pack.prioritize(plain, nodes=["n1", "n2"]))["n1"] == 10
        assert (await pack.prioritize(wants_spread, nodes=["n1", "n2"]))["n2"] == 10


async def test_a_policy_nobody_knows_is_an_error_that_names_it(scheduler: Scheduler) -> None:
    answer = await scheduler.filter(asking("10", **{NAMES.policy: "bestfit"}), nodes=["n1"])
    assert answer["Error"] == "annotation aliyun.com/gpu-policy: 'bestfit' is not binpack or spread"


async def test_equal_nodes_are_ranked_by_name(cluster: Cluster, scheduler: Scheduler) -> None:
    names = [f"n{number:02d}" for number in range(20)]
    for name in names:
        await cluster.node(name, cards=[8192])
    await known(scheduler, *names)
    scores = await scheduler.prioritize(asking("100"), nodes=list(reversed(names)))
    assert [name for name, score in scores.items() if score == 10] == ["n00"]
    assert [scores[name] for name in names] == sorted(scores.values(), reverse=True)
    assert set(scores.values()) <= set(range(11))


def recorded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((WIRE / f"{name}.json").read_text())
    return found


async def recorded_nodes(cluster: Cluster, scheduler: Scheduler) -> None:
    """The nodes that the recordings name, the first of them too small."""
    for name, size in {"gpu-a10-0": 4096, "gpu-a10-1": 24576, "gpu-l4-0": 16384}.items():
        await cluster.node(name, cards=[size, size])
    await known(scheduler, "gpu-a10-0", "gpu-a10-1", "gpu-l4-0")


async def test_the_recorded_filter_by_names(cluster: Cluster, scheduler: Scheduler) -> None:
    await recorded_nodes(cluster, scheduler)
    recording = recorded("filter-node-names")
    answer = (await scheduler.post(recording["path"], recording["body"])).json()
    assert answer["NodeNames"] == ["gpu-a10-1", "gpu-l4-0"]
    assert list(answer["FailedAndUnresolvableNodes"]) == ["gpu-a10-0"]
    assert answer["Nodes"] is None


async def test_the_recorded_filter_by_nodes(cluster: Cluster, scheduler: Scheduler) -> None:
    await recorded_nodes(cluster, scheduler)
    recording = recorded("filter-nodes")
    answer = (await scheduler.post(recording["path"], recording["body"])).json()
    sent = recording["body"]["Nodes"]["items"]
    assert answer["Nodes"]["items"] == [
        node for node in sent if node["metadata"]["name"] in node_names(answer)
    ]
    assert answer["NodeNames"] is None


def node_names(body: dict[str, Any]) -> list[str]:
    return [node["metadata"]["name"] for node in body["Nodes"]["items"]]


@pytest.mark.parametrize("name", ["prioritize-node-names", "prioritize-nodes"])
async def test_the_recorded_prioritize(cluster: Cluster, scheduler: Scheduler, name: str) -> None:
    await recorded_nodes(cluster, scheduler)
    recording = recorded(name)
    scores = (await scheduler.post(recording["path"], recording["body"])).json()
    asked = recording["body"]["NodeNames"] or node_names(recording["body"])
    assert [score["Host"] for score in scores] == asked
    assert [score["Score"] for score in scores].count(10) == 1


async def test_the_recorded_bind_is_understood(cluster: Cluster, scheduler: Scheduler) -> None:
    recording = recorded("bind")
    answer = (await scheduler.post(recording["path"], recording["body"])).json()
    body = recording["body"]
    assert answer["Error"] == (
        f"pod {body['PodNamespace']}/{body['PodName']} with UID {body['PodUID']} is gone"
    )
