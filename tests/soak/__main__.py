"""Run random histories of a cluster and a node, and bodies of every kind, until the time is up.

usage: python -m tests.soak --minutes N [--seed S]

The same seed makes the same histories in the same order. Exit code 1 where something did not hold, with
the shortest history (or body) found that shows it.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable

from hypothesis import HealthCheck, Verbosity, given, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.extender.bodies import ROUTES
from tests.extender.machine import ClusterMachine
from tests.extender.target import Target
from tests.soak import node

HISTORIES, STEPS, BODIES = 50, 60, 400
"""Of one round: histories, rules in each, and bodies for each route. A round takes about half a minute."""
LEAST_BODIES = 10_000
NODE_MINUTES = 0.25
"""Of one round: a node with kubelet, device plugin and pods."""


def profile(examples: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        print_blob=False,
        verbosity=Verbosity.normal,
        suppress_health_check=list(HealthCheck),
    )


def histories(number: int) -> None:
    """One round of histories."""
    machine: type[ClusterMachine] = seed(number)(ClusterMachine)
    run_state_machine_as_test(machine, settings=profile(HISTORIES))


def node_life(number: int, *, tried: Counter[str]) -> None:
    """One round of a node's life."""
    counts = asyncio.run(node.soak(NODE_MINUTES, number))
    tried.update({f"node: {what}": count for what, count in counts.items()})


def bodies(number: int, *, tried: Counter[str]) -> None:
    """One round of bodies for every route."""
    with Target() as target:
        for path in ROUTES:
            throw(number, path=path, target=target, tried=tried)
        assert target.is_well


def throw(number: int, *, path: str, target: Target, tried: Counter[str]) -> None:
    @seed(number)
    @profile(BODIES)
    @given(body=ROUTES[path])
    def each(body: bytes) -> None:
        tried.update([f"bodies: {path}", "bodies"])
        tried[f"answers: {target.throw(path, body).status}"] += 1

    each()


def attempt(what: str, run: Callable[[], None]) -> bool:
    """Whether it held; prints how it did not."""
    try:
        run()
    except Exception:  # noqa: BLE001 — whatever it is, it is what we are looking for
        print(f"\nVIOLATION in {what}:")
        traceback.print_exc(file=sys.stdout)
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    first = options.seed if options.seed is not None else random.SystemRandom().randrange(2**32)
    print(f"seed {first}", flush=True)
    logging.getLogger("extender").setLevel(logging.ERROR)
    logging.getLogger("kubeapi").setLevel(logging.ERROR)
    logging.getLogger("deviceplugin").setLevel(logging.ERROR)
    logging.getLogger("sandbox").setLevel(logging.ERROR)
    begun, rounds, held, tried = time.monotonic(), 0, True, Counter[str]()
    while held and (time.monotonic() - begun < options.minutes * 60 or tried["bodies"] < LEAST_BODIES):
        number = first + rounds
        rounds += 1
        held = attempt(f"the bodies of seed {number}", lambda: bodies(number, tried=tried))  # noqa: B023
        if time.monotonic() - begun < options.minutes * 60:
            held &= attempt(f"the histories of seed {number}", lambda: histories(number))  # noqa: B023
            held &= attempt(f"the node of seed {number}", lambda: node_life(number, tried=tried))  # noqa: B023
        seconds = time.monotonic() - begun
        binds = ClusterMachine.counts["binds"]
        print(f"{seconds:.0f} s: {rounds} rounds, {binds} binds, {tried['bodies']} bodies", flush=True)
    for what, count in sorted((ClusterMachine.counts + tried).items()):
        print(f"{count:10d}  {what}")
    print(f"seed {first}, {rounds} rounds: {'nothing found' if held else 'A VIOLATION, see above'}")
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
