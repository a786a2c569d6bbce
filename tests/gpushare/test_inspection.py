"""What `inspect` says of a ledger and of the pods that wait."""

from collections.abc import Sequence

from gpushare.bookings import PodRef
from gpushare.cards import Card
from gpushare.demand import demand_of
from gpushare.inspection import MOST_REQUESTS, Inspection, WaitingPod, inspect
from gpushare.ledger import Ledger
from gpushare.objects import Node, Pod
from gpushare.placement import Policy
from tests.build import NAMES, card, container, node, pod


def inspected(*objects: Node | Pod, only: str | None = None, reserved: Pod | None = None) -> Inspection:
    """The answer for a cluster of these nodes and pods."""
    ledger = Ledger(names=NAMES, unit="MiB")
    waiting = []
    for each in objects:
        if isinstance(each, Node):
            ledger.set_node(each)
        else:
            ledger.set_pod(each)
            if not each.node_name:
                waiting.append(each)
    if reserved is not None:
        demand = demand_of(reserved.spec, NAMES)
        assert demand is not None
        ledger.reserve_cards(PodRef.of(reserved), demand=demand, node="n1", policy=Policy.BINPACK)
    found = inspect(ledger, waiting=waiting, only=only)
    assert found is not None
    return found


def waits(*objects: Node | Pod) -> WaitingPod:
    """The answer for the one pod that waits."""
    (found,) = inspected(*objects).waiting
    return found


def reasons(found: WaitingPod) -> Sequence[tuple[str, int]] | None:
    return None if found.reasons is None else [(each.reason, each.nodes) for each in found.reasons]


def test_the_answer_names_resource_and_unit_and_each_node_its_own() -> None:
    found = inspected(node("n1", cards=[100], address="10.0.0.7"), node("n2", cards=[1], unit="GiB"))
    assert (found.resource, found.unit) == ("aliyun.com/gpu-mem", "MiB")
    assert [(each.name, each.unit, each.address) for each in found.nodes] == [
        ("n1", "MiB", "10.0.0.7"),
        ("n2", "GiB", ""),
    ]
    assert found.nodes[1].closed == "node counts GPU memory in another unit than the scheduler"


def test_L9_L12_free_is_what_a_new_pod_may_still_get() -> None:
    found = inspected(
        node(
            "n1",
            cards=[card(0, memory=8192), card(1, memory=8192, healthy=False), card(2, memory=4096)],
            slots=2,
        ),
        pod("a", memory=3000, on="n1", cards=[0]),
        *(pod(name, memory=100, on="n1", cards=[2]) for name in ("b", "c")),
        node("shut", cards=[8192]),
        pod("bypassed", memory=3000, on="shut"),
    )
    free = {each.name: [one.free_gpu for one in each.devs] for each in found.nodes}
    assert free == {"n1": [5192, 0, 0], "shut": [0]}, "its bookings; unhealthy; no slot left; a closed node"


def test_an_address_that_changes_is_shown() -> None:
    ledger = Ledger(names=NAMES, unit="MiB")
    shown = []
    for address in ("10.0.0.7", "10.0.0.8"):
        ledger.set_node(node("n1", cards=[100], address=address))
        shown.append(ledger.view("n1").address)
    ledger.remove_node("n1")
    ledger.set_node(node("n1", cards=[100]))
    assert [*shown, ledger.view("n1").address] == ["10.0.0.7", "10.0.0.8", ""]


def test_nodes_without_cards_are_only_shown_when_asked_for_by_name() -> None:
    bare = Node(metadata=node("bare", cards=[]).metadata)
    assert inspected(bare).nodes == []
    assert [each.name for each in inspected(bare, only="bare").nodes] == ["bare"]
    assert inspect(Ledger(names=NAMES, unit="MiB"), only="ghost") is None


def test_a_pod_on_several_cards_shows_on_each_what_its_containers_may_use_there() -> None:
    containers = [container("one", memory=3000), container("two", memory=8000, slots=2), container("log")]
    found = inspected(
        node(cards=[16384] * 2),
        pod("a", containers=containers, init=[container("warm", memory=9000)], on="n1", cards=[1, 0]),
    )
    (first,), (second,) = (card.pods for card in reversed(found.nodes[0].devs))
    assert [(each.name, each.used_gpu) for each in first.containers] == [
        ("warm", 9000),
        ("one", 3000),
        ("two", 4000),
    ]
    assert [(each.name, each.used_gpu) for each in second.containers] == [("two", 4000)]
    assert (first.used_gpu, first.card, second.used_gpu, second.card) == (9000, 1, 4000, 0)


def test_a_pod_says_since_when_it_has_its_card_and_whether_kubelet_was_told() -> None:
    def on_card(**annotations: str) -> tuple[str | None, bool]:
        extra = {getattr(NAMES, key): value for key, value in annotations.items()}
        found = inspected(node(cards=[16384]), pod("a", memory=1, on="n1", cards=[0], annotations=extra))
        (shown,) = found.nodes[0].devs[0].pods
        return shown.since, shown.assigned

    assert on_card(assume_time="1767225600123456789") == ("2026-01-01T00:00:00Z", False)
    assert on_card(assume_time="1767225600123456789", assigned="true") == ("2026-01-01T00:00:00Z", True)
    assert on_card(assume_time="99999999999999999999", assigned="yes") == ("5138-11-16T09:46:39Z", False)
    for unreadable in ("", "-1", "1e9", "soon", "9" * 21, "١٢"):
        assert on_card(assume_time=unreadable) == (None, False)


