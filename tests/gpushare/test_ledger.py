"""The ledger, case by case. `test_ledger_trace` checks the same rules over random histories."""

import tracemalloc
from collections.abc import Sequence

import pytest

from gpushare.bookings import Booking, PodRef, Standing
from gpushare.cards import Card
from gpushare.demand import Share
from gpushare.errors import NoRoomError
from gpushare.ledger import Ledger
from gpushare.objects import Node, ObjectMeta, Pod
from gpushare.placement import Policy
from gpushare.refusals import Reason
from tests.build import NAMES, card, container, demand, node, pod


def ledger_of(*nodes: Node, reserve: int = 0, unit: str = "MiB") -> Ledger:
    ledger = Ledger(names=NAMES, unit=unit, reserve=reserve)
    for each in nodes:
        ledger.set_node(each)
    return ledger


def free(ledger: Ledger, name: str = "n1") -> list[int]:
    """Units left per card, in index order."""
    return [view.free.memory for view in ledger.view(name).cards]


def reserve(ledger: Ledger, of: Pod, *, on: str = "n1", policy: Policy = Policy.BINPACK) -> Booking:
    return ledger.reserve_cards(PodRef.of(of), demand=demand(of), node=on, policy=policy)


def bind(ledger: Ledger, of: Pod, *, on: str = "n1", policy: Policy = Policy.BINPACK) -> Pod:
    """Reserve, confirm, and let the watch show the pod as the Binding left it; returns that pod."""
    booking = reserve(ledger, of, on=on, policy=policy)
    ledger.confirm(of.metadata.uid)
    sizes = {view.card.index: view.card for view in ledger.view(on).cards}
    bound = pod(
        of.metadata.name,
        uid=of.metadata.uid,
        containers=of.spec.containers,
        init=of.spec.init_containers or (),
        on=on,
        cards=[sizes[ref.index] for ref in booking.allocation.cards],
    )
    ledger.set_pod(bound)
    return bound


def cards_given(ledger: Ledger, of: Pod) -> list[int]:
    booking = ledger.booking(of.metadata.uid)
    assert booking is not None
    return [ref.index for ref in booking.allocation.cards]


def refusal(ledger: Ledger, of: Pod, *, on: str = "n1") -> Reason | None:
    found = ledger.view(on).refusal(demand(of))
    return found.reason if found else None


def test_L1_fragmented_cards_are_not_room() -> None:
    ledger = ledger_of(node(cards=[23552] * 4))
    given = [cards_given(ledger, bind(ledger, pod(f"p{number}", memory=10240))) for number in range(8)]
    assert given == [[0], [0], [1], [1], [2], [2], [3], [3]]
    ninth = pod("p8", memory=10240)
    assert sum(free(ledger)) == 12288
    assert free(ledger) == [3072] * 4
    assert refusal(ledger, ninth) is Reason.NO_ROOM
    with pytest.raises(NoRoomError) as raised:
        reserve(ledger, ninth)
    assert raised.value.asked == (10240,)
    assert raised.value.free == ((0, 3072), (1, 3072), (2, 3072), (3, 3072))
    for fact in ("n1", "10240", "card 3: 3072", Reason.NO_ROOM):
        assert fact in str(raised.value)
    assert ledger.booking(ninth.metadata.uid) is None


def test_L2_churn_of_one_name_is_counted_by_uid() -> None:
    ledger = ledger_of(node(cards=[10000]))
    old: Pod | None = None
    for round_ in range(200):
        fresh = pod("sts-0", memory=8000)
        if old is not None and round_ % 2:
            ledger.set_pod(fresh)  # the new pod is added before the old one's deletion is seen
            assert free(ledger) == [2000]
            ledger.remove_pod(old.metadata.uid)
        elif old is not None:
            ledger.remove_pod(old.metadata.uid)
            ledger.set_pod(fresh)
        assert free(ledger) == [10000]
        old = bind(ledger, fresh)
        assert free(ledger) == [2000]
    assert old is not None
    ledger.remove_pod(old.metadata.uid)
    assert free(ledger) == [10000]
    assert list(ledger.bookings()) == []


