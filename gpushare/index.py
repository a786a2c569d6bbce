"""One number per node, computed again only for the nodes that changed.

A filter asks 5,000 nodes the same question; looking the answer up in one dictionary costs a tenth of asking
each node's view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping


class NodeIndex:
    """What `measure` says of every node, by name. Nodes of which it says 0 may be absent."""

    def __init__(self, measure: Callable[[str], int], *, nodes: Iterable[str]) -> None:
        """`measure` must answer 0 for nodes that are gone."""
        self._measure = measure
        self._values: dict[str, int] = {}
        self._stale = set(nodes)

    def touch(self, node: str) -> None:
        """The node has changed, or gone."""
        self._stale.add(node)

    def values(self) -> Mapping[str, int]:
        """The numbers as they are now."""
        for node in self._stale:
            value = self._measure(node)
            if value:
                self._values[node] = value
            else:
                self._values.pop(node, None)
        self._stale.clear()
        return self._values
