"""One number per node, and which nodes reach a threshold, computed again only for the nodes that changed.

A filter asks 5,000 nodes the same question; looking each up in one set costs a twentieth of asking its view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

_MOST_THRESHOLDS = 16  # each has a set of nodes, and users choose how much memory they ask for


class NodeIndex:
    """What `measure` says of every node, by name."""

    def __init__(self, measure: Callable[[str], int], *, nodes: Iterable[str]) -> None:
        """`measure` must answer 0 for nodes that are gone."""
        self._measure = measure
        self._values: dict[str, int] = {}
        self._reaching: dict[int, set[str]] = {}
        self._stale = set(nodes)

    def touch(self, node: str) -> None:
        """The node has changed, or gone."""
        self._stale.add(node)

    def at_least(self, threshold: int) -> set[str]:
        """The nodes of which `measure` says `threshold` (1 or more) or more, as they are now.

        The set is the index's own: it follows later changes and is not to be changed.
        """
        for node in self._stale:
            self._refresh(node)
        self._stale.clear()
        nodes = self._reaching.pop(threshold, None)
        if nodes is None:
            nodes = {node for node, value in self._values.items() if value >= threshold}
            while len(self._reaching) >= _MOST_THRESHOLDS:
                del self._reaching[next(iter(self._reaching))]
        self._reaching[threshold] = nodes  # in the order of use: the one asked longest ago goes first
        return nodes

    def _refresh(self, node: str) -> None:
        value = self._measure(node)
        if value:
            self._values[node] = value
        else:
            self._values.pop(node, None)
        for threshold, nodes in self._reaching.items():
            if value >= threshold:
                nodes.add(node)
            else:
                nodes.discard(node)
