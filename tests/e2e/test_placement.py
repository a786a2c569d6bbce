"""kube-scheduler, the extender and the API server, all real: where pods land, and why not."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

import pytest

from tests.build import NAMES
from tests.e2e.api import Api, Object
from tests.e2e.controlplane import ControlPlane
from tests.e2e.pair import Pair
from tests.e2e.programs import DEADLINE, eventually
from tests.e2e.workload import add_node, container, held, place, placement, pod, refused, until_placed

pytestmark = pytest.mark.usefixtures("clean")

PODS = "/api/v1/namespaces/default/pods"
NO_CARD = "no single GPU card has enough memory left"


@pytest.fixture
def api(plane: ControlPlane, pair: Pair) -> Api:
    return plane.api


def test_L1_cards_are_filled_one_by_one_and_their_rest_is_not_added_up(api: Api, pair: Pair) -> None:
    add_node(api, "n1", cards=[23552] * 4)
    cards = Counter(place(api, pod(f"p{number}", 10240))[1] for number in range(8))
    assert cards == {"0": 2, "1": 2, "2": 2, "3": 2}
    refused(api, pod("ninth", 10240), because=NO_CARD)
    assert pair.used("n1") == [20480] * 4


def test_L14_mixed_sizes_each_find_the_card_that_they_fit(api: Api) -> None:
    add_node(api, "n1", cards=[8192, 16384])
    assert place(api, pod("large", 12000)) == ("n1", "1")
    refused(api, pod("as-large", 12000), because=NO_CARD)
    assert place(api, pod("small", 8192)) == ("n1", "0")


def sidecar(name: str, memory: int) -> Object:
    return container(name, memory, restartPolicy="Always")


@pytest.mark.parametrize(
    ("init", "app", "expected"),
    [
        ([container("i", 4000)], container("a", 3000), 4000),
        ([sidecar("s", 1000)], container("a", 3000), 4000),
        ([sidecar("s", 1000), container("i", 5000)], container("a", 3000), 6000),
        ([container("i", 5000), sidecar("s", 1000)], container("a", 3000), 5000),
        ([container("i", 2000)], container("a"), 2000),
    ],
    ids=["init", "sidecar", "sidecar-then-init", "init-then-sidecar", "init-only"],
)
def test_L15_init_containers_and_sidecars_count_as_kubernetes_counts(
    api: Api, pair: Pair, init: Sequence[Object], app: Object, expected: int
) -> None:
    add_node(api, "short", cards=[expected - 1, 1000])
    asked = pod("a", containers=[app], initContainers=init)
    refused(api, asked, because="GPU memory request is larger than any card of the node")
    add_node(api, "exact", cards=[expected])
    eventually(lambda: placement(api.pod("a")) == ("exact", "0"), what="it is on the card that it just fits")
    assert pair.used("exact") == [expected]


def test_V3_bound_twice_is_bound_once(api: Api, pair: Pair) -> None:
    for node in ("n1", "n2"):
        add_node(api, node, cards=[10000, 10000])
    place(api, pod("first", 3000))
    # Nobody schedules it: what follows is a kube-scheduler that has lost an answer and asks again.
    created = api.create(pod("a", 3000, schedulerName="nobody"))
    asked = {"PodName": "a", "PodNamespace": "default", "PodUID": created["metadata"]["uid"], "Node": "n1"}
    assert [pair.verb("bind", asked)["Error"] for _ in range(2)] == ["", ""]
    card = placement(api.pod("a"))
    assert pair.verb("bind", asked)["Error"] == ""
    assert placement(api.pod("a")) == card
    assert "n1" in pair.verb("bind", {**asked, "Node": "n2"})["Error"]
    for node in ("n1", "n2"):
        booked = {key: units for key, units in held(api.pods()).items() if key[0] == node}
        assert sum(pair.used(node)) == sum(booked.values())


def test_L13_room_that_is_made_is_used_at_once(api: Api) -> None:
    # kube-scheduler asks again on the event that makes room. Refused then, since the watch of a busy machine
    # lags by more than filter waits, a pod waits for the time of the chart's flag and the queue's next flush.
    latest = 60 + 30 + DEADLINE
    took = []
    add_node(api, "n1", cards=[10000, 10000])
    place(api, pod("stays", 6000))
    for number in range(3):
        place(api, pod(f"goes-{number}", 6000))
        refused(api, pod(f"waits-{number}", 8000), because=NO_CARD)
        api.delete(f"{PODS}/goes-{number}", gracePeriodSeconds="0")
        began = time.monotonic()
        until_placed(api, f"waits-{number}", seconds=latest)
        took.append(time.monotonic() - began)
        api.delete(f"{PODS}/waits-{number}", gracePeriodSeconds="0")
    assert min(took) < DEADLINE, took


def test_V12_a_pod_of_no_units_is_placed_and_charged_nothing(api: Api, pair: Pair) -> None:
    add_node(api, "n1", cards=[1000])
    place(api, pod("full", 1000))
    created = api.create(pod("none", 0))
    eventually(lambda: api.pod("none")["spec"].get("nodeName"), what="it is bound")
    assert NAMES.index not in api.pod(created["metadata"]["name"])["metadata"].get("annotations", {})
    assert pair.used("n1") == [1000]


def test_a_pod_over_two_cards_gets_two(api: Api, pair: Pair) -> None:
    add_node(api, "n1", cards=[6000, 4000, 6000])
    wide = container(memory=10000)
    wide["resources"]["limits"][NAMES.slot] = "2"
    assert place(api, pod("wide", containers=[wide])) == ("n1", "0,2")
    assert pair.used("n1") == [5000, 0, 5000]
    api.clear_pods()
    eventually(lambda: pair.used("n1") == [0, 0, 0], what="the cards are free again")
