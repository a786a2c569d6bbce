"""Of two pairs one works. It goes while pods come in, the other takes over, and no card is given twice.

Both scenes fill every card to its last unit, so that a card given twice would show as a pod without room.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.e2e.controlplane import ControlPlane
from tests.e2e.installation import Installation
from tests.e2e.load import CARDS, NODES, PODS, Load, bound
from tests.e2e.pair import LEASE, Pair
from tests.e2e.programs import eventually
from tests.e2e.workload import add_node, held

GONE_LEASE = 15
"""Seconds that kube-scheduler's Lease lasts (1.36)."""

pytestmark = pytest.mark.usefixtures("clean")


@pytest.fixture
def pairs(installation: Installation, request: pytest.FixtureRequest) -> Iterator[tuple[Pair, Pair]]:
    """One that leads, one that stands by."""
    name = request.node.callspec.id
    installation.plane.api.delete(LEASE)
    started: list[Pair] = []
    try:
        for number in range(2):
            started.append(Pair(installation, f"{name}-{number}"))
            if number == 0:
                started[0].until_it_leads()
        yield started[0], started[1]
    finally:
        for each in started:
            each.stop()
    assert [line for each in started for line in each.denied()] == []


def told_to_end(pair: Pair) -> None:
    """As kubelet ends the Deployment's pod: the extender at once, kube-scheduler after its preStop."""
    pair.extender.terminate()
    time.sleep(pair.pre_stop)
    pair.scheduler.terminate()
    assert pair.extender.wait() == 0
    pair.scheduler.wait()


def killed(pair: Pair) -> None:
    """As when its node goes."""
    pair.extender.kill()
    pair.scheduler.kill()


@pytest.mark.parametrize("ending", [told_to_end, killed], ids=["told-to-end", "killed"])
def test_the_other_pair_takes_over_and_every_card_is_filled_once(
    plane: ControlPlane, pairs: Sequence[Pair], ending: Callable[[Pair], None]
) -> None:
    api = plane.api
    first, second = pairs
    for number in range(NODES):
        add_node(api, f"n{number}", cards=CARDS)
    with Load(api) as load:
        eventually(lambda: load.created > PODS // 4, what="pods come in")
        assert not second.leads
        ending(first)
    second.until_it_leads(seconds=GONE_LEASE + 10)
    eventually(lambda: bound(api) == PODS, what=f"all {PODS} pods are placed; {bound(api)} are", seconds=60)
    assert set(held(api.pods()).values()) == {16000}
    assert len(held(api.pods())) == NODES * len(CARDS)
    for number in range(NODES):
        eventually(lambda: second.used(f"n{number}") == CARDS, what="the new leader counts the same")  # noqa: B023
