"""What a pod needs of each card, against a naive walk through the pod's life."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpushare.demand import NOTHING, Demand, Share, asks_for_memory, demand_of
from gpushare.errors import DemandError
from gpushare.objects import Container, Pod, PodSpec, Resources
from tests.build import NAMES, container, demand, pod


@dataclass(frozen=True)
class Run:
    """One container of a random pod: what it asks for, in the test's own terms."""

    per_card: int
    slots: int
    sidecar: bool = False

    def built(self, name: str) -> Container:
        return container(
            name, memory=self.per_card * self.slots or None, slots=self.slots, sidecar=self.sidecar
        )


def most_held(init: Sequence[Run], apps: Sequence[Run], *, position: int) -> tuple[int, int]:
    """Walk through the pod's life and take the most (memory, slots) held of one card at any instant."""
    instants: list[list[Run]] = []
    alive: list[Run] = []
    for run in init:
        instants.append([*alive, run])
        if run.sidecar:
            alive.append(run)
    for run in apps:
        alive.append(run)
        instants.append(list(alive))
    there = [[run for run in instant if run.slots > position] for instant in instants]
    return (
        max((sum(run.per_card for run in runs) for runs in there), default=0),
        max((len(runs) for runs in there), default=0),
    )


runs = st.builds(Run, per_card=st.integers(1, 50), slots=st.integers(1, 4), sidecar=st.booleans())
apps_only = st.builds(Run, per_card=st.integers(1, 50), slots=st.integers(1, 4))


@given(init=st.lists(runs, max_size=5), apps=st.lists(apps_only, max_size=4))
def test_L15_demand_is_the_most_held_at_any_instant_of_the_pods_life(
    init: list[Run], apps: list[Run]
) -> None:
    spec = PodSpec(
        init_containers=tuple(run.built(f"i{number}") for number, run in enumerate(init)),
        containers=tuple(run.built(f"c{number}") for number, run in enumerate(apps)),
    )
    found = demand_of(spec, NAMES)
    if not init and not apps:
        assert found is None
        return
    assert found is not None
    width = max(run.slots for run in [*init, *apps])
    assert [(share.memory, share.slots) for share in found.cards] == [
        most_held(init, apps, position=position) for position in range(width)
    ]
    assert all(later.fits(earlier) for earlier, later in zip(found.cards, found.cards[1:], strict=False)), (
        "a later card never needs more than an earlier one, in any dimension"
    )
    assert found.memory == sum(share.memory for share in found.cards)


@pytest.mark.parametrize(
    ("init", "apps", "units"),
    [
        ([("i", 4000, False)], [3000], 4000),
        ([("s", 1000, True)], [3000], 4000),
        ([("s", 1000, True), ("i", 5000, False)], [3000], 6000),
        ([("i", 5000, False), ("s", 1000, True)], [3000], 5000),
        ([("i", 2000, False)], [None], 2000),
        ([("a", 3000, False), ("s", 500, True), ("b", 3200, False)], [1000, 2000], 3700),
    ],
    ids=["init", "sidecar", "sidecar-before-init", "init-before-sidecar", "init-only", "as-kubelet-held"],
)
def test_L15_init_and_sidecars(init: list[tuple[str, int, bool]], apps: list[int | None], units: int) -> None:
    asked = demand(
        pod(
            init=[container(name, memory=memory, sidecar=sidecar) for name, memory, sidecar in init],
            containers=[container(f"c{number}", memory=memory) for number, memory in enumerate(apps)],
        )
    )
    assert [share.memory for share in asked.cards] == [units]


def test_L15_always_on_an_app_container_is_not_a_sidecar() -> None:
    plain = pod(init=[container("i", memory=500)], containers=[container("c", memory=300, sidecar=True)])
    assert demand(plain).cards == (Share(memory=500, slots=1),)


def test_V12_quantity_zero_asks_but_needs_no_card() -> None:
    spec = pod(memory=0).spec
    assert asks_for_memory(spec, NAMES)
    assert demand_of(spec, NAMES) == Demand(cards=(), containers=())


def test_V12_a_container_of_quantity_zero_beside_one_that_asks_is_charged_nothing() -> None:
    asked = demand(pod(containers=[container("zero", memory="0"), container("one", memory=1000)]))
    assert asked.cards == (Share(memory=1000, slots=1),)
    assert asked.container("zero") is None


