"""Which pod a call is for: the decisions, without any I/O."""

from collections.abc import Mapping

import msgspec
import pytest

from deviceplugin.errors import NoPodError, PodError
from deviceplugin.matching import Call, Listed, Match, Memory, asks_of, match, match_alone, possible
from deviceplugin.modes import Slots
from deviceplugin.pods import NodePod, NodePodStatus
from tests.deviceplugin.pods import NAMES, C, bound, card

CARDS = (card(0), card(1))
A = bound("a", C(memory=2000), cards=[card(0)])
B = bound("b", C(memory=2000), cards=[card(1)])
ONE = Call(size=1)
SLOTS = Slots(names=NAMES)
NOTHING_YET = Memory(answered={})


def listed(*pods: NodePod, **held: Mapping[str, str]) -> list[Listed]:
    """kubelet's list; `held` gives a pod's container → slot."""
    return [
        Listed(
            namespace="default",
            name=pod.metadata.name,
            held={name: frozenset({slot}) for name, slot in held.get(pod.metadata.name, {}).items()},
        )
        for pod in pods
    ]


def matched(
    call: Call,
    kubelet: list[Listed],
    *known: NodePod,
    memory: Memory = NOTHING_YET,
) -> Match:
    return match(
        call,
        listed=kubelet,
        pods={pod.key: pod for pod in known},
        memory=memory,
        cards=CARDS,
        mode=SLOTS,
    )


def alone(call: Call, *known: NodePod, memory: Memory = NOTHING_YET) -> Match:
    return match_alone(call, pods=known, memory=memory, cards=CARDS, mode=SLOTS)


def answered(pod: NodePod, **slots: str) -> Memory:
    return Memory(answered={pod.metadata.uid: {name: frozenset({slot}) for name, slot in slots.items()}})


def test_containers_are_asked_for_init_first_and_only_those_with_slots() -> None:
    pod = bound(
        "p",
        C(name="app", memory=1),
        C(name="none"),
        C(name="side", memory=1, kind="sidecar"),
        C(name="init", memory=2, slots=2, kind="init"),
        cards=CARDS,
    )
    assert [(ask.container, ask.size, ask.listed) for ask in asks_of(pod, resource=NAMES.slot)] == [
        ("side", 1, True),
        ("init", 2, False),
        ("app", 1, True),
    ]


def test_A2_only_the_pod_that_kubelet_lists() -> None:
    assert matched(ONE, listed(B), A, B).pod is B


def test_pods_that_hold_their_slots_are_not_meant() -> None:
    assert matched(ONE, listed(A, B, a={"main": "GPU-0::0"}), A, B).pod is B


def test_the_size_of_the_call_tells_pods_apart() -> None:
    two = bound("two", C(memory=2000, slots=2), cards=CARDS)
    assert matched(Call(size=2), listed(A, two), A, two).pod is two


def test_ambiguous_calls_are_errors_that_name_the_pods() -> None:
    with pytest.raises(NoPodError, match=r"2 pods wait .* different cards \(default/a, default/b\)"):
        matched(ONE, listed(A, B), A, B)


def test_pods_that_would_get_the_same_answer_are_one_to_us() -> None:
    twin = bound("twin", C(memory=2000), cards=[card(0)])
    assert matched(ONE, listed(A, twin), A, twin).answer.cards == (CARDS[0],)


def test_the_slots_that_were_preferred_tell_pods_apart() -> None:
    assert matched(Call(size=1, ids=frozenset({"GPU-1::3"})), listed(A, B), A, B).pod is B


def test_A3_nobody_waits() -> None:
    with pytest.raises(NoPodError, match="kubelet lists default/a"):
        matched(ONE, listed(A, a={"main": "GPU-0::0"}), A)


def test_a_pod_that_cannot_be_answered_is_still_the_one_meant() -> None:
    stray = bound("stray", C(memory=1))
    with pytest.raises(PodError, match="default/stray"):
        matched(ONE, listed(stray), A, stray)
    with pytest.raises(NoPodError):
        matched(ONE, listed(A, stray), A, stray)


def test_terminal_pods_are_not_meant() -> None:
    done = bound("done", C(memory=2000), cards=[card(1)], phase="Failed")
    assert matched(ONE, listed(A, done), A, done).pod is A


def test_a_refused_pod_comes_last() -> None:
    memory = Memory(answered={}, refused={"uid-b"})
    assert matched(ONE, listed(A, B), A, B, memory=memory).pod is A
    assert matched(ONE, listed(B), B, memory=memory).pod is B


def test_A8_a_container_whose_record_kubelet_lost() -> None:
    memory = answered(A, main="GPU-0::0")
    assert matched(ONE, listed(A), A, memory=memory).pod is A