def test_a_bind_in_flight_is_shown_without_a_time() -> None:
    found = inspected(node(cards=[16384]), reserved=pod("a", memory=5))
    (shown,) = found.nodes[0].devs[0].pods
    assert (shown.standing, shown.since, shown.assigned) == ("reserved", None, False)


def test_L10_pods_whose_cards_nobody_can_tell_are_listed_by_what_is_wrong() -> None:
    found = inspected(
        node(cards=[16384]),
        pod("bypassed", memory=3, on="n1"),
        pod("edited", memory=1, on="n1", annotations={NAMES.index: "abc"}),
        pod("senseless", memory="1.5", on="n1"),
    )
    (shown,) = found.nodes
    assert [(each.name, each.used_gpu, each.state) for each in shown.unreadable] == [
        ("bypassed", 3, "no_allocation"),
        ("edited", 1, "unreadable_allocation"),
        ("senseless", 0, "unreadable_allocation"),
    ]
    assert shown.unreadable[0].problem == "has no card allocation"
    assert shown.closed is not None
    assert "default/bypassed has no card allocation" in shown.closed


def test_L6_a_pod_on_a_card_that_has_gone_is_missing_with_its_card() -> None:
    found = inspected(node(cards=[16384]), pod("a", memory=7, on="n1", cards=[3]))
    (lost,) = found.nodes[0].missing
    assert (lost.name, lost.card, lost.used_gpu) == ("a", 3, 7)
    assert found.nodes[0].devs[0].pods == []


def test_a_waiting_pod_says_which_refusals_it_gets_counted() -> None:
    found = waits(
        *(node(f"full-{number}", cards=[8000, 8000]) for number in range(2)),
        *(pod(f"p{n}{c}", memory=5000, on=f"full-{n}", cards=[c]) for n in range(2) for c in range(2)),
        *(node(f"small-{number}", cards=[1000]) for number in range(3)),
        node("ill", cards=[card(memory=8000, healthy=False)]),
        *(node(f"shut-{number}", cards=[8000]) for number in range(2)),
        *(pod(f"bypassed-{number}", memory=1, on=f"shut-{number}") for number in range(2)),
        pod("a", memory=4000, created="2026-01-01T00:00:00Z"),
    )
    assert (found.name, found.since, found.used_gpu, found.slots) == ("a", "2026-01-01T00:00:00Z", 4000, 1)
    assert reasons(found) == [
        ("GPU memory request is larger than any card of the node", 3),
        ("no single GPU card has enough memory left", 2),
        ("node takes no GPU pods until one of its pods is gone", 2),
        ("GPU cards large enough are not healthy", 1),
    ]
    assert (found.fitting, found.problem) == (0, None)


def test_a_waiting_pod_that_some_node_would_take_says_so() -> None:
    found = waits(node("n1", cards=[8000]), node("n2", cards=[10]), pod("a", memory=4000, slots=2))
    assert reasons(found) == [("request needs more or larger GPU cards than the node has", 2)]
    found = waits(node("n1", cards=[8000, 8000]), node("n2", cards=[10]), pod("a", memory=4000, slots=2))
    assert (found.used_gpu, found.slots, found.fitting) == (4000, 2, 1)
    nothing = waits(node("n1", cards=[8000]), pod("a", memory=0))
    assert (nothing.used_gpu, nothing.slots, nothing.fitting, reasons(nothing)) == (0, 0, 1, [])


def test_a_request_that_makes_no_sense_is_the_pods_own_problem() -> None:
    found = waits(node(cards=[8000]), pod("a", memory=5, slots=2))
    assert (reasons(found), found.fitting, found.used_gpu) == (None, None, 0)
    assert found.problem == (
        "container 'main': aliyun.com/gpu-mem: 5 does not divide evenly over aliyun.com/gpu-slot: 2"
    )
    typo = waits(node(cards=[8000]), pod("a", memory=5, annotations={NAMES.policy: "bin"}))
    assert typo.problem is not None
    assert "'bin'" in typo.problem


def test_one_node_asked_for_by_name_tells_what_it_says_to_those_who_wait() -> None:
    objects = node("n1", cards=[8000]), node("n2", cards=[10]), pod("a", memory=4000)
    (found,) = inspected(*objects, only="n2").waiting
    assert reasons(found) == [("GPU memory request is larger than any card of the node", 1)]


def test_the_oldest_requests_are_looked_into_and_later_ones_that_equal_them() -> None:
    def asks(memory: int, *, minute: int) -> Pod:
        return pod(f"p{minute}", memory=memory, created=f"2026-01-01T00:{minute:02}:00Z")

    many = [asks(minute + 1, minute=minute) for minute in range(MOST_REQUESTS + 2)]
    found = inspected(node(cards=[8000]), *reversed(many), asks(1, minute=59)).waiting
    assert [each.name for each in found] == [f"p{n}" for n in (*range(MOST_REQUESTS + 2), 59)]
    assert [each.fitting for each in found] == [1] * MOST_REQUESTS + [None, None, 1]
    assert [each.reasons for each in found] == [[]] * MOST_REQUESTS + [None, None, []]


def test_the_classic_names_are_on_the_wire() -> None:
    found = inspected(
        node(cards=[Card(index=0, uuid="GPU-n1-0", memory=10)]), pod("a", memory=4, on="n1", cards=[0])
    )
    wire = found.model_dump(by_alias=True)
    assert wire["nodes"][0]["totalGPU"] == 10
    assert wire["nodes"][0]["devs"][0]["usedGPU"] == 4
    assert wire["nodes"][0]["devs"][0]["pods"][0]["usedGPU"] == 4
    assert Inspection.model_validate_json(found.model_dump_json(by_alias=True)) == found
