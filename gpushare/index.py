"""What is known of every node, computed again only for the nodes that changed.

filter and prioritize ask 5,000 nodes the same question; looking each up costs a twentieth of asking its view.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Generic, TypeVar

K = TypeVar("K")
T = TypeVar("T")

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


class NodeMemo(Generic[T]):
    """What `ask` says of nodes, remembered until they change."""

    def __init__(self, ask: Callable[[str], T], *, nodes: Container[str]) -> None:
        """Answers of `nodes` alone are remembered: anybody may ask for other names."""
        self._ask = ask
        self._nodes = nodes
        self._answers: dict[str, T] = {}

    def touch(self, node: str) -> None:
        """The node has changed, or gone."""
        self._answers.pop(node, None)

    def of(self, nodes: Iterable[str]) -> list[T]:
        """The answers of these nodes, in their order."""
        known = self._answers
        return [known[node] if node in known else self._learn(node) for node in nodes]

    def _learn(self, node: str) -> T:
        answer = self._ask(node)
        if node in self._nodes:
            self._answers[node] = answer
        return answer


def recent(kept: dict[K, T], key: K, *, make: Callable[[], T], most: int) -> T:
    """What is kept under the key, made if need be; beyond `most`, the one asked for longest ago goes."""
    found = kept.pop(key, None)
    if found is None:
        found = make()
        while len(kept) >= most:
            del kept[next(iter(kept))]
    kept[key] = found  # in the order of use
    return found
