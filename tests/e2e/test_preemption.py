"""Real preemption (V11): who goes, for whom, and that the urgent pod gets the card that became free."""

from __future__ import annotations

import pytest

from tests.e2e.api import Api
from tests.e2e.controlplane import ControlPlane
from tests.e2e.pair import Pair
from tests.e2e.workload import add_node, place, pod, refused

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