def test_L3_a_deletion_nobody_saw_takes_effect_at_the_relist() -> None:
    ledger = ledger_of(node(cards=[16384]))
    bind(ledger, pod("a", memory=4000, uid="uid1"))
    since = ledger.mark()
    ledger.set_pod(pod("a", memory=4000, uid="uid2"))
    ledger.retain_pods({"uid2"}, since=since)
    assert free(ledger) == [16384]
    assert ledger.booking("uid1") is None


def test_L3_what_was_promised_while_the_list_was_made_stays() -> None:
    ledger = ledger_of(node(cards=[16384]))
    before, during, confirmed = (pod(name, memory=1000) for name in ("before", "during", "confirmed"))
    reserve(ledger, before)
    since = ledger.mark()
    reserve(ledger, during)
    reserve(ledger, confirmed)
    ledger.confirm(confirmed.metadata.uid)
    ledger.retain_pods(set(), since=since)
    assert ledger.booking(before.metadata.uid) is None, "it is not in a list made after it was promised"
    assert free(ledger) == [14384]


def test_L3_a_promise_that_the_list_shows_unbound_stays() -> None:
    ledger = ledger_of(node(cards=[16384]))
    waiting = pod("a", memory=1000)
    reserve(ledger, waiting)
    since = ledger.mark()
    ledger.set_pod(waiting)
    ledger.retain_pods({waiting.metadata.uid}, since=since)
    assert free(ledger) == [15384]


def test_L3_a_relist_of_nodes_forgets_those_that_are_gone_and_keeps_their_pods() -> None:
    ledger = ledger_of(node("n1", cards=[8192]), node("n2", cards=[8192]))
    held = bind(ledger, pod("a", memory=3000), on="n2")
    ledger.retain_nodes({"n1"})
    assert ledger.known_nodes() == ["n1"]
    assert refusal(ledger, pod(memory=1), on="n2") is Reason.UNKNOWN_NODE
    ledger.set_node(node("n2", cards=[8192]))
    assert free(ledger, "n2") == [5192]
    assert cards_given(ledger, held) == [0]


@pytest.mark.parametrize("end", ["Failed", "Succeeded", "gone"])
def test_L4_memory_is_held_past_the_deletion_timestamp_until_the_pod_has_ended(end: str) -> None:
    ledger = ledger_of(node(cards=[16384]))
    a, b = pod("a", memory=12000, on="n1", cards=[0], phase="Running"), pod("b", memory=8000)
    ledger.set_pod(a)
    uid = a.metadata.uid
    ledger.set_pod(pod("a", memory=12000, uid=uid, on="n1", cards=[0], phase="Running", deleting=True))
    assert refusal(ledger, b) is Reason.NO_ROOM
    if end == "gone":
        ledger.remove_pod(uid)
    else:
        ledger.set_pod(pod("a", memory=12000, uid=uid, on="n1", cards=[0], phase=end, deleting=True))
    assert refusal(ledger, b) is None
    assert free(ledger) == [16384]


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_L5_finished_pods_hold_nothing_whatever_their_annotations_say(phase: str) -> None:
    ledger = ledger_of(node(cards=[16384]))
    ledger.set_pod(pod("a", memory=12000, on="n1", cards=[0], phase=phase))
    ledger.set_pod(pod("b", memory=12000, on="n1", annotations={NAMES.index: "junk"}, phase=phase))
    assert free(ledger) == [16384]
    assert ledger.view("n1").problem is None


@pytest.mark.parametrize("phase", ["Pending", "Running", "Unknown", "", "Whatever"])
def test_L5_every_other_phase_holds(phase: str) -> None:
    ledger = ledger_of(node(cards=[16384]))
    ledger.set_pod(pod("a", memory=12000, on="n1", cards=[0], phase=phase))
    assert free(ledger) == [4384]


def test_L6_cards_come_and_go_under_their_pods() -> None:
    ledger = ledger_of(node(cards=[16384, 16384]))
    a = pod("a", memory=4000, on="n1", cards=[1])
    ledger.set_pod(a)
    ledger.set_node(node(cards=[16384]))
    c = bind(ledger, pod("c", memory=16000))
    assert cards_given(ledger, c) == [0]
    (missing,) = ledger.view("n1").missing
    assert missing.booking.pod == PodRef.of(a)
    assert missing.share.memory == 4000
    ledger.set_node(node(cards=[16384, 16384]))
    assert free(ledger) == [384, 12384]
    assert ledger.view("n1").missing == ()


