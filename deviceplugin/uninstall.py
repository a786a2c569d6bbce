"""Takes off nodes what the device plugin put on them: the annotation, and the capacities that it writes.

The annotation marks a node as ours, and goes last: a run that breaks off is carried on by the next one. What
kubelet counts (slots, or the memory in units mode) it keeps by itself, down to 0 five minutes after the
plugin has gone (1.36). Pods keep their annotations.

A plugin that is still running would put everything back: so the nodes are looked at again until nothing
has come back for a while.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

import msgspec

from deviceplugin.errors import UninstallError
from deviceplugin.node import LONGEST_PAUSE, NODES
from gpushare.names import Names
from gpushare.objects import UNDECODABLE, Node
from kubeapi.client import MERGE_PATCH, KubeApi
from kubeapi.errors import ApiError, ApiRefused

log = logging.getLogger(__name__)

_PAGE = 500
_AT_ONCE = 16
_NAMED = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """Seconds."""

    quiet: float = LONGEST_PAUSE + 2.0
    """Without anything of ours on a node until the work counts as done: a plugin would have answered."""
    patience: float = 120.0
    """Until what keeps coming back, or cannot be taken off, is an error."""


class _Nodes(msgspec.Struct, frozen=True):
    items: tuple[Node, ...] | None = None
    metadata: dict[str, object] | None = None


_list_decoder = msgspec.json.Decoder(_Nodes)
_node_decoder = msgspec.json.Decoder(Node)


class Uninstall:
    """One run, over one node or all of them."""

    def __init__(
        self, api: KubeApi, *, names: Names, node: str | None = None, pace: Pace | None = None
    ) -> None:
        """`node` is the only one to look at; without it every node that carries our annotation."""
        self._api = api
        self._names = names
        self._node = node
        self._pace = pace or Pace()
        self._touched: set[str] = set()

    async def run(self) -> int:
        """Take everything off, and return how many nodes had something; again is harmless.

        Raises `UninstallError` naming the nodes that keep something and why, and `ApiRefused` where we lack
        the rights (`deviceplugin.rights`).
        """
        clock = asyncio.get_running_loop().time
        end = clock() + self._pace.patience
        quiet_since = clock()
        while True:
            problems: dict[str, str] = {}
            try:
                left = [node for node in await self._look() if self._is_ours(node)]
            except (ApiError, *UNDECODABLE) as error:
                problems, left = {"the nodes": _retriable(error)}, []
            else:
                problems = await self._clean(left)
            now = clock()
            if left or problems:
                quiet_since = now
                if now > end:
                    raise UninstallError(_explain(left, problems=problems))
            elif now - quiet_since >= self._pace.quiet or not self._touched:
                return len(self._touched)
            await asyncio.sleep(self._pace.quiet / 4)

    def _is_ours(self, node: Node) -> bool:
        """Whether something of ours is on it; a capacity alone may be another device plugin's."""
        was_ours = node.name in self._touched and self._names.count in node.capacity
        return self._names.cards in node.annotations or was_ours

    async def _look(self) -> list[Node]:
        if self._node is not None:
            answer = await self._api.request("GET", f"{NODES}/{self._node}")
            if answer.status == 404 and self._node not in self._touched:
                raise UninstallError(f"node {self._node} is not known to the API server; check --node-name")
            return [] if answer.status == 404 else [_node_decoder.decode(answer.checked().body)]
        nodes: list[Node] = []
        query = {"limit": str(_PAGE)}
        while True:
            answer = await self._api.request("GET", NODES, query=query)
            page = _list_decoder.decode(answer.checked().body)
            nodes += page.items or ()
            more = (page.metadata or {}).get("continue")
            if not more:
                return nodes
            query["continue"] = str(more)

    async def _clean(self, nodes: list[Node]) -> dict[str, str]:
        """Take everything off these nodes; returns what went wrong, by node."""
        places = asyncio.Semaphore(_AT_ONCE)
        problems: dict[str, str] = {}

        async def one(node: Node) -> None:
            async with places:
                try:
                    await self._clean_one(node)
                except ApiError as error:
                    problems[node.name] = _retriable(error)

        await asyncio.gather(*(one(node) for node in nodes))
        return problems

    async def _clean_one(self, node: Node) -> None:
        path = f"{NODES}/{node.name}"
        self._touched.add(node.name)
        nothing = {self._names.memory: None, self._names.count: None}
        patches = (
            (f"{path}/status", {"status": {"capacity": nothing, "allocatable": nothing}}),
            (path, {"metadata": {"annotations": {self._names.cards: None}}}),
        )
        for where, patch in patches:
            answer = await self._api.request("PATCH", where, body=patch, content_type=MERGE_PATCH)
            if answer.status == 404:
                return  # the node is gone, and with it all that was on it
            answer.checked()
        log.info("cleaned node=%s", node.name)


def _retriable(error: Exception) -> str:
    """The error's sentence; raises it where trying again is of no use."""
    if isinstance(error, ApiRefused) and error.status in (401, 403):
        raise error
    return str(error)


def _explain(left: list[Node], *, problems: dict[str, str]) -> str:
    if problems:
        some = [f"{name}: {problem}" for name, problem in sorted(problems.items())[:_NAMED]]
        more = len(problems) - len(some)
        return f"not taken off: {'; '.join(some)}" + (f"; and {more} more" if more else "")
    names = ", ".join(sorted(node.name for node in left)[:_NAMED])
    return (
        f"{len(left)} nodes get everything back ({names}): the device plugin is still running there; delete "
        "its DaemonSet and run this again"
    )
