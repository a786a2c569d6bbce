"""Which cards and which node: against every possible assignment, and against the documented order."""

import itertools
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpushare.demand import Demand, Share
from gpushare.errors import PolicyError
from gpushare.placement import (
    CardRoom,
    Policy,
    choose_cards,
    in_order,
    node_preference,
    policy_of,
    rank_scores,
)
from tests.build import NAMES

amounts = st.builds(Share, memory=st.integers(0, 12), slots=st.integers(0, 3))
rooms = st.lists(amounts, max_size=5).map(
    lambda free: [CardRoom(index=index, free=share) for index, share in enumerate(free)]
)


def narrowing(shares: list[Share]) -> Demand:
    """A demand as pods have them: every position needs at most what the one before needs."""
    cards = list(itertools.accumulate(reversed(shares), lambda later, more: later.peak(more)))
    return Demand(cards=tuple(reversed(cards)), containers=())


demands = st.lists(
    st.builds(Share, memory=st.integers(1, 12), slots=st.integers(1, 3)), min_size=1, max_size=3
).map(narrowing)
policies = st.sampled_from(Policy)


def choose(demand: Demand, *, of: Sequence[CardRoom], policy: Policy) -> tuple[CardRoom, ...] | None:
    return choose_cards(demand, preferred=in_order(of, policy=policy))


def some_assignment_fits(demand: Demand, *, of: Sequence[CardRoom]) -> bool:
    return any(
        all(
            share.memory <= room.free.memory and share.slots <= room.free.slots
            for share, room in zip(demand.cards, chosen, strict=True)
        )
        for chosen in itertools.permutations(of, len(demand.cards))
    )


@given(demand=demands, of=rooms, policy=policies)
def test_cards_are_found_exactly_when_some_assignment_fits(
    demand: Demand, of: list[CardRoom], policy: Policy
) -> None:
    chosen = choose(demand, of=of, policy=policy)
    assert (chosen is not None) == some_assignment_fits(demand, of=of)
    if chosen is not None:
        assert len({room.index for room in chosen}) == len(chosen) == len(demand.cards)
        assert all(share.fits(room.free) for share, room in zip(demand.cards, chosen, strict=True))
        assert all(room in of for room in chosen)


@given(demand=demands, of=rooms, shuffled=st.randoms(use_true_random=False), policy=policies)
def test_the_choice_does_not_depend_on_the_order_cards_are_listed_in(
    demand: Demand, of: list[CardRoom], shuffled: random.Random, policy: Policy
) -> None:
    other = list(of)
    shuffled.shuffle(other)
    assert choose(demand, of=other, policy=policy) == choose(demand, of=of, policy=policy)


@given(demand=demands, of=rooms, policy=policies)
def test_each_position_takes_the_policys_best_card_of_those_that_fit_and_are_left(
    demand: Demand, of: list[CardRoom], policy: Policy
) -> None:
    chosen = choose(demand, of=of, policy=policy)
    if chosen is None:
        return
    left = list(of)
    for share, room in zip(demand.cards, chosen, strict=True):
        fitting = [other for other in left if share.fits(other.free)]
        best = (min if policy is Policy.BINPACK else max)(other.free.memory for other in fitting)
        assert room.free.memory == best
        assert room.index == min(other.index for other in fitting if other.free.memory == best)
        left.remove(room)


@pytest.mark.parametrize(
    ("policy", "index"), [(Policy.BINPACK, 1), (Policy.SPREAD, 3)], ids=["binpack", "spread"]
)
def test_8138_takes_the_exact_fit_or_the_emptiest_card(policy: Policy, index: int) -> None:
    of = [
        CardRoom(index=number, free=Share(memory=memory, slots=1))
        for number, memory in enumerate((12207, 8138, 4069, 16276))
    ]
    chosen = choose(Demand(cards=(Share(memory=8138, slots=1),), containers=()), of=of, policy=policy)
    assert chosen is not None
    assert [room.index for room in chosen] == [index]


def test_no_cards_and_no_demand() -> None:
    nothing = Demand(cards=(), containers=())
    something = Demand(cards=(Share(memory=1, slots=1),), containers=())
    assert choose(nothing, of=[], policy=Policy.BINPACK) == ()
    assert choose(something, of=[], policy=Policy.BINPACK) is None


def preference(
    demand: Demand, *, of: Sequence[CardRoom], policy: Policy, name: str = "n"
) -> tuple[int, int, str] | None:
    return node_preference(demand, preferred=in_order(of, policy=policy), policy=policy, name=name)


@given(demand=demands, nodes=st.dictionaries(st.sampled_from("abcdef"), rooms, min_size=1), policy=policies)
def test_the_best_node_is_the_one_whose_chosen_cards_have_least_or_most_left(
    demand: Demand, nodes: dict[str, list[CardRoom]], policy: Policy
) -> None:
    keys = {name: preference(demand, of=of, policy=policy, name=name) for name, of in nodes.items()}
    for name, of in nodes.items():
        assert (keys[name] is not None) == some_assignment_fits(demand, of=of)
    ranked = sorted(key for key in keys.values() if key is not None)
    if not ranked:
        return

    def left(name: str) -> tuple[int, int]:
        chosen = choose(demand, of=nodes[name], policy=policy)
        assert chosen is not None
        return sum(room.free.memory for room in chosen), sum(room.free.memory for room in nodes[name])

    names = [name for *_, name in ranked]
    amounts_left = [left(name) for name in names]
    assert amounts_left == sorted(amounts_left, reverse=policy is Policy.SPREAD)
    for (one, name), (other, later) in itertools.pairwise(zip(amounts_left, names, strict=True)):
        assert one != other or name < later, "equal nodes in a fixed order: kube-scheduler draws lots"


@given(st.integers(0, 300))
def test_scores_have_exactly_one_ten_and_never_rise(nodes: int) -> None:
    ranked = [f"n{number}" for number in range(nodes)]
    scores = rank_scores(ranked)
    assert list(scores) == ranked
    values = list(scores.values())
    assert all(type(value) is int and 0 <= value <= 10 for value in values)
    assert values.count(10) == min(1, nodes)
    assert values == sorted(values, reverse=True)
    assert values[:1] == [10][:nodes]


def test_scores_of_many_nodes_use_the_whole_range() -> None:
    assert set(rank_scores([f"n{number}" for number in range(5000)]).values()) == set(range(11))
    assert list(rank_scores(["a", "b", "c"]).values()) == [10, 9, 4]


@pytest.mark.parametrize(
    ("annotations", "policy"),
    [
        ({}, Policy.SPREAD),
        ({"aliyun.com/gpu-policy": "binpack"}, Policy.BINPACK),
        ({"other": "x"}, Policy.SPREAD),
    ],
)
def test_a_pods_own_policy_comes_before_the_clusters(annotations: dict[str, str], policy: Policy) -> None:
    assert policy_of(annotations, names=NAMES, default=Policy.SPREAD) is policy


@pytest.mark.parametrize("wanted", ["", "Binpack", "binpack ", "random", "x" * 100_000])
def test_I7_an_unknown_policy_is_an_error_that_names_the_known_ones(wanted: str) -> None:
    with pytest.raises(PolicyError, match="binpack or spread") as raised:
        policy_of({NAMES.policy: wanted}, names=NAMES, default=Policy.BINPACK)
    assert len(str(raised.value)) < 300