def test_L6_a_pod_follows_its_card_to_another_index() -> None:
    ledger = ledger_of(node(cards=[16384, 16384]))
    ledger.set_pod(pod("a", memory=4000, on="n1", cards=[1]))
    swapped: Sequence[Card] = [
        card(0, memory=16384, uuid="GPU-n1-1"),
        card(1, memory=16384, uuid="GPU-n1-0"),
    ]
    ledger.set_node(node(cards=swapped))
    assert free(ledger) == [12384, 16384]


def test_L6_another_card_at_the_same_index_is_not_charged_for_the_old_ones_pods() -> None:
    ledger = ledger_of(node(cards=[16384, 16384]))
    ledger.set_pod(pod("a", memory=4000, on="n1", cards=[1]))
    ledger.set_node(node(cards=[16384, card(1, memory=16384, uuid="GPU-new")]))
    assert free(ledger) == [16384, 16384]
    assert [holding.booking.pod.name for holding in ledger.view("n1").missing] == ["a"]
    assert ledger.view("n1").problem is None


def test_L6_a_pod_over_two_cards_stays_charged_on_the_one_that_is_left() -> None:
    ledger = ledger_of(node(cards=[16384, 16384]))
    ledger.set_pod(pod("a", memory=8000, slots=2, on="n1", cards=[0, 1]))
    ledger.set_node(node(cards=[16384]))
    assert free(ledger) == [12384]
    assert [holding.share.memory for holding in ledger.view("n1").missing] == [4000]


def test_N4_pods_on_an_unhealthy_card_stay_charged_and_the_card_gives_nothing() -> None:
    ledger = ledger_of(node(cards=[8192, 8192]))
    ledger.set_pod(pod("a", memory=3000, on="n1", cards=[1]))
    ledger.set_node(node(cards=[8192, card(1, memory=8192, healthy=False)]))
    assert free(ledger) == [8192, 0]
    assert ledger.view("n1").cards[1].booked.memory == 3000
    ledger.set_node(node(cards=[8192, 8192]))
    assert free(ledger) == [8192, 5192]


def test_L7_an_overbooked_card_has_nothing_left_and_shows_by_how_much() -> None:
    ledger = ledger_of(node(cards=[8192]))
    ledger.set_pod(pod("a", memory=9000, on="n1", cards=[0]))
    assert free(ledger) == [0]
    assert refusal(ledger, pod("d", memory=1)) is Reason.NO_ROOM
    with pytest.raises(NoRoomError):
        reserve(ledger, pod("d", memory=1))
    assert ledger.view("n1").cards[0].over_commit == 808


@pytest.mark.parametrize(
    "claim", [{NAMES.index: "1", NAMES.pod_memory: "1"}, None], ids=["classic", "with-json"]
)
def test_L8_what_an_unbound_pod_claims_is_ignored(claim: dict[str, str] | None) -> None:
    ledger = ledger_of(node(cards=[10000, 16384]))
    uid = "uid-forger"
    forged = claim or dict(pod(memory=10000, on="n1", cards=[1]).annotations)
    a = pod("a", memory=10000, uid=uid, annotations=forged)
    ledger.set_pod(a)
    assert free(ledger) == [10000, 16384]
    assert cards_given(ledger, bind(ledger, a)) == [0], "by policy, not by claim"
    assert free(ledger) == [0, 16384], "10000, not 1"


BAD_ANNOTATIONS = {
    "no-card-abc": {NAMES.index: "abc"},
    "negative": {NAMES.index: "-1"},
    "not-on-the-node": {NAMES.index: "99"},
    "empty": {NAMES.index: ""},
    "decimal": {NAMES.index: "1.0"},
    "broken-json": {NAMES.index: "1", NAMES.allocation: "{"},
    "deep-json": {NAMES.index: "1", NAMES.allocation: '{"node":"n1","x":' + "[" * 200_000},
    "foreign-node": {
        NAMES.index: "1",
        NAMES.allocation: '{"node":"n2","cards":[{"index":1,"uuid":"GPU-n1-1"}]}',
    },
}


