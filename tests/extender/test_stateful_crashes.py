"""V8, V7: an extender that is killed, or loses its turn, at any point of a bind at which it waits.

Two pods want the same card. Whatever becomes of the first one's bind, the second gets the card or it does
not, and never do both.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from sandbox.apiserver import Rule
from tests.build import card
from tests.extender.truth import Published, node_of
from tests.extender.world import World

TURNS = range(16)
"""A bind takes about ten turns of the loop."""
SECONDS = (0.0, 0.12, 3.4, 3.7, 4.5, 30.0)
"""Into the waits: between two tries, before and after the deadline, while a lost answer is asked for."""
FAULTS: dict[str, Rule | None] = {
    "none": None,
    "request lost": Rule(action="drop", client="replica-1", path="/binding$", count=1),
    "answer lost": Rule(action="drop", when="after", client="replica-1", path="/binding$", count=1),
    "all requests lost": Rule(action="drop", client="replica-1", path="/binding$"),
    "all answers lost": Rule(action="drop", when="after", client="replica-1", path="/pods/"),
    "throttled": Rule(
        action="answer", status=429, retry_after=1, client="replica-1", path="/binding$", count=1
    ),
    "500 after the write": Rule(
        action="answer", when="after", status=500, client="replica-1", path="/binding$", count=1
    ),
    "504": Rule(action="answer", status=504, client="replica-1", path="/binding$", count=9),
    "held": Rule(action="hold", client="replica-1", path="/binding$"),
    "answer held": Rule(action="hold", when="after", client="replica-1", path="/binding$"),
    "reads held": Rule(action="hold", client="replica-1", path="/pods"),
}


def world_with_two_pods(*, replicas: int) -> World:
    world = World(replicas=replicas)
    world.__enter__()
    world.publish("n1", Published(cards=(card(0, memory=10),)))
    for replica in world.replicas:
        world.start(replica)
    world.loop.advance(1)
    world.switch(world.replicas[0])
    for number in range(2):
        world.create("half", number=number)
    world.loop.advance(0.1)
    return world


def moments() -> Iterator[tuple[float, int]]:
    """Every turn of the loop at the beginning, then a few turns after each wait."""
    yield from ((0.0, turns) for turns in TURNS)
    yield from itertools.product(SECONDS[1:], (0, 2, 5))


def winners(world: World) -> list[str]:
    return [pod["metadata"]["name"] for pod in world.pods() if node_of(pod)]


@pytest.mark.parametrize("fault", FAULTS)
def test_V8_killed_at_any_moment_of_a_bind(fault: str) -> None:
    for seconds, turns in moments():
        world = world_with_two_pods(replicas=1)
        try:
            first, second = world.pods()
            rule = FAULTS[fault]
            if rule is not None:
                world.fault(rule)
            world.bind(first, node="n1")
            world.loop.advance(seconds)
            world.loop.turn(turns)
            world.crash(world.replicas[0])
            world.api.faults.clear()
            world.start(world.replicas[0])
            world.loop.advance(0.1)
            error = world.bound(world.bind(second, node="n1"))
            world.check()
            world.at_rest()
            assert len(winners(world)) == 1, (seconds, turns)
            assert (winners(world) == ["half-1"]) == (not error)
        finally:
            world.__exit__()


@pytest.mark.parametrize("fault", FAULTS)
def test_V7_another_replica_takes_over_at_any_moment_of_a_bind(fault: str) -> None:
    """Its watch is frozen, and the first one goes on with what it has begun."""
    for seconds, turns in moments():
        world = world_with_two_pods(replicas=2)
        try:
            first, second = world.pods()
            rule = FAULTS[fault]
            if rule is not None:
                world.fault(rule)
            world.fault(Rule(action="freeze", client="replica-2"))
            world.bind(first, node="n1")
            world.loop.advance(seconds)
            world.loop.turn(turns)
            world.switch(world.replicas[1])
            error = world.bound(world.bind(second, node="n1"))
            world.check()
            world.at_rest()
            assert len(winners(world)) == 1, (seconds, turns)
            assert (winners(world) == ["half-1"]) == (not error)
        finally:
            world.__exit__()
