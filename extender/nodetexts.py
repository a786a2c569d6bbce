"""The JSON of each node, made once for everybody who reads it: every page, and whoever calls `inspect`.

A node of 8 cards and 30 pods takes half a millisecond. When an extender restarts, all its pages come back
within seconds, and each has to be told the whole cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gpushare.inspection import InspectedNode, inspect_node
from gpushare.views import NodeView

MOST_BYTES = 16_000_000
"""Kept at most, about 3,000 nodes. Readers go through the nodes in one order and side by side, so that also
in a larger cluster most find a text that another one has just had made."""


class NodeTexts:
    """Texts by node, each of the view that it was made of. Lives on the ledger's event loop."""

    def __init__(
        self, *, describe: Callable[[NodeView], InspectedNode] = inspect_node, most: int = MOST_BYTES
    ) -> None:
        self._describe = describe
        self._most = most
        self._kept: dict[str, tuple[NodeView, bytes]] = {}
        self.size = 0
        """Bytes kept."""
        self.turn = asyncio.Lock()
        """Taken by whoever goes through the nodes for a reader. A slice of time that each of 32 readers
        takes for itself would keep a verb waiting for 32 slices."""

    def of(self, view: NodeView) -> bytes:
        """An `InspectedNode` as JSON. The ledger keeps a node's view until something changes there."""
        kept = self._kept.get(view.name)
        if kept is not None and kept[0] is view:
            return kept[1]
        model = self._describe(view)
        text = model.__pydantic_serializer__.to_json(model, by_alias=True)
        self._drop(view.name)
        self._kept[view.name] = view, text
        self.size += len(text)
        while self.size > self._most:
            self._drop(next(iter(self._kept)))  # the oldest
        return text

    def forget(self) -> None:
        """Give the memory back: nobody reads any more."""
        self._kept.clear()
        self.size = 0

    def _drop(self, name: str) -> None:
        _, text = self._kept.pop(name, (None, b""))
        self.size -= len(text)
