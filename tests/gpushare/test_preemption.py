"""Victims of a node (case V11), by what its cards look like once they are gone.

A stand-in for kube-scheduler's own search makes the proposals: it knows the node's sums, a further resource
that we do not know (`cpu`), and pods that hold no card.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpushare.bookings import PodRef
from gpushare.demand import NOTHING, Demand, Share, demand_of
from gpushare.ledger import Ledger
from gpushare.objects import Pod
from gpushare.placement import Policy
from gpushare.preemption import Preemptor, choose_victims, is_fragmented
from tests.build import NAMES, card, container, demand, node, pod

URGENT = 100


def on_card(name: str, memory: int, card: int = 0, **options: object) -> Pod:
    """`V1 6000@0`, of priority 0 unless it says otherwise; the UID is the name."""
    return pod(name, memory=memory, uid=name, on="n1", cards=[card], **options)  # type: ignore[arg-type]


def ledger_of(pods: Iterable[Pod], *, cards: Sequence[object], reserve: int = 0, slots: int = 32) -> Ledger:
    ledger = Ledger(names=NAMES, unit="MiB", reserve=reserve)
    ledger.set_node(node("n1", cards=cards, slots=slots))  # type: ignore[arg-type]
    for each in pods:
        ledger.set_pod(each)
    return ledger


def victims(
    ledger: Ledger,
    memory: int,
    *proposed: str,
    priority: int = URGENT,
    slots: int | None = None,
) -> list[str] | None:
    """Whom an urgent pod of this size evicts from n1, given kube-scheduler's proposal."""
    preemptor = Preemptor(demand=demand(pod(memory=memory, slots=slots)), priority=priority)
    found = choose_victims(ledger.view("n1"), preemptor=preemptor, proposed=proposed)
    return None if found is None else list(found)


def test_V11_victims_that_free_a_card_are_kept() -> None:
    ledger = ledger_of([on_card("V1", 6000, 0), on_card("V2", 6000, 1)], cards=[10000, 10000])
    assert victims(ledger, 9000, "V1") == ["V1"]
    assert victims(ledger, 9000, "V2") == ["V2"]


def test_V11_a_node_where_only_the_small_one_may_go_is_dropped() -> None:
    held = [
        on_card("V1", 6000, 0, priority=URGENT),
        on_card("small", 2000, 0),
        on_card("V2", 5000, 1, priority=URGENT),
    ]
    assert victims(ledger_of(held, cards=[10000, 10000]), 9000, "small") is None


def test_V11_victims_on_the_wrong_card_are_exchanged_for_fewer_on_one_card() -> None:
    """Evicting `small` is enough by the sums (14000 - 2000 + 8000), and leaves 4000 and 4000."""
    held = [on_card("V1", 6000, 0), on_card("small", 2000, 0), on_card("V2", 6000, 1)]
    assert victims(ledger_of(held, cards=[10000, 10000]), 8000, "small") == ["V2"]


def test_of_sets_as_small_the_lowest_priority_goes_then_the_youngest() -> None:
    held = [
        on_card("z-old", 6000, 0, priority=1, created="2026-01-01T23:59:59Z"),
        on_card("high", 6000, 1, priority=2, created="2026-01-03T00:00:00Z"),
        on_card("a-young", 6000, 2, priority=1, created="2026-01-02T00:00:00Z"),
        on_card("wrong", 3000, 3, priority=0),
        on_card("stays", 6000, 3, priority=URGENT),
    ]
    assert victims(ledger_of(held, cards=[7000, 7000, 7000, 10000]), 7000, "wrong") == ["a-young"]


def test_fewer_pods_go_even_if_they_matter_more() -> None:
    held = [
        on_card("important", 6000, 0, priority=50),
        *(on_card(f"little{n}", 3000, 1, priority=0) for n in range(2)),
        on_card("wrong", 3000, 2),
        on_card("stays", 6000, 2, priority=URGENT),
    ]
    assert victims(ledger_of(held, cards=[7000, 7000, 10000]), 6000, "wrong") == ["important"]


def test_equals_never_go() -> None:
    ledger = ledger_of([on_card("V1", 6000, 0, priority=7)], cards=[10000])
    assert victims(ledger, 9000, priority=7) is None
    assert victims(ledger, 9000, priority=8) == ["V1"]


def test_a_proposal_with_somebody_who_is_not_outranked_is_refused() -> None:
    ledger = ledger_of([on_card("V1", 6000, 0, priority=URGENT), on_card("V2", 6000, 1)], cards=[10000] * 2)
    assert victims(ledger, 9000, "V1") is None