@pytest.mark.parametrize("annotations", BAD_ANNOTATIONS.values(), ids=BAD_ANNOTATIONS)
def test_L9_a_bad_annotation_on_a_live_pod_closes_its_node_until_the_pod_is_gone(
    annotations: dict[str, str],
) -> None:
    ledger = ledger_of(node("n1", cards=[16384, 16384]), node("n2", cards=[16384]))
    bad, new = pod("bad", memory=4000, on="n1", annotations=annotations), pod("new", memory=1)
    ledger.set_pod(bad)
    closed = ledger.view("n1").refusal(demand(new))
    assert closed is not None
    assert closed.reason is Reason.CLOSED
    assert not closed.unresolvable, "the pod's end opens the node again"
    assert "default/bad" in str(closed)
    assert len(str(closed)) < 500, "it ends in the event of every pod that waits"
    with pytest.raises(NoRoomError, match="default/bad"):
        reserve(ledger, new)
    assert refusal(ledger, new, on="n2") is None
    ledger.remove_pod(bad.metadata.uid)
    assert refusal(ledger, new) is None
    assert free(ledger) == [16384, 16384]


def test_L9_a_repaired_annotation_opens_the_node_and_charges_the_pod() -> None:
    ledger = ledger_of(node(cards=[16384]))
    bad = pod("bad", memory=4000, on="n1", annotations={NAMES.index: "abc"})
    ledger.set_pod(bad)
    ledger.set_pod(pod("bad", memory=4000, uid=bad.metadata.uid, on="n1", cards=[0]))
    assert ledger.view("n1").problem is None
    assert free(ledger) == [12384]


def test_L9_a_pod_whose_demand_nobody_can_read_closes_its_node() -> None:
    ledger = ledger_of(node(cards=[16384]))
    ledger.set_pod(pod("odd", memory=10001, slots=2, on="n1", annotations={NAMES.index: "0,1"}))
    problem = ledger.view("n1").problem
    assert problem is not None
    assert "default/odd" in str(problem)
    assert "10001" in str(problem)


def test_L9_the_same_pod_is_named_whatever_order_they_arrived_in() -> None:
    bad = [pod(name, memory=1, on="n1", annotations={NAMES.index: "x"}) for name in ("c", "a", "b")]
    texts = set()
    for order in (bad, bad[::-1]):
        ledger = ledger_of(node(cards=[16384]))
        for each in order:
            ledger.set_pod(each)
        texts.add(str(ledger.view("n1").problem))
    assert len(texts) == 1, "kube-scheduler counts equal texts"
    assert "default/a" in texts.pop()


def test_L10_a_pod_that_bypassed_the_scheduler_closes_its_node() -> None:
    ledger = ledger_of(node("n1", cards=[16384]), node("n2", cards=[16384]))
    ledger.set_pod(pod("sneaky", memory=3000, on="n1"))
    assert refusal(ledger, pod("new", memory=1)) is Reason.CLOSED
    assert "default/sneaky" in str(ledger.view("n1").problem)
    assert refusal(ledger, pod("new", memory=1), on="n2") is None


def test_L10_a_pod_with_a_node_name_that_asks_for_nothing_closes_nothing() -> None:
    ledger = ledger_of(node(cards=[16384]))
    ledger.set_pod(pod("plain", on="n1"))
    ledger.set_pod(pod("zero", memory=0, on="n1"))
    assert ledger.view("n1").problem is None
    assert list(ledger.bookings()) == []


def test_L11_two_pods_and_one_gap() -> None:
    ledger = ledger_of(node(cards=[10000]))
    a, b = pod("a", memory=6000), pod("b", memory=6000)
    reserve(ledger, a)
    ledger.set_pod(a)  # the watch still shows it unbound
    assert refusal(ledger, b) is Reason.NO_ROOM
    ledger.release(a.metadata.uid)
    assert refusal(ledger, b) is None

    bound = bind(ledger, a)
    ledger.set_pod(bound)
    ledger.confirm(a.metadata.uid)
    ledger.release(a.metadata.uid)  # too late to take anything back
    booking = ledger.booking(a.metadata.uid)
    assert booking is not None
    assert booking.standing is Standing.SEEN
    assert free(ledger) == [4000]
    assert refusal(ledger, b) is Reason.NO_ROOM
    ledger.remove_pod(a.metadata.uid)
    assert free(ledger) == [10000]


