"""Cards that are being cleared for a nominated pod (case V11): who may still get what of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpushare.bookings import PodRef
from gpushare.demand import NOTHING, Demand, Share
from gpushare.errors import NoRoomError
from gpushare.ledger import Ledger
from gpushare.nominations import Nominated, Nominations, choose_beside, places
from gpushare.objects import Pod
from gpushare.placement import Policy, choose_cards
from gpushare.preemption import Preemptor, choose_victims
from tests import build
from tests.build import NAMES, demand, node

URGENT = 100


def running(name: str, memory: int, card: int = 0, *, priority: int = 0, ending: bool = False) -> Pod:
    """`V1 6000@0`, of priority 0 unless it says otherwise; the UID is the name."""
    return build.pod(name, memory=memory, uid=name, on="n1", cards=[card], priority=priority, deleting=ending)


def waiting(name: str, memory: int, *, priority: int = 0, **options: object) -> Pod:
    return build.pod(name, memory=memory, uid=name, priority=priority, **options)  # type: ignore[arg-type]


class Cluster:
    """n1, who is on it, and who is nominated to which node."""

    def __init__(self, *pods: Pod, cards: Sequence[int]) -> None:
        self.ledger = Ledger(names=NAMES, unit="MiB")
        self.ledger.set_node(node("n1", cards=cards))
        for each in pods:
            self.ledger.set_pod(each)
        self.nominations = Nominations(
            names=NAMES, is_placed=lambda uid: self.ledger.booking(uid) is not None
        )

    def nominate(self, *pods: Pod) -> None:
        for each in pods:
            self.nominations.put(each)

    def ahead(self, pod: Pod, *, default: Policy = Policy.BINPACK) -> tuple[Nominated, ...]:
        return self.nominations.ahead(PodRef.of(pod), among=["n1"], default=default).get("n1", ())

    def cards(self, pod: Pod, *, policy: Policy = Policy.BINPACK) -> list[int] | None:
        """The cards of n1 that a pod would get now."""
        chosen = choose_beside(
            self.ledger.view("n1"), demand=demand(pod), policy=policy, ahead=self.ahead(pod)
        )
        return None if chosen is None else [room.index for room in chosen]

    def victims(self, pod: Pod, *proposed: str) -> list[str] | None:
        preemptor = Preemptor(demand=demand(pod), priority=pod.spec.priority or 0)
        found = choose_victims(
            self.ledger.view("n1"), preemptor=preemptor, proposed=proposed, ahead=self.ahead(pod)
        )
        return None if found is None else list(found)


def urgent(
    name: str = "urgent",
    memory: int = 9000,
    *,
    on: str = "n1",
    priority: int = URGENT,
    **options: object,
) -> Pod:
    return waiting(name, memory, priority=priority, nominated=on, **options)


def test_V11_a_card_half_cleared_is_left_to_the_nominated_pod() -> None:
    cluster = Cluster(running("v", 3000, ending=True), running("k", 8500, 1), cards=[10000, 10000])
    assert cluster.cards(waiting("low", 2000)) == [0]
    cluster.nominate(urgent())
    assert cluster.cards(waiting("low", 2000)) is None
    assert cluster.cards(waiting("low", 1500)) == [1]
    cluster.ledger.set_pod(running("k", 9500, 1))
    assert cluster.cards(waiting("low", 1000)) == [0], "what it does not need is there for others"


def test_V11_of_two_cards_with_as_much_left_the_one_that_nobody_leaves_is_given_out() -> None:
    cluster = Cluster(running("v", 6000, ending=True), running("k", 6000, 1), cards=[10000, 10000])
    cluster.nominate(urgent())
    assert cluster.cards(waiting("low", 3000)) == [1]


def test_V11_a_card_wholly_cleared_is_left_to_the_nominated_pod() -> None:
    cluster = Cluster(running("k", 6000, 1), cards=[10000, 10000])
    cluster.nominate(urgent())
    assert cluster.cards(waiting("low", 4500)) is None
    assert cluster.cards(waiting("low", 4000)) == [1]
    assert cluster.cards(urgent()) == [0]


def test_V11_bind_keeps_to_the_cards_that_filter_allowed() -> None:
    """Two are nominated, so both cards are needed, and binpack alone would take card 0."""
    cluster = Cluster(cards=[10000, 12000])
    cluster.nominate(urgent("u1"), urgent("u2"))
    low = waiting("low", 3000)
    assert cluster.cards(low) == [1]
    booking = cluster.ledger.reserve_cards(
        PodRef.of(low), demand=demand(low), node="n1", policy=Policy.BINPACK, ahead=cluster.ahead(low)
    )
    assert booking.allocation.indices == "1"
    with pytest.raises(NoRoomError, match="no single GPU card has enough memory left"):
        cluster.ledger.reserve_cards(
            PodRef.of(waiting("more", 2000)),
            demand=demand(waiting("more", 2000)),
            node="n1",
            policy=Policy.BINPACK,
            ahead=cluster.ahead(waiting("more", 2000)),
        )


def test_V11_only_pods_of_at_least_the_same_priority_come_first() -> None:
    cluster = Cluster(cards=[10000])
    cluster.nominate(urgent())
    assert cluster.cards(waiting("equal", 4000, priority=URGENT)) is None
    assert cluster.cards(waiting("higher", 4000, priority=URGENT + 1)) == [0]


def test_V11_of_two_nominated_pods_of_one_priority_the_older_goes_first() -> None:
    cluster = Cluster(cards=[10000])
    older = urgent("z", 6000, created="2026-01-01T00:00:00Z")
    younger = urgent("a", 6000, created="2026-01-01T00:00:01Z")
    cluster.nominate(older, younger)
    assert cluster.cards(older) == [0]
    assert cluster.cards(younger) is None


@pytest.mark.parametrize("memory", [11000, 10000])
def test_V11_a_nominated_pod_that_fits_nowhere_is_in_nobodys_way(memory: int) -> None:
    """Not even once those that go for it have ended: `k` stays, and `e` does not go for it."""
    stays, other = running("k", 5000), running("e", 1000, 1, priority=URGENT, ending=True)
    cluster = Cluster(stays, other, cards=[10000, 10000])
    cluster.nominate(urgent("urgent", memory))
    assert cluster.cards(waiting("low", 9000)) == [1]


def test_V11_a_pod_over_two_cards_keeps_both() -> None:
    cluster = Cluster(running("v", 9000, ending=True), cards=[10000, 10000, 10000])
    cluster.nominate(urgent("wide", 3 * 9000, slots=3))
    assert cluster.cards(waiting("low", 2000)) is None
    assert cluster.cards(waiting("low", 1000)) == [0]
    assert cluster.cards(waiting("two", 2 * 1500, slots=2)) is None
    assert cluster.cards(waiting("two", 2 * 1000, slots=2)) == [0, 1]


def test_V11_each_nominated_pod_is_placed_by_its_own_policy() -> None:
    cluster = Cluster(running("k", 3000, 1), cards=[10000, 10000])
    view = cluster.ledger.view("n1")
    spread = urgent("spread", 5000, annotations={NAMES.policy: "spread"})
    cluster.nominate(spread, urgent("plain", 5000, priority=URGENT - 1))

    def where(default: Policy) -> dict[str, list[int]]:
        found = places(view, ahead=cluster.ahead(waiting("x", 1), default=default), ended=False)
        return {uid: list(shares) for uid, shares in found.items()}

    assert where(Policy.BINPACK) == {"spread": [0], "plain": [0]}
    assert where(Policy.SPREAD) == {"spread": [0], "plain": [1]}


# Whose nomination counts ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "now",
    [
        urgent(on=""),
        urgent(on="n2"),
        urgent(deleting=True),
        urgent(memory=0),
        build.pod("urgent", uid="urgent", priority=URGENT, nominated="n1"),
        urgent(annotations={NAMES.policy: "tight"}),
        build.pod("urgent", uid="urgent", memory="-1", priority=URGENT, nominated="n1"),
    ],
    ids=["withdrawn", "elsewhere", "deleted", "no memory", "no GPU pod", "bad policy", "bad amount"],
)
def test_V11_a_nomination_that_no_longer_counts_frees_the_card_at_once(now: Pod) -> None:
    cluster = Cluster(cards=[10000])
    cluster.nominate(urgent())
    assert cluster.cards(waiting("low", 4000)) is None
    cluster.nominate(now)
    assert cluster.cards(waiting("low", 4000)) == [0]


def test_V11_a_nominated_pod_that_is_gone_frees_the_card_at_once() -> None:
    cluster = Cluster(cards=[10000])
    cluster.nominate(urgent())
    cluster.nominations.drop("urgent")
    cluster.nominations.drop("urgent")
    assert cluster.cards(waiting("low", 4000)) == [0]


def test_V11_a_pod_that_has_its_cards_is_not_counted_twice() -> None:
    """From the moment its bind reserves them, before any watch shows it bound."""
    cluster = Cluster(cards=[10000, 10000])
    pod = urgent("urgent", 6000)
    cluster.nominate(pod)
    cluster.ledger.reserve_cards(PodRef.of(pod), demand=demand(pod), node="n1", policy=Policy.BINPACK)
    assert cluster.cards(waiting("low", 10000)) == [1]
    cluster.ledger.release("urgent")
    cluster.ledger.set_pod(running("k", 9000, 1))
    assert cluster.cards(waiting("low", 5000)) is None, "its bind has failed: it waits again"


# Whom to evict ------------------------------------------------------------------------------------------


def test_V11_a_second_pod_evicts_nobody_from_a_card_that_is_the_first_ones() -> None:
    """`v` goes for `urgent` already; of `w` and `x` it is `w` that makes room beside it."""
    cluster = Cluster(
        running("v", 6000, ending=True),
        running("x", 1000),
        running("w", 8000, 1),
        cards=[10000, 10000],
    )
    second = waiting("second", 8000, priority=URGENT)
    assert cluster.victims(second, "v") == ["v"]
    cluster.nominate(urgent())
    assert cluster.victims(second, "v", "w") == ["v", "w"]
    assert cluster.victims(second, "v", "x") == ["w"]
    assert cluster.victims(waiting("higher", 8000, priority=URGENT + 1), "v") == ["v"]


# Whatever is nominated ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A node, who is on it, who is nominated to it, and who comes."""

    cards: tuple[int, ...]
    running: tuple[Pod, ...]
    nominated: tuple[Pod, ...]
    comer: Pod
    policy: Policy

    def cluster(self, *, without: Sequence[str] = ()) -> Cluster:
        return Cluster(*[pod for pod in self.running if pod.metadata.uid not in without], cards=self.cards)


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    sizes = tuple(draw(st.lists(st.integers(6, 12), min_size=1, max_size=4)))
    left = list(sizes)
    on_cards = []
    for number in range(draw(st.integers(0, 5))):
        at = draw(st.integers(0, len(sizes) - 1))
        memory = draw(st.integers(1, 8))
        if memory <= left[at]:
            left[at] -= memory
            priority, ending = draw(st.integers(0, 2)), draw(st.booleans())
            on_cards.append(running(f"r{number}", memory, at, priority=priority, ending=ending))

    def pod(name: str, **options: object) -> Pod:
        slots = draw(st.sampled_from([1, 1, 1, 2]))
        return waiting(
            name,
            slots * draw(st.integers(1, 10)),
            slots=slots,
            priority=draw(st.integers(0, 3)),
            annotations={NAMES.policy: draw(st.sampled_from(sorted(Policy)))},
            **options,
        )

    nominated = [pod(f"n{number}", nominated="n1") for number in range(draw(st.integers(0, 4)))]
    return Scene(
        cards=sizes,
        running=tuple(on_cards),
        nominated=tuple(nominated),
        comer=pod("comer"),
        policy=draw(st.sampled_from(Policy)),
    )


