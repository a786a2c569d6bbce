"""How many important pods wait because of fragmentation alone: `preempt` is never asked about them.

It looks for victims by the nodes' sums. Where these are in order and only no single card has room, it finds
none, however much the pod outranks others. That cannot be promised away, so it is counted. Not in filter,
whose common refusal is one look into a set: this looks at every booking. But beside it, every few seconds.

The same look counts the waiting pods that would find a card: where nobody asks for those, something is wrong.
For the others kube-scheduler 1.36 asks nothing while no node's own totals have room, as in a full cluster.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from extender.slices import in_slices
from gpushare.demand import Demand, Share, demand_of
from gpushare.errors import DemandError
from gpushare.ledger import Ledger
from gpushare.objects import Pod
from gpushare.preemption import Preemptor, is_fragmented

LOOK = 15.0
"""Seconds from one look at the waiting pods to the next, if it is quick."""

_SHARE_OF_TIME = 0.05
"""Of the event loop at most: with many different demands over many nodes, looks become rarer."""


class FragmentationWatch:
    """Counts the waiting pods that fragmentation alone holds up, and those that would find a card. Lives on
    the ledger's event loop."""

    def __init__(self, ledger: Ledger, *, waiting: Mapping[str, Pod], is_active: Callable[[], bool]) -> None:
        """`waiting` are the unbound pods that ask for memory, by UID. Only the active replica counts."""
        self._ledger = ledger
        self._waiting = waiting
        self._is_active = is_active
        self.pods = 0
        """How many fragmentation alone held up at the last look."""
        self.fitting = 0
        """How many some node would have taken at the last look, as far as cards go."""

    async def run(self) -> None:
        """Look again and again until cancelled."""
        while True:
            begun = time.perf_counter()
            await self.look()
            took = time.perf_counter() - begun
            await asyncio.sleep(max(LOOK, took / _SHARE_OF_TIME))

    async def look(self) -> None:
        """Count once. Fragmentation alone holds up pods that no node takes, while one would by its sums, and
        would by its cards if pods that they outrank were gone. Pods with scheduling gates wait for others."""
        fits: dict[tuple[Share, ...], bool] = {}  # few demands are waited for by many pods
        fragmented: dict[tuple[tuple[Share, ...], int], bool] = {}
        fitting = held_up = 0
        for pod in tuple(self._waiting.values()) if self._is_active() else ():
            demand = None if pod.spec.scheduling_gates else self._demand(pod)
            if demand is None or not demand.cards:
                continue
            if demand.cards not in fits:
                fits[demand.cards] = await self._fits(demand)
            if fits[demand.cards]:
                fitting += 1
                continue
            preemptor = Preemptor(demand=demand, priority=pod.spec.priority or 0)
            key = demand.cards, preemptor.priority
            if key not in fragmented:
                fragmented[key] = await self._is_fragmented(preemptor)
            held_up += fragmented[key]
        self.pods, self.fitting = held_up, fitting

    def _demand(self, pod: Pod) -> Demand | None:
        try:
            return demand_of(pod.spec, self._ledger.names)
        except DemandError:
            return None

    async def _fits(self, demand: Demand) -> bool:
        if len(demand.cards) == 1:
            return bool(self._ledger.with_room(demand.cards[0]))
        async for name in in_slices(self._ledger.known_nodes()):
            if self._ledger.view(name).refusal(demand) is None:
                return True
        return False

    async def _is_fragmented(self, preemptor: Preemptor) -> bool:
        async for name in in_slices(self._ledger.known_nodes()):
            if is_fragmented(self._ledger.view(name), preemptor=preemptor):
                return True
        return False