def test_L11_a_pod_that_went_while_its_bind_was_in_flight_holds_nothing() -> None:
    ledger = ledger_of(node(cards=[10000]))
    a = pod("a", memory=6000)
    reserve(ledger, a)
    ledger.remove_pod(a.metadata.uid)
    ledger.confirm(a.metadata.uid)
    assert free(ledger) == [10000]
    assert list(ledger.bookings()) == []


def test_L11_a_pod_read_ahead_of_the_watch_is_not_released_by_what_the_watch_shows_late() -> None:
    """A bind's answer was lost, the pod was read and found bound; the watch still has older news of it."""
    ledger = ledger_of(node(cards=[10000]))
    a, b = pod("a", memory=6000), pod("b", memory=6000)
    reserve(ledger, a)
    ledger.set_pod(pod("a", memory=6000, uid=a.metadata.uid, on="n1", cards=[0]))
    ledger.set_pod(a)
    assert free(ledger) == [4000]
    assert refusal(ledger, b) is Reason.NO_ROOM
    ledger.remove_pod(a.metadata.uid)
    assert free(ledger) == [10000]


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_L11_a_pod_that_ended_before_its_bind_landed_gives_its_cards_back(phase: str) -> None:
    ledger = ledger_of(node(cards=[10000]))
    a = pod("a", memory=6000)
    reserve(ledger, a)
    ledger.set_pod(pod("a", memory=6000, uid=a.metadata.uid, phase=phase))
    assert free(ledger) == [10000]


def test_L11_a_confirmed_bind_cannot_be_released_and_waits_for_the_watch() -> None:
    ledger = ledger_of(node(cards=[10000]))
    a = pod("a", memory=6000)
    assert reserve(ledger, a).standing is Standing.RESERVED
    ledger.confirm(a.metadata.uid)
    ledger.release(a.metadata.uid)
    ledger.set_pod(a)  # an old view of it
    booking = ledger.booking(a.metadata.uid)
    assert booking is not None
    assert booking.standing is Standing.BOUND
    assert free(ledger) == [4000]


def test_L12_the_reserve_of_every_card_is_never_given_out() -> None:
    ledger = ledger_of(node(cards=[8192]), reserve=1024)
    assert refusal(ledger, pod("a", memory=7169)) is Reason.TOO_LARGE
    assert cards_given(ledger, bind(ledger, pod("b", memory=7168))) == [0]
    assert free(ledger) == [0]
    assert ledger.view("n1").cards[0].over_commit == 0


def test_L12_a_reserve_larger_than_the_card_leaves_nothing() -> None:
    ledger = ledger_of(node(cards=[512]), reserve=1024)
    assert free(ledger) == [0]
    assert refusal(ledger, pod(memory=1)) is Reason.TOO_LARGE


def test_L13_a_full_card_may_be_freed_and_what_never_fits_may_not() -> None:
    ledger = ledger_of(node("n1", cards=[8192]), Node(metadata=ObjectMeta(name="bare")))
    bind(ledger, pod("a", memory=8192))
    full = ledger.view("n1").refusal(demand(pod("b", memory=8192)))
    assert full is not None
    assert (full.reason, full.unresolvable) == (Reason.NO_ROOM, False)
    large = ledger.view("n1").refusal(demand(pod("c", memory=8193)))
    assert large is not None
    assert (large.reason, large.unresolvable) == (Reason.TOO_LARGE, True)
    unshared = ledger.view("bare").refusal(demand(pod("d", memory=1)))
    assert unshared is not None
    assert (unshared.reason, unshared.unresolvable) == (Reason.NOT_SHARED, True)


def test_L14_mixed_sizes() -> None:
    ledger = ledger_of(node(cards=[8192, 16384]))
    assert cards_given(ledger, bind(ledger, pod("a", memory=12000))) == [1]
    assert refusal(ledger, pod("b", memory=12000)) is Reason.NO_ROOM
    assert cards_given(ledger, bind(ledger, pod("c", memory=8192))) == [0]