def placed(name: str, asked: Demand, *, on: Sequence[int]) -> Pod:
    return build.pod(name, memory=asked.memory, slots=len(asked.cards), on="n1", cards=on)


def fitting(cluster: Cluster, ahead: Sequence[Nominated]) -> set[str]:
    """The nominated pods that find a place when they come one after another, by a ledger that books them."""
    found = set()
    for each in ahead:
        chosen = choose_cards(each.demand, preferred=cluster.ledger.view("n1").rooms[each.policy])
        if chosen is not None:
            found.add(each.pod.uid)
            cluster.ledger.set_pod(
                placed(f"at-{each.pod.uid}", each.demand, on=[room.index for room in chosen])
            )
    return found


@settings(max_examples=600)
@given(scene=scenes())
def test_V11_no_comer_takes_the_place_of_a_nominated_pod(scene: Scene) -> None:
    """Nor is any card overfull, nor does a comer get what it would not get without nominations."""
    cluster = scene.cluster()
    cluster.nominate(*scene.nominated)
    alone = choose_cards(demand(scene.comer), preferred=cluster.ledger.view("n1").rooms[scene.policy])
    ahead = cluster.ahead(scene.comer)
    got = cluster.cards(scene.comer, policy=scene.policy)
    if not ahead:
        assert got == (None if alone is None else [room.index for room in alone])
    if got is None:
        return
    assert alone is not None
    for first, below in [(len(ahead), 0), *((1, each.pod.priority) for each in ahead[:1])]:
        # All as things are; and the most important one once those that it outranks have ended.
        gone = [
            pod.metadata.uid for pod in scene.running if pod.is_ending and (pod.spec.priority or 0) < below
        ]
        before, after = scene.cluster(without=gone), scene.cluster(without=gone)
        after.ledger.set_pod(placed("comer", demand(scene.comer), on=got))
        assert fitting(after, ahead[:first]) >= fitting(before, ahead[:first])
    cluster.ledger.set_pod(placed("comer", demand(scene.comer), on=got))
    assert all(card.booked.fits(card.usable) for card in cluster.ledger.view("n1").cards)