def test_a_pod_that_never_names_the_resource_has_no_demand() -> None:
    for spec in (PodSpec(), Pod().spec, pod().spec, PodSpec(containers=(Container(name="c"),))):
        assert not asks_for_memory(spec, NAMES)
        assert demand_of(spec, NAMES) is None


@pytest.mark.parametrize(
    ("quantity", "units"),
    [("1k", 1000), ("1Ki", 1024), ("1e3", 1000), ("2000m", 2), (8138, 8138), (1000.0, 1000)],
)
def test_V14_limits_are_read_in_every_spelling(quantity: str | int | float, units: int) -> None:
    asked = Container(name="c", resources=Resources(limits={NAMES.memory: quantity}))
    found = demand_of(PodSpec(containers=(asked,)), NAMES)
    assert found is not None
    assert found.memory == units


@pytest.mark.parametrize("quantity", ["500m", "-1", "", " 1", "NaN", "1.5", "1x"])
@pytest.mark.parametrize("resource", ["memory", "slots"])
def test_V14_unusable_quantities_are_errors_that_name_container_and_resource(
    quantity: str, resource: str
) -> None:
    bad = container(
        "bad", memory=quantity if resource == "memory" else 1000, slots=quantity if resource == "slots" else 1
    )
    with pytest.raises(DemandError) as raised:
        demand_of(pod(containers=[container("good", memory=1), bad]).spec, NAMES)
    assert raised.value.container == "bad"
    assert (NAMES.memory if resource == "memory" else NAMES.slot) in str(raised.value)


def test_V16_memory_is_split_evenly_over_the_slots() -> None:
    asked = demand(pod(memory=10000, slots=2))
    assert asked.cards == (Share(memory=5000, slots=1),) * 2
    main = asked.container("main")
    assert main is not None
    assert (main.per_card, main.slots) == (5000, 2)
    assert [main.on_card(position) for position in (0, 1, 2)] == [*asked.cards, NOTHING]


@pytest.mark.parametrize(
    ("memory", "slots", "problem"),
    [
        (10001, 2, "does not divide evenly"),
        (1, 2, "does not divide evenly"),
        (1000, 0, "gpu-slot: 0"),
        (0, 1, "without"),
        (None, 1, "without"),
    ],
)
def test_V16_slots_that_memory_does_not_go_with_are_errors(
    memory: int | None, slots: int, problem: str
) -> None:
    bad = container("bad", memory=memory, slots=slots)
    with pytest.raises(DemandError, match=problem):
        demand_of(pod(containers=[container("good", memory=1), bad]).spec, NAMES)


def test_containers_of_different_widths_share_the_first_cards() -> None:
    asked = demand(
        pod(containers=[container("wide", memory=3000, slots=3), container("narrow", memory=500, slots=1)])
    )
    assert asked.cards == (
        Share(memory=1500, slots=2),
        Share(memory=1000, slots=1),
        Share(memory=1000, slots=1),
    )


@pytest.mark.parametrize("slots", [2**20, 2**62, 2**63 - 1])
def test_a_hostile_number_of_slots_is_an_error_at_once(slots: int) -> None:
    start = time.process_time()
    with pytest.raises(DemandError, match="more cards than any node has"):
        demand_of(pod(memory=slots, slots=slots).spec, NAMES)
    assert time.process_time() - start < 0.05


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))
def test_shares_are_compared_and_counted_in_every_dimension(a: int, b: int, c: int, d: int) -> None:
    one, other = Share(memory=a, slots=b), Share(memory=c, slots=d)
    assert one + other - other == one
    assert one.fits(other) == (a <= c and b <= d)
    assert one.fits(one.peak(other))
    assert other.fits(one.peak(other))
    assert (one - other).clamped() == Share(memory=max(0, a - c), slots=max(0, b - d))
    assert bool(one) == (a > 0 or b > 0)


def test_a_pod_of_thousands_of_containers_is_refused_before_it_costs_anybody_time() -> None:
    crowd = [container(f"c{number}", memory=256, slots=256) for number in range(5000)]
    begun = time.process_time()
    with pytest.raises(DemandError, match=r"c4.*more than 1024 slots"):
        demand_of(pod(containers=crowd).spec, NAMES)
    assert time.process_time() - begun < 1