def test_a_pod_without_a_card_stays_a_victim() -> None:
    held = [on_card("V1", 6000, 0), on_card("small", 2000, 0), on_card("V2", 6000, 1)]
    ledger = ledger_of(held, cards=[10000, 10000])
    assert victims(ledger, 8000, "web", "small", "db") == ["web", "V2", "db"]
    assert victims(ledger, 4000, "web") == ["web"]


def test_a_victim_that_the_sums_could_do_without_was_asked_for_something_else_and_stays() -> None:
    """8000 are free in sum, so kube-scheduler wanted `busy` for its CPU; the card is found beside it."""
    held = [on_card("busy", 2000, 0), on_card("V1", 4000, 0, priority=3), on_card("V2", 6000, 1, priority=2)]
    assert victims(ledger_of(held, cards=[10000, 10000]), 7000, "busy") == ["V2", "busy"]


BUSY = (on_card("busy", 2000, 0), on_card("V1", 4000, 0, priority=3), on_card("V2", 6000, 1, priority=2))
"""8000 of 20000 are free: whoever wants 7000 needs `busy` gone only if the sum is less than it seems."""


def test_kube_scheduler_does_not_know_the_reserve() -> None:
    assert victims(ledger_of(BUSY, cards=[10000, 10000], reserve=1000), 7000, "busy") == ["V2", "busy"]


def test_memory_on_an_unhealthy_card_is_outside_the_sum() -> None:
    held = (*BUSY, on_card("A", 6000, 2, priority=URGENT))
    cards = [card(0, memory=10000), card(1, memory=10000), card(2, memory=10000, healthy=False)]
    assert victims(ledger_of(held, cards=cards), 7000, "busy") == ["V2", "busy"]


def test_memory_on_a_card_that_is_gone_is_still_taken_off_the_sum() -> None:
    held = (*BUSY, on_card("A", 6000, 7, priority=URGENT))
    assert victims(ledger_of(held, cards=[10000, 10000]), 7000, "busy") == ["V2"]


def test_where_the_sums_differ_kube_schedulers_counts() -> None:
    """`gone` has ended, and only kube-scheduler has seen it yet: 5500 are free, not 1500."""
    held = [
        *(on_card("V1", 6000, 0), on_card("small", 2500, 0), on_card("V2", 6000, 1)),
        *(on_card(name, 4000, 2, priority=URGENT) for name in ("next", "gone")),
    ]
    assert victims(ledger_of(held, cards=[10000, 10000, 4000]), 8000, "small") == ["V2"]


def test_the_sums_fit_after_victims_were_exchanged() -> None:
    """Card 1 is over-booked by 3000, which kube-scheduler takes off the sum: without A, card 0 would do, and
    the sum would not."""
    held = [on_card("A", 1500, 0), on_card("B", 13000, 1, priority=URGENT), on_card("C", 4000, 2)]
    assert victims(ledger_of(held, cards=[10000, 10000, 4000]), 9000, "C") == ["A", "C"]


def test_an_over_booked_card_is_not_free_before_its_surplus_is_gone() -> None:
    held = [on_card("A", 8000, 0), on_card("B", 7000, 0, priority=URGENT)]
    ledger = ledger_of(held, cards=[10000])
    assert victims(ledger, 3000, "A") == ["A"]
    assert victims(ledger, 3001, "A") is None


def test_the_reserve_is_not_given_to_the_urgent_either() -> None:
    ledger = ledger_of([on_card("A", 8000, 0)], cards=[10000], reserve=500)
    assert victims(ledger, 9500, "A") == ["A"]
    assert victims(ledger, 9501, "A") is None


def test_slots_are_freed_as_memory_is() -> None:
    held = [on_card(f"p{n}", 100, n % 2, priority=n) for n in range(8)]
    ledger = ledger_of(held, cards=[10000, 10000], slots=4)
    two = demand(pod(containers=[container("a", memory=10), container("b", memory=10)]))
    preemptor = Preemptor(demand=two, priority=URGENT)
    assert choose_victims(ledger.view("n1"), preemptor=preemptor, proposed=["p1", "p0"]) == ("p2", "p0")