def test_L15_init_containers_and_sidecars_are_charged_at_their_peak() -> None:
    ledger = ledger_of(node(cards=[10000]))
    init = [container("s", memory=1000, sidecar=True), container("i", memory=5000)]
    bind(ledger, pod("a", init=init, containers=[container("c", memory=3000)]))
    assert free(ledger) == [4000]


def test_V3_the_same_pod_cannot_be_reserved_twice() -> None:
    ledger = ledger_of(node("n1", cards=[10000]), node("n2", cards=[10000]))
    a = pod("a", memory=1000)
    reserve(ledger, a)
    for name in ("n1", "n2"):
        with pytest.raises(ValueError, match="already holds"):
            reserve(ledger, a, on=name)
    assert (free(ledger, "n1"), free(ledger, "n2")) == ([9000], [10000])


def test_V3_the_api_servers_word_moves_a_reservation() -> None:
    ledger = ledger_of(node("n1", cards=[10000]), node("n2", cards=[10000]))
    a = pod("a", memory=1000)
    reserve(ledger, a)
    ledger.set_pod(pod("a", memory=1000, uid=a.metadata.uid, on="n2", cards=[0]))
    ledger.confirm(a.metadata.uid)
    ledger.release(a.metadata.uid)
    assert (free(ledger, "n1"), free(ledger, "n2")) == ([10000], [9000])


def test_V12_quantity_zero_fits_every_node_and_is_charged_nothing() -> None:
    ledger = ledger_of(node("n1", cards=[8192]))
    bind(ledger, pod("full", memory=8192))
    ledger.set_pod(pod("sneaky", memory=1, on="closed"))
    zero = pod("zero", memory=0)
    for name in ("n1", "closed", "unknown"):
        assert refusal(ledger, zero, on=name) is None
    bound = pod("zero", memory=0, uid=zero.metadata.uid, on="n1")
    ledger.set_pod(bound)
    assert free(ledger) == [0]
    assert ledger.booking(bound.metadata.uid) is None


def test_V13_bytes_for_units_can_never_fit() -> None:
    ledger = ledger_of(node(cards=[16384]))
    assert refusal(ledger, pod("a", memory="10Gi")) is Reason.TOO_LARGE


def test_V15_order_is_not_index() -> None:
    ledger = ledger_of(node(cards=[10000] * 3))
    for index, booked in enumerate((9000, 1000, 5000)):
        ledger.set_pod(pod(f"p{index}", memory=booked, on="n1", cards=[index]))
    assert free(ledger) == [1000, 9000, 5000]
    assert cards_given(ledger, bind(ledger, pod("new", memory=4000))) == [2]


def test_V16_several_cards_are_charged_and_released_together() -> None:
    ledger = ledger_of(node(cards=[6000, 4000, 6000]))
    wide = bind(ledger, pod("wide", memory=10000, slots=2))
    assert cards_given(ledger, wide) == [0, 2]
    assert free(ledger) == [1000, 4000, 1000]
    assert refusal(ledger, pod("b", memory=4000, slots=2)) is Reason.TOO_FEW_CARDS
    assert refusal(ledger, pod("c", memory=12002, slots=2)) is Reason.MORE_CARDS_THAN_NODE
    assert refusal(ledger, pod("d", memory=4, slots=4)) is Reason.MORE_CARDS_THAN_NODE
    ledger.remove_pod(wide.metadata.uid)
    assert free(ledger) == [6000, 4000, 6000]


def test_V17_two_cards_worth_of_one_card_can_never_fit() -> None:
    ledger = ledger_of(node(cards=[16384, 16384]))
    found = ledger.view("n1").refusal(demand(pod("a", memory=20000)))
    assert found is not None
    assert (found.reason, found.unresolvable) == (Reason.TOO_LARGE, True)


def test_slots_are_counted_beside_memory() -> None:
    ledger = ledger_of(node(cards=[8192], slots=2))
    two = pod("two", containers=[container("a", memory=1), container("b", memory=1)])
    bind(ledger, two)
    assert ledger.view("n1").cards[0].free.slots == 0
    assert refusal(ledger, pod("one", memory=1)) is Reason.NO_SLOT
    ledger.remove_pod(two.metadata.uid)
    assert refusal(ledger, pod("one", memory=1)) is None


