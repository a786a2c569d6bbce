"""The node side for as long as one likes: the moves of `tests.deviceplugin.world`, drawn at random."""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from gpushare.placement import Policy
from tests.deviceplugin.pods import C
from tests.deviceplugin.world import SIZES, World, any_containers

QUIET_EVERY = 40
"""Moves after which everything is put in order and all records must agree."""


async def soak(minutes: float, seed: int) -> Counter[str]:
    """Live so long and say how often what happened. Raises AssertionError for what must never be."""
    chance = random.Random(seed)
    end = time.monotonic() + minutes * 60
    with tempfile.TemporaryDirectory(prefix="s-", dir="/tmp") as folder:
        world = await World.open(Path(folder))
        try:
            while time.monotonic() < end:
                for _ in range(QUIET_EVERY):
                    await _move(world, chance=chance)
                    world.check()
                await world.quiet()
            return world.counts
        finally:
            await world.close()


async def _move(world: World, *, chance: random.Random) -> None:
    choice = chance.randrange(30)
    moves: list[tuple[int, Callable[[], Awaitable[None]]]] = [
        (12, lambda: world.bind(_name(chance), *_containers(chance), policy=chance.choice(list(Policy)))),
        (14, lambda: world.admit(choice)),
        (2, lambda: world.replace(choice, *_containers(chance))),
        (5, lambda: world.delete(choice)),
        (2, lambda: world.finish(choice, phase=chance.choice(["Succeeded", "Failed"]))),
        (1, lambda: world.restart_kubelet(reboot=chance.random() < 0.4)),
        (1, world.restart_plugin),
        (1, world.hang_up),
        (1, world.stop_plugin),
        (2, world.start_plugin),
        (2, lambda: world.outage(until_further_notice=chance.random() < 0.4)),
        (2, world.lag),
        (1, lambda: world.turn_card(chance.randrange(len(SIZES)))),
        (1, lambda: world.reregister(recreate=chance.random() < 0.5)),
        (2, lambda: world.meddle(choice)),
    ]
    weights, calls = zip(*moves, strict=True)
    await chance.choices(calls, weights=weights)[0]()


def _name(chance: random.Random) -> str:
    return chance.choice("abcdefghijkl")


def _containers(chance: random.Random) -> list[C]:
    while True:
        shape = [
            (
                chance.choice([0, 500, 1000, 3000]),
                chance.choice([1, 1, 1, 2]),
                chance.choice(["app", "app", "init", "sidecar"]),
            )
            for _ in range(chance.randint(1, 4))
        ]
        if any(memory for memory, _, _ in shape) and any(kind == "app" for _, _, kind in shape):
            return any_containers(shape)
