"""Of two pairs one works. It goes while pods come in, the other takes over, and no card is given twice.

Both scenes fill every card to its last unit, so that a card given twice would show as a pod without room.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.e2e.api import Api
from tests.e2e.controlplane import ControlPlane
from tests.e2e.installation import Installation
from tests.e2e.pair import LEASE, Pair
from tests.e2e.programs import eventually
from tests.e2e.workload import add_node, held, placement, pod

NODES = 10
CARDS = [16000] * 4
SHARE = 4000
PODS = NODES * len(CARDS) * 4
A_SECOND = 25
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


class Load:
    """Pods that come in at a steady rate, from a thread of its own."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._thread = threading.Thread(target=self._run)
        self.created = 0

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()

    def _run(self) -> None:
        begin = time.monotonic()
        for number in range(PODS):
            time.sleep(max(0.0, begin + number / A_SECOND - time.monotonic()))  # the rate, not a wait
            self._api.create(pod(f"p{number}", SHARE))
            self.created += 1


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


def bound(api: Api) -> int:
    return sum(placement(item) != ("", "") for item in api.pods())


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