def test_another_card_with_slots_left_is_found_behind_a_roomier_one_without() -> None:
    ledger = ledger_of(node(cards=[8192, 4096], slots=1))
    ledger.set_pod(pod("a", memory=1, on="n1", cards=[0]))
    assert refusal(ledger, pod("b", memory=1)) is None
    assert cards_given(ledger, bind(ledger, pod("b", memory=1), policy=Policy.SPREAD)) == [1]


@pytest.mark.parametrize("booked", [0, 8000])
def test_more_containers_on_a_card_than_it_has_slots_can_never_fit_and_is_not_called_too_large(
    booked: int,
) -> None:
    ledger = ledger_of(node(cards=[8192], slots=2))
    if booked:
        ledger.set_pod(pod("a", memory=booked, on="n1", cards=[0]))
    three = pod("b", containers=[container(name, memory=100) for name in "abc"])
    found = ledger.view("n1").refusal(demand(three))
    assert found is not None
    assert (found.reason, found.unresolvable) == (Reason.TOO_FEW_SLOTS, True)


def test_what_only_an_unhealthy_card_could_hold_waits_for_no_victim() -> None:
    ledger = ledger_of(node(cards=[card(0, memory=16384, healthy=False), 8192]))
    found = ledger.view("n1").refusal(demand(pod("a", memory=12000)))
    assert found is not None
    assert (found.reason, found.unresolvable) == (Reason.UNHEALTHY, True)
    assert refusal(ledger, pod("b", memory=8192)) is None


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        (node(cards=[8], unit="GiB"), Reason.UNIT_MISMATCH),
        (node(cards=[]), Reason.NOT_SHARED),
        (Node(metadata=node(cards=[]).metadata, status=None), Reason.NOT_SHARED),
    ],
    ids=["other-unit", "no-cards", "no-cards-no-status"],
)
def test_nodes_that_cannot_serve_at_all_say_so_and_no_victim_helps(odd: Node, reason: Reason) -> None:
    found = ledger_of(odd).view("n1").refusal(demand(pod(memory=1)))
    assert found is not None
    assert (found.reason, found.unresolvable) == (reason, True)


def test_unreadable_cards_close_the_node_and_keep_its_pods() -> None:
    ledger = ledger_of(node(cards=[16384]))
    ledger.set_pod(pod("a", memory=4000, on="n1", cards=[0]))
    broken = Node(metadata=ObjectMeta(name="n1", annotations={NAMES.cards: "{"}))
    ledger.set_node(broken)
    found = ledger.view("n1").refusal(demand(pod("b", memory=1)))
    assert found is not None
    assert found.reason is Reason.UNREADABLE_CARDS
    assert str(found) == Reason.UNREADABLE_CARDS, "without node-specific text"
    assert found.detail in found.explain()
    ledger.set_node(node(cards=[16384]))
    assert free(ledger) == [12384]


def test_an_unknown_node_takes_nothing_and_is_not_remembered_for_being_asked_about() -> None:
    ledger = ledger_of()
    assert refusal(ledger, pod(memory=1), on="ghost") is Reason.UNKNOWN_NODE
    with pytest.raises(NoRoomError, match="no cards"):
        reserve(ledger, pod(memory=1), on="ghost")
    assert ledger.known_nodes() == []
    ledger.remove_node("ghost")
    ledger.remove_pod("ghost")
    ledger.confirm("ghost")
    ledger.release("ghost")


def test_pods_seen_before_their_node_are_charged_once_it_is_there() -> None:
    ledger = ledger_of()
    ledger.set_pod(pod("a", memory=4000, on="n1", cards=[0]))
    assert refusal(ledger, pod("b", memory=1)) is Reason.UNKNOWN_NODE
    ledger.set_node(node(cards=[16384]))
    assert free(ledger) == [12384]


