"""The search for the smallest eviction, against every subset."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpushare.bookings import PodRef
from gpushare.demand import NOTHING, Demand, Share
from gpushare.victims import Leaving, Room, smallest_eviction
from tests.gpushare.test_placement import narrowing

CARDS = 4


def leaving(number: int, cards: dict[int, Share], *, hidden: Share = NOTHING) -> Leaving:
    ref = PodRef(uid=f"p{number}", namespace="default", name=f"p{number}")
    return Leaving(pod=ref, cards=cards, node=sum(cards.values(), hidden))


held = st.builds(Share, memory=st.integers(0, 9), slots=st.integers(1, 3))
pods = st.lists(
    st.dictionaries(st.integers(0, CARDS - 1), held, min_size=0, max_size=3), min_size=0, max_size=9
).map(lambda found: [leaving(number, cards) for number, cards in enumerate(found)])
free = st.builds(Share, memory=st.integers(-4, 12), slots=st.integers(-2, 3))
rooms = st.builds(
    Room,
    cards=st.dictionaries(st.integers(0, CARDS - 1), free, min_size=CARDS, max_size=CARDS),
    node=st.builds(Share, memory=st.integers(-10, 40), slots=st.integers(-5, 10)),
)
demands = st.lists(
    st.builds(Share, memory=st.integers(1, 20), slots=st.integers(1, 4)), min_size=1, max_size=3
).map(narrowing)


def is_enough(pods: Sequence[Leaving], *, room: Room, demand: Demand) -> bool:
    """By trying every assignment of cards."""
    cards = {
        index: sum((pod.cards[index] for pod in pods if index in pod.cards), share)
        for index, share in room.cards.items()
    }
    total = sum(demand.cards, NOTHING)
    return total.fits(sum((pod.node for pod in pods), room.node)) and any(
        all(share.fits(card) for share, card in zip(demand.cards, chosen, strict=True))
        for chosen in itertools.permutations(cards.values(), len(demand.cards))
    )


def best_of_all(pods: Sequence[Leaving], *, room: Room, demand: Demand) -> list[int] | None:
    """The fewest; of these the one whose most important pod comes last, then its second, and so on."""
    for count in range(len(pods) + 1):
        enough = [
            chosen
            for chosen in itertools.combinations(range(len(pods)), count)
            if is_enough([pods[position] for position in chosen], room=room, demand=demand)
        ]
        if enough:
            return list(max(enough))
    return None


@settings(max_examples=600)
@given(pods=pods, room=rooms, demand=demands)
def test_no_subset_is_smaller_and_none_as_small_matters_less(
    pods: list[Leaving], room: Room, demand: Demand
) -> None:
    found = smallest_eviction(pods, room=room, demand=demand, patience=10**9)
    best = best_of_all(pods, room=room, demand=demand)
    assert (None if found is None else [pods.index(pod) for pod in found]) == best


@settings(max_examples=300)
@given(pods=pods, room=rooms, demand=demands)
def test_a_search_cut_short_still_finds_a_set_without_a_needless_pod(
    pods: list[Leaving], room: Room, demand: Demand
) -> None:
    found = smallest_eviction(pods, room=room, demand=demand, patience=0)
    assert (found is None) == (best_of_all(pods, room=room, demand=demand) is None)
    for pod in found or ():
        others = [other for other in found or () if other is not pod]
        assert not is_enough(others, room=room, demand=demand)
    assert found is None or is_enough(found, room=room, demand=demand)


def test_taking_the_largest_first_would_evict_more() -> None:
    """Memory alone would start with the 9, which leaves two slots to find: three pods."""
    pods = [
        leaving(number, {0: Share(memory=memory, slots=slots)})
        for number, (memory, slots) in enumerate([(9, 1), (5, 2), (5, 2), (1, 1)])
    ]
    demand = Demand(cards=(Share(memory=10, slots=4),), containers=())
    room = Room(cards={0: NOTHING}, node=Share(memory=99, slots=99))
    found = smallest_eviction(pods, room=room, demand=demand)
    assert [pod.pod.uid for pod in found or ()] == ["p1", "p2"]


@pytest.mark.parametrize("wanted", [1, 2, 4, 8])
def test_full_nodes_are_searched_without_turning_back(wanted: int) -> None:
    """8 cards of 32 pods of uneven sizes: the search asks some hundred times, far below its patience."""
    pods = [
        leaving(number, {number % 8: Share(memory=100 + 37 * number % 911, slots=1)}) for number in range(256)
    ]
    room = Room(cards=dict.fromkeys(range(8), NOTHING), node=Share(memory=10**6, slots=10**6))
    demand = Demand(cards=(Share(memory=5000, slots=1),) * wanted, containers=())
    found = smallest_eviction(pods, room=room, demand=demand)
    assert found == smallest_eviction(pods, room=room, demand=demand, patience=10**9)
    assert found is not None
    assert is_enough_quickly(found, room=room, demand=demand)


def is_enough_quickly(pods: Sequence[Leaving], *, room: Room, demand: Demand) -> bool:
    return room.without(pods).takes(demand)
