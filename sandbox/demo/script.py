"""What happens in the demo, in order, and where every pod has to land.

Nothing is deleted, so that in the end the cards still show everything that was said. Pods come one step
after the other: each step needs the cards as the one before left them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gpushare.names import Names
from gpushare.placement import Policy
from gpushare.refusals import Reason
from sandbox.demo.cluster import Cluster
from sandbox.demo.processes import DemoError
from sandbox.demo.screen import Screen

CARD = 16276
"""MiB that a 16 GiB card offers, in round numbers: four times 4069."""
NODES: Mapping[str, Sequence[int]] = dict.fromkeys(("gpu-a", "gpu-b", "gpu-c"), (CARD, CARD))
LATE_NODE = "gpu-d"
SAMPLES = Path(__file__).parents[2] / "samples"

Places = Mapping[str, tuple[int, ...]]
"""Node → what is left of each card."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Expected:
    """Where a pod has to be in the end; no node for one that has to be refused."""

    pod: str
    node: str = ""
    cards: tuple[int, ...] = ()
    refusal: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Story:
    """What has been played: for the verdict, and for people."""

    expected: tuple[Expected, ...]
    sentences: tuple[str, ...]
    pods: tuple[str, ...]
    """The name of every pod that was created."""


class Script:
    """Plays the demo on a cluster."""

    def __init__(self, *, cluster: Cluster, screen: Screen) -> None:
        self._cluster = cluster
        self._screen = screen
        self._pods: list[str] = []
        self._expected: list[Expected] = []
        self._sentences: list[str] = []

    async def play(self) -> Story:
        """From no pod to the last one; raises `DemoError` where the story does not go on."""
        await self._samples()
        await self._one_card_left()
        await self._exact_fit()
        await self._too_large()
        return Story(expected=tuple(self._expected), sentences=tuple(self._sentences), pods=tuple(self._pods))

    async def _samples(self) -> None:
        for path in sample_files():
            self._screen.say(f"kubectl apply -f samples/{path.name}")
            for manifest in yaml.safe_load_all(path.read_text()):
                await self._run(manifest)

    async def _one_card_left(self) -> None:
        # Three quarters of a card fit on the untouched node only, and not twice on one card.
        for name in ("batch-0", "batch-1"):
            await self._run(pod(name, memory=12207), node="gpu-c", cards=(int(name[-1]),))
        self._check_free({"gpu-a": (0, 8138), "gpu-b": (4069, 4069), "gpu-c": (4069, 4069)})
        self._screen.say("every node has 8138 MiB left in sum; a pod asks for 8138 on one card")
        await self._run(pod("one-card-left", memory=8138), node="gpu-a", cards=(1,))
        self._sentences.append(
            "Only gpu-a had 8138 MiB on a single card, gpu-b and gpu-c had 4069 + 4069: "
            "the pod of 8138 went to gpu-a, card 1."
        )

    async def _exact_fit(self) -> None:
        self._screen.say(f"node {LATE_NODE} joins with four cards")
        await self._cluster.nodes_ready([LATE_NODE])
        # On the card with the most left, so that the four end up different: a pod may ask for that.
        for card, memory in enumerate((4069, 8138, 12207)):
            filler = pod(f"spread-{card}", memory=memory, policy=Policy.SPREAD)
            await self._run(filler, node=LATE_NODE, cards=(card,))
        self._check_free({LATE_NODE: (12207, 8138, 4069, 16276)})
        self._screen.say(f"{LATE_NODE} has 12207, 8138, 4069 and 16276 MiB left; a pod asks for 8138")
        await self._run(pod("exact-fit", memory=8138), node=LATE_NODE, cards=(1,))
        self._sentences.append(
            f"{LATE_NODE} had 12207, 8138, 4069 and 16276 MiB left on its cards: "
            "8138 took the exact fit, card 1, and left the larger gaps whole."
        )

    async def _too_large(self) -> None:
        self._screen.say("a pod asks for 20000 MiB of one card")
        memory = self._cluster.names.memory
        reason = f"0/4 nodes are available: 1 {Reason.TOO_LARGE}, 3 Insufficient {memory}."
        self._expected.append(Expected(pod="too-large", refusal=reason))
        self._pods += await self._cluster.apply(pod("too-large", memory=20000))
        await self._cluster.refused("too-large")
        self._sentences.append(
            f"No card has 20000 MiB, though {LATE_NODE} has more in sum: "
            "the pod waits, and kubectl describe pod says why (below)."
        )

    async def _run(
        self, manifest: Mapping[str, Any], *, node: str | None = None, cards: tuple[int, ...] = ()
    ) -> None:
        names = await self._cluster.apply(manifest)
        self._pods += names
        if node is not None:
            self._expected += [Expected(pod=name, node=node, cards=cards) for name in names]
        await self._cluster.running(names)
        await self._screen.pause()

    def _check_free(self, free: Places) -> None:
        """Raise `DemoError` unless the cards are as the next step needs them."""
        for node, wanted in free.items():
            found = self._cluster.board.free(node)
            if found != wanted:
                raise DemoError(f"{node} has {found} MiB left on its cards instead of {wanted}")


def sample_files() -> list[Path]:
    """The samples in the order in which kubectl would apply the folder; raises `DemoError` without one."""
    files = sorted(SAMPLES.glob("*.yaml"))
    if not files:
        raise DemoError(f"there are no samples in {SAMPLES}: run the demo from a checkout (make demo)")
    return files


def pod(name: str, *, memory: int, policy: Policy | None = None) -> dict[str, Any]:
    """A pod of one container with an amount of one card, and perhaps a policy of its own."""
    names = Names.of()
    container = {"name": "main", "image": "busybox:1.37", "resources": {"limits": {names.memory: memory}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {names.policy: str(policy)} if policy else {}},
        "spec": {"schedulerName": "gpushare-scheduler", "containers": [container]},
    }