def test_a_classic_node_is_served_without_slot_limit_and_by_index() -> None:
    ledger = ledger_of(node(cards=[16276, 16276], classic=True))
    ledger.set_pod(pod("old", memory=8138, on="n1", annotations={NAMES.index: "1"}))
    assert free(ledger) == [16276, 8138]
    wide = pod("wide", containers=[container(f"c{number}", memory=1) for number in range(99)])
    new = bind(ledger, wide)
    assert cards_given(ledger, new) == [1]
    assert free(ledger) == [16276, 8039]


def test_the_nodes_with_room_are_found_and_follow_changes() -> None:
    ledger = ledger_of(
        node("n1", cards=[8192, 4096]), node("n2", cards=[2048], slots=1), node("n3", cards=[])
    )

    def share(memory: int, slots: int) -> Share:
        return Share(memory=memory, slots=slots)

    assert ledger.with_room(share(2048, 1)) == {"n1", "n2"}
    assert ledger.with_room(share(2048, 2)) == {"n1"}
    assert ledger.with_room(share(8192, 1)) == ledger.with_card(share(8192, 1)) == {"n1"}
    assert ledger.with_card(share(1, 2)) == {"n1"}
    bind(ledger, pod("a", memory=8000))
    assert ledger.with_room(share(4097, 1)) == set()
    assert ledger.with_room(share(4096, 1)) == {"n1"}
    assert ledger.with_card(share(8192, 1)) == {"n1"}
    ledger.remove_node("n2")
    ledger.set_pod(pod("bypass", memory=1, on="n1"))
    assert ledger.with_room(share(1, 0)) == ledger.with_card(share(1, 0)) == set()


def test_what_is_said_about_pods_is_noted_while_somebody_compares() -> None:
    ledger = ledger_of(node("n1", cards=[8192, 8192]))
    held = bind(ledger, pod("held", memory=1000))
    with ledger.noting() as noted:
        assert noted == set()
        ledger.set_pod(held)
        ledger.remove_pod("never-held")  # its deletion is news too, to whoever holds an older list
        reserved = reserve(ledger, pod("new", memory=1000))
        assert noted == {held.metadata.uid, "never-held", reserved.pod.uid}
    ledger.remove_pod(held.metadata.uid)
    with ledger.noting() as again:
        assert again == set()
        ledger.release(reserved.pod.uid)
        assert again == {reserved.pod.uid}


def test_the_largest_card_follows_the_nodes() -> None:
    ledger = ledger_of(reserve=100)
    assert ledger.largest_card() == 0
    ledger.set_node(node("n1", cards=[8192, 16384]))
    ledger.set_node(node("n2", cards=[24576]))
    ledger.set_node(node("other-unit", cards=[99999], unit="GiB"))
    assert ledger.largest_card() == 24476
    ledger.set_node(node("n2", cards=[4096]))
    assert ledger.largest_card() == 16284
    ledger.remove_node("n1")
    assert ledger.largest_card() == 3996
    ledger.set_node(node("n3", cards=[10000]))
    assert ledger.largest_card() == 9900


def test_a_view_taken_earlier_does_not_change() -> None:
    ledger = ledger_of(node(cards=[8192]))
    before = ledger.view("n1")
    assert ledger.view("n1") is before, "nothing changed: filter of 5,000 nodes reads what is there"
    bind(ledger, pod("a", memory=192))
    assert before.cards[0].free.memory == 8192
    assert free(ledger) == [8000]


def test_questions_of_every_kind_cost_no_memory_that_stays() -> None:
    """Filter keeps sets per number of slots and amount: they must not fill the extender."""
    ledger = ledger_of(*[node(f"n{number}", cards=[8192]) for number in range(200)])
    expected = {f"n{number}" for number in range(200)}
    ledger.with_room(Share(memory=1, slots=1))
    tracemalloc.start()
    try:
        for slots in range(1, 33):
            for memory in range(1, 33):
                assert ledger.with_room(Share(memory=memory, slots=slots)) == expected
        before, _ = tracemalloc.get_traced_memory()
        for slots in range(33, 600):
            assert ledger.with_room(Share(memory=1, slots=slots)) == set()
            assert ledger.with_card(Share(memory=slots, slots=slots % 32)) == expected
            ledger.set_pod(pod("a", uid="uid-a", memory=slots, on="n0", cards=[0]))
            ledger.remove_pod("uid-a")
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 300_000