def test_several_cards_are_freed_together() -> None:
    held = [
        on_card("a", 6000, 0),
        on_card("b", 6000, 1),
        pod("both", memory=12000, slots=2, uid="both", on="n1", cards=[2, 3], priority=5),
    ]
    ledger = ledger_of(held, cards=[10000] * 4)
    assert victims(ledger, 18000, "a", slots=2) == ["both"]
    assert victims(ledger, 27000, "a", "b", slots=3) == ["both", "b"]


def test_an_unhealthy_card_is_no_way_out() -> None:
    held = [on_card("A", 6000, 0), on_card("B", 6000, 1)]
    cards = [card(0, memory=10000, healthy=False), card(1, memory=10000)]
    assert victims(ledger_of(held, cards=cards), 9000, "B") == ["B"]
    assert victims(ledger_of(held[:1], cards=cards[:1]), 9000, "A") is None


def test_what_is_only_reserved_is_left_alone_unless_kube_scheduler_names_it() -> None:
    ledger = ledger_of(
        [on_card("small", 2000, 0), on_card("V1", 6000, 0, priority=URGENT)], cards=[10000] * 2
    )
    ledger.reserve_cards(
        PodRef(uid="binding", namespace="default", name="binding"),
        demand=demand(pod(memory=9000)),
        node="n1",
        policy=Policy.BINPACK,
    )
    assert victims(ledger, 8000, "small") is None
    assert victims(ledger, 8000, "binding") == ["binding"]


@pytest.mark.parametrize("closed", [True, False])
def test_nothing_helps_on_a_node_that_takes_nobody(closed: bool) -> None:  # noqa: FBT001
    ledger = ledger_of([on_card("A", 6000, 0)], cards=[10000] if closed else [])
    ledger.set_pod(pod("B", memory=100, on="n1"))
    assert victims(ledger, 9000, "A") is None


def test_a_pod_that_needs_no_card_keeps_what_was_proposed() -> None:
    nobody = Preemptor(demand=Demand(cards=(), containers=()), priority=URGENT)
    view = ledger_of([], cards=[10000]).view("n1")
    assert choose_victims(view, preemptor=nobody, proposed=["x", "x", "y"]) == ("x", "y")
    assert choose_victims(view, preemptor=nobody, proposed=[]) is None


def test_a_node_with_room_and_without_victims_is_dropped_rather_than_answered_empty() -> None:
    assert victims(ledger_of([], cards=[10000]), 9000) is None


def test_the_answer_names_the_most_important_first() -> None:
    held = [on_card("a", 3000, 0, priority=1), on_card("b", 3000, 0, priority=9), on_card("c", 3000, 1)]
    held += [on_card("stays", 5000, 1, priority=URGENT)]
    assert victims(ledger_of(held, cards=[10000, 10000]), 9000, "web", "c") == ["web", "b", "a"]


