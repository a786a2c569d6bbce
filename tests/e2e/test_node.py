"""The whole way on a real kubelet: what the containers find is what was decided, whatever the order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpushare.names import VISIBLE_DEVICES
from tests.build import NAMES
from tests.e2e import binaries
from tests.e2e.api import Api, Object
from tests.e2e.controlplane import ControlPlane, controllers
from tests.e2e.installation import CARDS, Installation
from tests.e2e.kubelet import NODE, SAMPLES_IMAGE, RealNode, real_node
from tests.e2e.pair import Pair
from tests.e2e.programs import Program, eventually
from tests.e2e.workload import container, pod

SAMPLES = Path(__file__).parents[2] / "samples"
SHOW = ["sh", "-c", "env | grep -E '^(NVIDIA|ALIYUN)' | sort; exec sleep 100000"]
SPREAD = {NAMES.policy: "spread"}
TOTAL = sum(int(str(card["memory"])) for card in CARDS)

pytestmark = pytest.mark.skipif(bool(binaries.no_node()), reason=f"no real kubelet: {binaries.no_node()}")


@pytest.fixture(scope="module")
def node(plane: ControlPlane, pair: Pair) -> Iterator[RealNode]:
    with real_node(plane) as started:
        yield started
    plane.api.clear_pods()
    plane.api.delete("/api/v1/nodes")


@pytest.fixture(scope="module")
def agent(node: RealNode, installation: Installation) -> Iterator[list[Program]]:
    """The device plugin; the last of the list is the one that runs."""
    started = [node.start_agent(installation)]
    eventually(lambda: allocatable(node.plane.api) == (str(TOTAL), "128"), what="the node has cards")
    yield started
    for program in started:
        program.stop()
        assert program.denied() == []


@pytest.fixture
def api(agent: list[Program], plane: ControlPlane) -> Iterator[Api]:
    yield plane.api
    for item in plane.api.pods():
        plane.api.delete(
            f"/api/v1/namespaces/default/pods/{item['metadata']['name']}", gracePeriodSeconds="1"
        )
    eventually(lambda: plane.api.pods() == [], what="kubelet has taken all pods away")


def allocatable(api: Api) -> tuple[str, str]:
    amounts = api.get(f"/api/v1/nodes/{NODE}")["status"]["allocatable"]
    return amounts.get(NAMES.memory, ""), amounts.get(NAMES.slot, "")


def shown(name: str = "main", memory: int | None = None, **more: Any) -> Object:
    """A container that prints what it was given."""
    return container(name, memory) | {"image": SAMPLES_IMAGE, "command": SHOW, **more}


def until_running(api: Api, *names: str) -> list[Object]:
    """The pods, once each runs; fails at once with its reason if one does not."""

    def all_run() -> bool:
        pods = [api.pod(name) for name in names]
        failed = [item["status"] for item in pods if item["status"].get("phase") == "Failed"]
        assert failed == []
        return all(item["status"].get("phase") == "Running" for item in pods)

    eventually(all_run, what=f"{', '.join(names)} run", seconds=60)
    return [api.pod(name) for name in names]


def chosen(item: Object) -> list[str]:
    """The UUIDs of the cards that a pod was given by the scheduler."""
    written = json.loads(item["metadata"]["annotations"][NAMES.allocation])
    return [card["uuid"] for card in written["cards"]]


def check(node: RealNode, item: Object) -> None:
    """Every container that asked sees its pod's cards, and by kubelet's record holds slots of them."""
    spec = item["spec"]
    for each in [*spec.get("initContainers", []), *spec["containers"]]:
        limits = each["resources"].get("limits", {})
        given = node.environment(item, each["name"])
        if NAMES.memory not in limits:
            assert VISIBLE_DEVICES not in given
            continue
        cards = chosen(item)[: int(limits[NAMES.slot])]
        assert given[VISIBLE_DEVICES] == ",".join(cards)
        if each in spec["containers"]:
            assert node.slots(item)[each["name"]] == set(cards)


def bind(pair: Pair, item: Object) -> None:
    """Ask the extender to bind it to the node, as kube-scheduler does."""
    meta = item["metadata"]
    asked = {"PodName": meta["name"], "PodNamespace": "default", "PodUID": meta["uid"], "Node": NODE}
    assert pair.verb("bind", asked)["Error"] == ""


@pytest.fixture
def deployments(plane: ControlPlane) -> Iterator[None]:
    """Somebody who makes the pods of a Deployment."""
    if absent := binaries.missing(("kube-controller-manager",)):
        pytest.skip(f"nobody makes the pods of a Deployment: {absent}")
    with controllers(plane, "deployment-controller", "replicaset-controller"):
        yield


@pytest.mark.parametrize("sample", ["init-container", "two-cards", "two-containers"])
def test_a_sample_runs_as_it_says(api: Api, node: RealNode, sample: str) -> None:
    api.create(yaml.safe_load((SAMPLES / f"{sample}.yaml").read_text()))
    (item,) = until_running(api, sample)
    check(node, item)


def test_the_sample_deployment_fills_one_card(api: Api, node: RealNode, deployments: None) -> None:
    api.create(yaml.safe_load((SAMPLES / "deployment.yaml").read_text()))
    eventually(lambda: len(api.pods(labelSelector="app=inference")) == 3, what="its pods are there")
    pods = until_running(api, *(item["metadata"]["name"] for item in api.pods()))
    for item in pods:
        check(node, item)
    assert len({card for item in pods for card in chosen(item)}) == 1
    api.delete("/apis/apps/v1/namespaces/default/deployments/inference")
    api.delete("/apis/apps/v1/namespaces/default/replicasets")


def test_A7_containers_of_one_pod_share_its_card_and_are_told_their_own_share(
    api: Api, node: RealNode, pair: Pair
) -> None:
    api.create(pod("first", containers=[shown(memory=15000)]))
    until_running(api, "first")
    asked = [shown("proxy", 0), shown("c1", 1000), shown("log"), shown("c2", 2000)]
    api.create(pod("a", containers=asked))
    (item,) = until_running(api, "a")
    eventually(lambda: node.output(item, "c2"), what="the last container has started")
    (card,) = chosen(item)
    for name, memory in (("c1", "1000"), ("c2", "2000")):
        given = node.environment(item, name)
        assert given[VISIBLE_DEVICES] == card
        assert given[NAMES.container_memory] == memory
        assert given[NAMES.pod_memory] == "3000"
    assert card not in node.output(item, "log")


def test_A2_a_burst_of_equal_pods_over_all_cards_each_get_their_own(api: Api, node: RealNode) -> None:
    names = [f"b{number}" for number in range(24)]
    for name in names:
        api.create(pod(name, containers=[shown(memory=2000)], annotations=SPREAD))
    pods = until_running(api, *names)
    assert {card for item in pods for card in chosen(item)} == {card["uuid"] for card in CARDS}
    for item in pods:
        check(node, item)


@pytest.mark.parametrize("restarted", [False, True], ids=["same-plugin", "plugin-restarted"])
def test_A4_a_pod_that_was_served_is_not_taken_for_another(
    api: Api, node: RealNode, agent: list[Program], installation: Installation, *, restarted: bool
) -> None:
    api.create(pod("a", containers=[shown(memory=2000)], annotations=SPREAD))
    (first,) = until_running(api, "a")
    # As if the plugin had not been able to mark it.
    unmarked = {"metadata": {"annotations": {NAMES.assigned: "false"}}}
    api.merge("/api/v1/namespaces/default/pods/a", unmarked)
    if restarted:
        agent[-1].stop()
        agent.append(node.start_agent(installation, name=f"device-plugin-{len(agent)}"))
    api.create(pod("b", containers=[shown(memory=2000)], annotations=SPREAD))
    (second,) = until_running(api, "b")
    assert chosen(second) != chosen(first)
    check(node, second)


def test_A1_kubelet_asks_for_the_pod_that_was_created_first_not_bound_first(
    api: Api, node: RealNode, agent: list[Program], pair: Pair
) -> None:
    early = api.create(pod("b", containers=[shown(memory=1000)], annotations=SPREAD, schedulerName="nobody"))
    second = early["metadata"]["creationTimestamp"]
    eventually(lambda: datetime.now(UTC).strftime("%FT%TZ") > second, what="the next second")
    late = api.create(pod("a", containers=[shown(memory=2000)], schedulerName="nobody"))
    node.stop_kubelet()
    bind(pair, late)
    bind(pair, early)
    node.start_kubelet()  # it lists the pods of its node, and admits them in the order of their creation
    pods = until_running(api, "a", "b")
    assert chosen(pods[0]) != chosen(pods[1])
    for item in pods:
        check(node, item)
    told = agent[-1].text()
    assert 0 < told.rindex("allocated pod=default/b") < told.rindex("allocated pod=default/a")