@settings(max_examples=300)
@given(scene=scenes())
def test_V11_one_card_is_refused_only_where_somebody_would_lose_a_place(scene: Scene) -> None:
    cluster = scene.cluster()
    cluster.nominate(*scene.nominated)
    asked = demand(scene.comer)
    if len(asked.cards) > 1 or cluster.cards(scene.comer, policy=scene.policy) is not None:
        return
    view, ahead = cluster.ledger.view("n1"), cluster.ahead(scene.comer)
    if len({each.pod.priority for each in ahead}) > 1:
        return  # cards that are alike may then be told apart by their numbers; the first one is looked at
    (share,) = asked.cards
    for room in view.rooms[scene.policy]:
        taken = {room.index: share}
        assert not share.fits(room.free) or any(
            places(view, ahead=ahead, ended=ended).keys()
            - places(view, ahead=ahead, ended=ended, taken=taken).keys()
            for ended in (False, True)
        )


@settings(max_examples=300)
@given(scene=scenes())
def test_V11_the_first_nominated_pod_waits_for_nobody(scene: Scene) -> None:
    """So no two wait for each other, whatever is nominated to a node."""
    cluster = scene.cluster()
    cluster.nominate(*scene.nominated)
    if scene.nominated:
        first = min(scene.nominated, key=lambda pod: PodRef.of(pod).importance)
        assert cluster.ahead(first) == ()


@settings(max_examples=300)
@given(scene=scenes())
def test_V11_what_nominated_pods_would_get_is_there(scene: Scene) -> None:
    cluster = scene.cluster()
    cluster.nominate(*scene.nominated)
    view = cluster.ledger.view("n1")
    ahead = cluster.ahead(waiting("x", 1))
    for ended in (False, True):
        sums: dict[int, Share] = {}
        for shares in places(view, ahead=ahead, ended=ended).values():
            for index, share in shares.items():
                sums[index] = sums.get(index, NOTHING) + share
        for card in view.cards:
            ending = [held.share for held in card.holdings if ended and held.booking.ending]
            free = card.usable - card.booked + sum(ending, NOTHING)
            assert sums.get(card.card.index, NOTHING).fits(free)