def test_A8_an_init_containers_record_too_while_its_pod_is_not_admitted() -> None:
    pod = bound("p", C(name="init", memory=2, kind="init"), C(), cards=[card(0)])
    memory = answered(pod, init="GPU-0::0")
    assert matched(ONE, listed(pod), pod, memory=memory).container == "init"
    admitted = msgspec.structs.replace(pod, status=NodePodStatus(phase="Running"))
    with pytest.raises(NoPodError):
        matched(ONE, listed(pod), admitted, memory=memory)


def test_A8_the_same_slots_again_are_the_same_container_again() -> None:
    pod = bound("p", C(name="one", memory=1), C(name="two", memory=1), cards=[card(0)])
    repeat = Call(size=1, ids=frozenset({"GPU-0::0"}))
    memory = answered(pod, one="GPU-0::0")
    assert matched(repeat, listed(pod, p={"one": "GPU-0::0"}), pod, memory=memory).container == "one"


def test_A8_a_pod_that_waits_comes_before_repeats() -> None:
    assert matched(ONE, listed(A, B), A, B, memory=answered(A, main="GPU-0::0")).pod is B


def test_A8_nobody_is_repeated_while_a_listed_pod_is_gone_from_the_api() -> None:
    with pytest.raises(NoPodError):
        matched(ONE, listed(A, B), A, memory=answered(A, main="GPU-0::0"))


def test_a_later_container_gets_an_init_containers_slots() -> None:
    pod = bound("p", C(name="init", memory=2, kind="init"), C(name="app", memory=1), cards=[card(0)])
    call = Call(size=1, ids=frozenset({"GPU-0::0"}))
    assert matched(call, listed(pod), pod, memory=answered(pod, init="GPU-0::0")).container == "app"


def test_after_a_restart_kubelets_list_says_how_far_a_pod_is() -> None:
    pod = bound(
        "p",
        C(name="init", memory=2, kind="init"),
        C(name="one", memory=1),
        C(name="two", memory=1),
        cards=[card(0)],
    )
    assert matched(ONE, listed(pod, p={"one": "GPU-0::0"}), pod).container == "two"


@pytest.mark.parametrize(
    "status",
    [
        NodePodStatus(phase="Pending", start_time="2026-01-01T00:00:00Z"),
        NodePodStatus(phase="Running"),
        NodePodStatus(phase="Pending", init_container_statuses=({},)),
    ],
    ids=["started", "runs", "initialises"],
)
def test_A4_after_a_restart_kubelets_status_tells_who_was_answered(status: NodePodStatus) -> None:
    before = bound("init-only", C(memory=2000, kind="init"), cards=[card(0)])
    before = msgspec.structs.replace(before, status=status)
    assert matched(ONE, listed(before, B), before, B).pod is B
    with pytest.raises(NoPodError):
        matched(ONE, listed(before), before)


def test_A4_after_a_restart_a_running_pod_is_none_that_waits() -> None:
    running = bound("running", C(memory=2000), cards=[card(0)], phase="Running")
    assert alone(ONE, running, B).pod is B
    assert matched(ONE, listed(running, B), running, B).pod is B


def test_A4_after_a_restart_the_mark_tells_who_was_answered() -> None:
    before = bound("before", C(memory=2000), cards=[card(0)], **{NAMES.assigned: "true"})
    assert matched(ONE, listed(before, B), before, B).pod is B


def test_A14_what_may_be_meant_is_what_the_watch_lacks_and_what_lacks_slots() -> None:
    stray = bound("stray", C(memory=1))
    idle = bound("idle", C())
    init_only = bound("init-only", C(memory=1, kind="init"), cards=[card(0)], phase="Running")
    unknown = bound("unknown", C(memory=1), cards=[card(0)])
    known = [A, B, stray, idle, init_only]
    meant = possible(
        listed(*known, unknown, b={"main": "GPU-1::0"}), pods={pod.key: pod for pod in known}, mode=SLOTS
    )
    assert [pod.name for pod in meant] == ["a", "stray", "unknown"]


def test_without_kubelet_the_only_waiting_pod() -> None:
    assert alone(ONE, A).pod is A
    assert alone(ONE, A, B, memory=answered(A, main="GPU-0::0")).pod is B


def test_without_kubelet_two_waiting_pods_are_an_error_even_of_different_sizes() -> None:
    two = bound("two", C(memory=2000, slots=2), cards=CARDS)
    with pytest.raises(NoPodError, match="PodResources is out of reach and 2 pods wait"):
        alone(Call(size=2), A, two)


def test_without_kubelet_a_demand_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(NoPodError):
        alone(Call(size=2), A)


def test_without_kubelet_a_repeat_is_known_by_its_slots() -> None:
    memory = answered(A, main="GPU-0::0")
    assert alone(Call(size=1, ids=frozenset({"GPU-0::0"})), A, memory=memory).pod is A
    with pytest.raises(NoPodError):
        alone(Call(size=1, ids=frozenset({"GPU-0::1"})), A, memory=memory)
