"""Real preemption (V11): who goes, for whom, and that the urgent pod gets the card that became free."""

from __future__ import annotations

import pytest

from tests.e2e.api import NAMESPACE, Api
from tests.e2e.controlplane import ControlPlane
from tests.e2e.pair import Pair
from tests.e2e.programs import eventually
from tests.e2e.workload import add_node, place, placement, pod, refused, until_placed

pytestmark = pytest.mark.usefixtures("clean")

URGENT = "e2e-urgent"


@pytest.fixture
def api(plane: ControlPlane, pair: Pair) -> Api:
    plane.api.ensure(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": URGENT},
            "value": 1000,
        }
    )
    return plane.api


def names(api: Api) -> set[str]:
    return {item["metadata"]["name"] for item in api.pods()}


def test_V11_one_victim_goes_and_its_card_is_the_urgent_pods(api: Api) -> None:
    add_node(api, "n1", cards=[10000, 10000])
    cards = {name: place(api, pod(name, 6000))[1] for name in ("v1", "v2")}
    assert sorted(cards.values()) == ["0", "1"]
    _, card = place(api, pod("urgent", 9000, priorityClassName=URGENT))
    (left,) = names(api) - {"urgent"}
    assert card != cards[left]


def test_V11_the_victim_is_the_one_whose_going_frees_a_card(api: Api) -> None:
    add_node(api, "n1", cards=[10000, 10000])
    assert place(api, pod("alone", 6000)) == ("n1", "0")
    assert place(api, pod("beside", 7000)) == ("n1", "1")
    assert place(api, pod("small", 3000)) == ("n1", "1")
    # Without `beside` the totals would do as well, but card 1 would still hold `small`.
    assert place(api, pod("urgent", 9000, priorityClassName=URGENT)) == ("n1", "0")
    assert names(api) == {"beside", "small", "urgent"}


def test_V11_nobody_goes_where_that_frees_no_card(api: Api) -> None:
    add_node(api, "n1", cards=[10000, 10000])
    for name in ("k1", "k2"):
        place(api, pod(name, 6000, priorityClassName=URGENT))
    place(api, pod("small", 3000))
    # Without `small` 8000 would be free, on two cards.
    refused(api, pod("urgent", 6000, priorityClassName=URGENT), because="no candidate node for preemption")
    assert names(api) == {"k1", "k2", "small", "urgent"}


def test_V11_a_card_that_is_being_cleared_is_the_urgent_pods_alone(api: Api, pair: Pair) -> None:
    """Two victims end one after the other, and meanwhile smaller pods keep coming."""
    add_node(api, "n1", cards=[10000] * 4)
    for name in ("v1", "v2"):
        assert place(api, pod(name, 3000, terminationGracePeriodSeconds=600)) == ("n1", "0")
    kept = {"k1": "1", "k2": "2", "k3": "3"}
    for name, card in kept.items():
        assert place(api, pod(name, 8500, priorityClassName=URGENT)) == ("n1", card)
    # 8500 are free, on four cards; without one victim the totals would do, but card 0 needs both gone.
    api.create(pod("urgent", 9000, priorityClassName=URGENT))
    eventually(lambda: ending(api) == {"v1", "v2"}, what="both victims are told to end")
    eventually(lambda: api.pod("urgent")["status"].get("nominatedNodeName") == "n1", what="n1 is cleared")
    end(api, "v1")
    eventually(lambda: pair.used("n1") == [3000, 8500, 8500, 8500], what="v1's share is free")
    # To kube-scheduler 11,500 are free, of which it keeps 9,000 for `urgent`: 2,000 seem to fit, and card 0
    # has 7,000 left.
    assert place(api, pod("beside", 400)) == ("n1", "1")
    waiting = ["low-1", "low-2", "low-3"]
    for name in waiting:
        refused(api, pod(name, 2000), because="no single GPU card has enough memory left")
    end(api, "v2")
    assert until_placed(api, "urgent") == ("n1", "0")
    assert names(api) == {"beside", "urgent", *kept, *waiting}, "nobody else was evicted"
    assert {placement(api.pod(name)) for name in waiting} == {("", "")}


def ending(api: Api) -> set[str]:
    return {item["metadata"]["name"] for item in api.pods() if item["metadata"].get("deletionTimestamp")}


def end(api: Api, name: str) -> None:
    """Its containers have ended, says its kubelet."""
    api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{name}", gracePeriodSeconds="0")
