"""The same answer as the extender's, computed from lists of the API server: with its own ledger code.

What only the extender knows is not in it: binds in flight, and the reserve it keeps of every card.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from gpushare.cards import UNITS, decode_cards
from gpushare.demand import asks_for_memory
from gpushare.errors import CardsError
from gpushare.inspection import Inspection, inspect
from gpushare.ledger import Ledger
from gpushare.names import Names
from gpushare.objects import Node, Pod
from inspector.errors import NodeNotFoundError
from inspector.merging import merged
from kubeapi.client import KubeApi
from kubeapi.listing import Lister

_LIVE = "status.phase!=Succeeded,status.phase!=Failed"
_PAGE = 1000
_SECONDS = 30.0
"""For each page."""


@dataclass(frozen=True, kw_only=True)
class Computed:
    """An answer, and what is doubtful about it."""

    inspection: Inspection
    units: tuple[str, ...]
    """The units that nodes publish: more than one is a fault of the cluster's."""


async def compute(api: KubeApi, *, names: Names, only: Sequence[str]) -> Computed:
    """List nodes and pods and describe them; `only` are nodes by name, all where there are none.

    Raises `ApiError`, and `NodeNotFoundError`.
    """
    nodes = await _nodes(api)  # all of them, since the cluster's unit is what most of them publish
    known = {node.name for node in nodes}
    for name in only:
        if name not in known:
            raise NodeNotFoundError(name)
    units = published_units(nodes, names=names)
    ledger = Ledger(names=names, unit=units[0] if units else "")
    for node in nodes:
        ledger.set_node(node)
    waiting: list[Pod] = []
    selectors = [f"{_LIVE},spec.nodeName={name}" for name in (*only, "")] if only else [_LIVE]
    for selector in selectors:
        async for pod in _pods(api, selector):
            if pod.node_name:
                ledger.set_pod(pod)
            elif asks_for_memory(pod.spec, names):
                waiting.append(pod)
    found = [inspect(ledger, waiting=waiting, only=name) for name in only or (None,)]
    return Computed(inspection=merged([each for each in found if each is not None]), units=units)


def published_units(nodes: Sequence[Node], *, names: Names) -> tuple[str, ...]:
    """What nodes say that they count, the commonest first. Nodes of the classic device plugin say nothing."""
    counts: Counter[str] = Counter()
    for node in nodes:
        text = node.annotations.get(names.cards)
        if text is not None:
            try:
                counts[decode_cards(text).unit] += 1
            except CardsError:
                continue  # the node's own answer says so
    return tuple(sorted(counts, key=lambda unit: (-counts[unit], list(UNITS).index(unit))))


async def _nodes(api: KubeApi) -> list[Node]:
    lister = Lister(api, "/api/v1/nodes", kind=Node, page=_PAGE)
    return [node async for page in lister.pages(timeout=_SECONDS) for node in page.items or ()]


async def _pods(api: KubeApi, selector: str) -> AsyncIterator[Pod]:
    lister = Lister(api, "/api/v1/pods", kind=Pod, selectors={"fieldSelector": selector}, page=_PAGE)
    async for page in lister.pages(timeout=_SECONDS):
        for pod in page.items or ():
            yield pod
