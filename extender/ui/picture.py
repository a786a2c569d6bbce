"""What has changed since a reader was last told.

The ledger makes a new view of a node when something changed and keeps the old one otherwise, so comparing
identities is enough. Nothing is queued for anybody: a reader who is slow is told less often, of what is
true by then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping

from pydantic import BaseModel

from extender.slices import in_slices
from gpushare.inspection import InspectedNode, WaitingPod, WaitingSurvey, inspect_node
from gpushare.ledger import Ledger
from gpushare.objects import Pod
from gpushare.views import NodeView

AT_ONCE = 50
"""Nodes told in one event: the first rows show while the rest is on its way."""

MOST_WAITING = 200
"""Waiting pods that are told of one by one, the oldest."""

_LOOK = 1.0
_SHARE_OF_TIME = 0.05
"""Of the event loop for what waits, at most: with many requests over many nodes, looks become rarer."""


class Change(BaseModel):
    """Nodes as they are now, and the names of those that are gone or share no cards any more."""

    nodes: list[InspectedNode]
    gone: list[str]


class Waiting(BaseModel):
    """The pods that have no node yet."""

    count: int
    pods: list[WaitingPod]


class Picture:
    """What one reader has been told of the nodes."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._told: dict[str, NodeView] = {}

    async def changes(self) -> AsyncGenerator[Change]:
        """Everything that is not as it was told; it counts as told from then on."""
        names = self._ledger.known_nodes()
        gone = sorted(self._told.keys() - set(names))
        for name in gone:
            del self._told[name]
        nodes: list[InspectedNode] = []
        async for name in in_slices(names):
            view = self._ledger.view(name)
            if self._told.get(name) is view:
                continue
            if view.known and view.is_shared:
                self._told[name] = view
                nodes.append(inspect_node(view))
            elif self._told.pop(name, None):
                gone.append(name)
            if len(nodes) >= AT_ONCE:
                yield Change(nodes=nodes, gone=gone)
                nodes, gone = [], []
        if nodes or gone:
            yield Change(nodes=nodes, gone=gone)


class WaitingBoard:
    """What waits and why, looked into once for all readers."""

    def __init__(self, ledger: Ledger, *, waiting: Mapping[str, Pod]) -> None:
        """`waiting` are the unbound pods that ask for memory, by UID."""
        self._ledger = ledger
        self._waiting = waiting
        self._found = Waiting(count=0, pods=[])
        self._next_look = 0.0
        self._looking = asyncio.Lock()

    async def look(self) -> Waiting:
        """As it is now, or was a moment ago."""
        async with self._looking:
            if time.monotonic() >= self._next_look:
                begun = time.perf_counter()
                self._found = await self._survey()
                took = time.perf_counter() - begun
                self._next_look = time.monotonic() + max(_LOOK / 2, took / _SHARE_OF_TIME)
        return self._found

    async def _survey(self) -> Waiting:
        waiting = tuple(self._waiting.values())
        survey = WaitingSurvey(waiting, names=self._ledger.names)
        async for name in in_slices(self._ledger.known_nodes() if waiting else ()):
            view = self._ledger.view(name)
            if view.known and view.is_shared:
                survey.ask(view)
        return Waiting(count=len(waiting), pods=survey.answers()[:MOST_WAITING])
