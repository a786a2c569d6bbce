"""What has changed since a reader was last told.

The ledger makes a new view of a node when something changed and keeps the old one otherwise, so comparing
identities is enough. Nothing is queued for anybody: a reader who is slow is told less often, of what is
true by then.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass

from pydantic import BaseModel

from extender.nodetexts import NodeTexts
from extender.slices import in_slices
from gpushare.inspection import WaitingPod, WaitingSurvey
from gpushare.ledger import Ledger
from gpushare.objects import Pod
from gpushare.views import NodeView

AT_ONCE = 100_000
"""Bytes told in one event: the first rows show while the rest is on its way, and what 32 readers have not
taken yet stays small."""

MOST_WAITING = 200
"""Waiting pods that are told of one by one, the oldest."""

REST = 0.001
"""Seconds after each slice of work for a reader: verbs come first."""

_LOOK = 1.0
_SHARE_OF_TIME = 0.05
"""Of the event loop for what waits, at most: with many requests over many nodes, looks become rarer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """Nodes as they are now (the JSON of an `InspectedNode` each), and the names of those that are gone or
    share no cards any more."""

    nodes: list[bytes]
    gone: list[str]


class Waiting(BaseModel):
    """The pods that have no node yet."""

    count: int
    pods: list[WaitingPod]


class Picture:
    """What one reader has been told of the nodes."""

    def __init__(self, ledger: Ledger, *, texts: NodeTexts) -> None:
        """`texts` are shared by all readers."""
        self._ledger = ledger
        self._texts = texts
        self._told: dict[str, NodeView] = {}

    async def changes(self) -> AsyncGenerator[Change]:
        """Everything that is not as it was told; it counts as told from then on."""
        names = self._ledger.known_nodes()
        gone = sorted(self._told.keys() - set(names))
        for name in gone:
            del self._told[name]
        rest = iter(names)
        while True:
            async with self._texts.turn:
                change = await self._next(rest, gone=gone)
            if not change.nodes and not change.gone:
                return
            yield change
            gone = []

    async def _next(self, names: Iterator[str], *, gone: list[str]) -> Change:
        """What has changed on the next of these nodes: about as much as is told at once."""
        nodes: list[bytes] = []
        size = 0
        async with contextlib.aclosing(in_slices(names, rest=REST)) as sliced:
            async for name in sliced:
                view = self._ledger.view(name)
                if self._told.get(name) is view:
                    continue
                if view.known and view.is_shared:
                    self._told[name] = view
                    nodes.append(text := self._texts.of(view))
                    size += len(text)
                elif self._told.pop(name, None):
                    gone.append(name)
                if size >= AT_ONCE:
                    break
        return Change(nodes=nodes, gone=gone)


class WaitingBoard:
    """What waits and why, looked into and written down once for all readers."""

    def __init__(self, ledger: Ledger, *, waiting: Mapping[str, Pod]) -> None:
        """`waiting` are the unbound pods that ask for memory, by UID."""
        self._ledger = ledger
        self._waiting = waiting
        self._found = b""
        self._next_look = 0.0
        self._looking = asyncio.Lock()

    async def look(self) -> bytes:
        """As it is now, or was a moment ago: `Waiting` as JSON."""
        async with self._looking:
            if time.monotonic() >= self._next_look:
                begun = time.perf_counter()
                self._found = (await self._survey()).model_dump_json(by_alias=True).encode()
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