# Whatever kube-scheduler proposes ---------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Holder:
    """A pod on the node, as kube-scheduler knows it; `cards` is empty for one that holds none."""

    name: str
    priority: int
    share: Share
    cards: tuple[int, ...]
    cpu: int

    def pod(self) -> Pod:
        slots = len(self.cards)
        return pod(
            self.name,
            memory=self.share.memory * slots,
            slots=slots,
            uid=self.name,
            on="n1",
            cards=self.cards,
            priority=self.priority,
            created=f"2026-01-01T00:00:{50 - int(self.name[1:])}Z",  # p1 is older than p0
        )


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A node, who is on it, and who wants in."""

    sizes: tuple[int, ...]
    slots: int
    holders: tuple[Holder, ...]
    urgent: Pod
    cpu_short: int
    """CPU that has to be freed."""

    @property
    def demand(self) -> Demand:
        found = demand_of(self.urgent.spec, NAMES)
        assert found is not None
        return found

    def ledger(self, *, without: Collection[str] = ()) -> Ledger:
        left = [holder.pod() for holder in self.holders if holder.cards and holder.name not in without]
        return ledger_of(left, cards=self.sizes, slots=self.slots)

    def fits_sums(self, *, without: Collection[str], cpu: bool = True) -> bool:
        memory, slots, freed = sum(self.sizes), self.slots * len(self.sizes), 0
        for holder in self.holders:
            if holder.name in without:
                freed += holder.cpu
            else:
                memory -= holder.share.memory * len(holder.cards)
                slots -= len(holder.cards)
        asked = sum(self.demand.cards, NOTHING)
        return asked.memory <= memory and asked.slots <= slots and (freed >= self.cpu_short or not cpu)

    def fits_cards(self, *, without: Collection[str]) -> bool:
        return self.ledger(without=without).view("n1").refusal(self.demand) is None

    def proposal(self) -> list[str] | None:
        """kube-scheduler's victims: all that may go, less those that need not, the important ones first."""
        going = [holder.name for holder in self.by_importance() if holder.priority < URGENT]
        if not self.fits_sums(without=going):
            return None
        for name in tuple(going):
            others = [other for other in going if other != name]
            if self.fits_sums(without=others):
                going = others
        return going or None

    def by_importance(self) -> list[Holder]:
        return sorted(self.holders, key=lambda holder: (-holder.priority, -int(holder.name[1:])))


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    sizes = tuple(draw(st.lists(st.sampled_from([8, 10]), min_size=2, max_size=3)))
    holders = []
    free = [[size, 4] for size in sizes]
    for number in range(draw(st.integers(4, 8))):
        wanted = draw(st.permutations(range(len(sizes))))[: draw(st.sampled_from([1, 1, 1, 2, 0]))]
        memory = draw(st.integers(2, 6))
        cards = tuple(wanted) if all(free[c][0] >= memory and free[c][1] for c in wanted) else ()
        for index in cards:
            free[index][0] -= memory
            free[index][1] -= 1
        holders.append(
            Holder(
                name=f"p{number}",
                priority=draw(st.sampled_from([0, 1, 0, 1, 2, URGENT])),
                share=Share(memory=memory, slots=1) if cards else NOTHING,
                cards=cards,
                cpu=draw(st.integers(0, 2)),
            )
        )
    slots = draw(st.sampled_from([1, 1, 2]))
    urgent = pod("urgent", memory=slots * draw(st.integers(6, 9)), slots=slots, priority=URGENT)
    return Scene(
        sizes=sizes,
        slots=4,
        holders=tuple(holders),
        urgent=urgent,
        cpu_short=draw(st.sampled_from([0, 0, 1, 2])),
    )


@settings(max_examples=500)
@given(scene=scenes())
def test_V11_the_answer_frees_cards_with_the_fewest_pods(scene: Scene) -> None:
    proposed = scene.proposal()
    if proposed is None:
        return
    preemptor = Preemptor(demand=scene.demand, priority=URGENT)
    found = choose_victims(scene.ledger().view("n1"), preemptor=preemptor, proposed=proposed)
    if scene.fits_cards(without=proposed):
        assert found == tuple(proposed)
        return
    # What must stay a victim: who holds no card, and who the sums of memory and slots could do without.
    kept = {
        holder.name
        for holder in scene.holders
        if holder.name in proposed
        and (
            not holder.cards
            or scene.fits_sums(without=[name for name in proposed if name != holder.name], cpu=False)
        )
    }
    may_go = [
        holder.name
        for holder in scene.by_importance()
        if holder.cards and holder.priority < URGENT and holder.name not in kept
    ]
    best = next(
        (
            max(enough)
            for count in range(len(may_go) + 1)
            if (
                enough := [
                    chosen
                    for chosen in itertools.combinations(range(len(may_go)), count)
                    if _does(scene, kept | {may_go[position] for position in chosen})
                ]
            )
        ),
        None,
    )
    expected = None if best is None else kept | {may_go[position] for position in best}
    assert (None if found is None else set(found)) == expected


def _does(scene: Scene, going: Collection[str]) -> bool:
    return scene.fits_cards(without=going) and scene.fits_sums(without=going, cpu=False)


# Who never gets to ask --------------------------------------------------------------------------------


def fragmented(ledger: Ledger, memory: int, *, priority: int = URGENT) -> bool:
    preemptor = Preemptor(demand=demand(pod(memory=memory)), priority=priority)
    return is_fragmented(ledger.view("n1"), preemptor=preemptor)


def test_fragmentation_alone_is_told_apart() -> None:
    ledger = ledger_of([on_card("A", 6000, 0), on_card("B", 4000, 1)], cards=[10000, 10000])
    assert fragmented(ledger, 9000)
    assert not fragmented(ledger, 6000), "card 1 has room"
    assert not fragmented(ledger, 10001), "no card is large enough"
    assert not fragmented(ledger, 9000, priority=0), "nobody is outranked"
    ledger.set_pod(on_card("C", 3000, 1))
    assert not fragmented(ledger, 9000), "the sums are short: kube-scheduler finds victims"
    ledger.set_pod(pod("D", memory=1, on="n1"))
    assert not fragmented(ledger, 9000), "closed"
