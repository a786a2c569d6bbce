"""A refusal waits a moment for news (L13), and such waits stay a small part of the time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from extender.secondlook import PATIENCE, SecondLook
from extender.wire import FilterResult
from tests.virtual import VirtualLoop

FULL = FilterResult(node_names=[], failed_nodes={"n1": "full"})
FITS = FilterResult(node_names=["n1"])


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.close()


class Watches:
    """What the watches have shown: the pod that is in the way goes at `leaves`."""

    def __init__(self, *, clock: Callable[[], float], leaves: float) -> None:
        self._clock = clock
        self._leaves = leaves

    def version(self) -> bool:
        return self._clock() >= self._leaves

    def look(self) -> FilterResult:
        return FITS if self.version() else FULL


def test_L13_room_that_the_watch_shows_a_moment_later_is_found(loop: VirtualLoop) -> None:
    watches = Watches(clock=loop.time, leaves=0.03)
    second_look = SecondLook(versions=watches.version)
    assert loop.run(second_look(watches.look, first=FULL)) == FITS
    assert 0.03 <= loop.time() < PATIENCE


def test_where_nothing_happens_the_refusal_is_a_moment_late(loop: VirtualLoop) -> None:
    watches = Watches(clock=loop.time, leaves=9)
    second_look = SecondLook(versions=watches.version)
    assert loop.run(second_look(watches.look, first=FULL)) is FULL
    assert PATIENCE <= loop.time() < PATIENCE + 0.01


def test_many_waiting_pods_are_refused_at_once_most_of_the_time(loop: VirtualLoop) -> None:
    watches = Watches(clock=loop.time, leaves=float("inf"))
    second_look = SecondLook(versions=watches.version)
    waited = 0.0
    for _ in range(1000):
        begin = loop.time()
        loop.run(second_look(watches.look, first=FULL))
        waited += loop.time() - begin
        loop.run(asyncio.sleep(0.005))
    assert 0.05 < waited / loop.time() < 0.15


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (FULL, True),
        (FITS, False),
        (FilterResult(node_names=["n2"], failed_nodes={"n1": "full"}), False),
        (FilterResult(node_names=[], failed_and_unresolvable_nodes={"n1": "too small"}), False),
        (FilterResult(node_names=[]), False),
    ],
    ids=["full", "fits", "one-fits", "never", "nothing-asked"],
)
def test_only_a_refusal_that_may_pass_is_worth_it(result: FilterResult, *, expected: bool) -> None:
    assert result.none_fits_yet is expected
