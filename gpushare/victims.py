"""The smallest set of pods whose going leaves room for a demand on one node.

A search over sets of pods, exact: the fewest pods, and of the sets with as few, the least important pods.
It knows nothing of priorities: the caller hands in the pods that may go, the most important first.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate
from operator import attrgetter

from gpushare.bookings import PodRef
from gpushare.demand import NOTHING, Demand, Share

PATIENCE = 1000
"""How often the search may ask how many pods at least have to go. Ordinary nodes take some dozens; where
pods over several cards, or amounts in two dimensions, interlock so badly that this is not enough, the pods
are spared one by one from the most important on, which leaves a set without a needless pod, if perhaps not
the smallest."""

_amounts = attrgetter(*[dimension.name for dimension in fields(Share)])
"""A share as a tuple of numbers: the search adds and compares thousands."""

_Amounts = tuple[int, ...]
_NODE = -1  # beside the cards' indices
_NEVER = 1 << 30  # more pods than any node has


@dataclass(frozen=True, kw_only=True, slots=True)
class Leaving:
    """A pod that may go, and what is free then that was not before."""

    pod: PodRef
    cards: Mapping[int, Share]
    """By card index, healthy cards only."""
    node: Share
    """In kube-scheduler's sum over the node."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Room:
    """What is left of a node; below zero where more is booked than is there."""

    cards: Mapping[int, Share]
    """By card index, healthy cards only."""
    node: Share
    """In kube-scheduler's sum over the node: a pod has to fit there, too."""

    def without(self, pods: Iterable[Leaving]) -> Room:
        """What is left once these pods are gone."""
        cards = dict(self.cards)
        node = self.node
        for leaving in pods:
            node = node + leaving.node
            for index, share in leaving.cards.items():
                cards[index] = cards[index] + share
        return Room(cards=cards, node=node)

    def back(self, leaving: Leaving) -> Room:
        """What is left if this pod, of those that went, stays after all."""
        cards = {index: self.cards[index] - share for index, share in leaving.cards.items()}
        return Room(cards={**self.cards, **cards}, node=self.node - leaving.node)

    def takes(self, demand: Demand) -> bool:
        """Whether the demand fits the cards and kube-scheduler's sum."""
        return self.has_sum(demand) and self.has_cards(demand)

    def has_cards(self, demand: Demand) -> bool:
        """Whether there are different cards for all positions of the demand.

        Positions ask for less and less, so a card that takes one takes all later ones: it is enough that
        as many cards take position j as there are positions up to it.
        """
        return all(
            sum(share.fits(free) for free in self.cards.values()) > position
            for position, share in enumerate(demand.cards)
        )

    def has_sum(self, demand: Demand) -> bool:
        """Whether the demand fits kube-scheduler's sum over the node."""
        return total(demand).fits(self.node)


def total(demand: Demand) -> Share:
    """What the demand adds to the sum over a node."""
    return sum(demand.cards, NOTHING)


def smallest_eviction(
    candidates: Sequence[Leaving], *, room: Room, demand: Demand, patience: int = PATIENCE
) -> tuple[Leaving, ...] | None:
    """Return the smallest set of `candidates` whose going makes the demand fit, `None` if none does.

    `candidates` come the most important first. Of the sets with the fewest pods it is the one whose most
    important pod matters least, then whose second does, and so on: what sparing pods from the most
    important on comes to.
    """
    search = _Search(candidates, room=room, demand=demand, patience=patience)
    try:
        for count in range(search.fewest(0), len(candidates) + 1):
            found = search.pick(0, count)
            if found is not None:
                return tuple(candidates[position] for position in found)
    except _OutOfPatienceError:
        return _spare(candidates, room=room, demand=demand)
    return None


def _spare(candidates: Sequence[Leaving], *, room: Room, demand: Demand) -> tuple[Leaving, ...] | None:
    """All of them, less those that need not go, judged from the most important on."""
    left = room.without(candidates)
    if not left.takes(demand):
        return None
    going = []
    for leaving in candidates:
        spared = left.back(leaving)
        if spared.takes(demand):
            left = spared
        else:
            going.append(leaving)
    return tuple(going)


class _OutOfPatienceError(Exception):
    pass


class _Search:
    """Depth first, by position among the candidates, the most important at position 0.

    What makes it quick is `fewest`: where every candidate sits on one card and one dimension is short, it
    is the exact answer, and the search never turns back.
    """

    def __init__(self, candidates: Sequence[Leaving], *, room: Room, demand: Demand, patience: int) -> None:
        self._patience = patience
        self._free = {place: list(_amounts(share)) for place, share in room.cards.items()}
        self._cards = tuple(self._free)
        self._free[_NODE] = list(_amounts(room.node))
        self._total: _Amounts = _amounts(total(demand))
        last = {share: position for position, share in enumerate(demand.cards)}
        self._levels: list[tuple[_Amounts, int]] = [
            (_amounts(share), position + 1) for share, position in last.items()
        ]
        """Every different share of the demand, and how many cards have to take it."""
        self._gains: list[list[tuple[int, _Amounts]]] = [
            [(place, _amounts(share)) for place, share in (*leaving.cards.items(), (_NODE, leaving.node))]
            for leaving in candidates
        ]
        self._on: dict[int, list[int]] = {place: [] for place in self._free}
        self._gains_on: dict[int, list[_Amounts]] = {place: [] for place in self._free}
        for position, gains in enumerate(self._gains):
            for place, amounts in gains:
                self._on[place].append(position)
                self._gains_on[place].append(amounts)
        self._most: dict[tuple[int, int], list[list[int]]] = {}
        self._reach: dict[int, list[int]] = {}

    def pick(self, start: int, count: int) -> list[int] | None:
        """At most `count` of the candidates from `start` on that are enough, the least important ones."""
        fewest = self.fewest(start)
        if not fewest:
            return []
        if fewest > count:
            return None
        positions = range(start, len(self._gains))
        # Leave out the important ones for as long as the others may do: the first pick is at or before
        # where they no longer may.
        last = start + bisect_right(positions, count, key=self.fewest) - 1
        for position in range(last, start - 1, -1):
            self._go(position)
            rest = self.pick(position + 1, count - 1)
            self._stay(position)
            if rest is not None:
                return [position, *rest]
        return None

    def fewest(self, start: int) -> int:
        """A number of candidates from `start` on below which no set is enough; 0 exactly if none is needed.

        Per place and dimension the largest gains first; and over the cards together, where a pod counts
        once for every card it sits on. It only grows with `start`.
        """
        self._patience -= 1
        if self._patience < 0:
            raise _OutOfPatienceError
        most = self._fewest_at(_NODE, start, self._total)
        for wanted, cards in self._levels:
            counts = sorted([self._fewest_at(place, start, wanted) for place in self._cards])
            if len(counts) < cards or counts[cards - 1] >= _NEVER:
                return _NEVER
            together = sum(counts[:cards])
            most = max(most, counts[cards - 1], _first_reaching(together, self._reaches(start)))
        return most

    def _fewest_at(self, place: int, start: int, wanted: _Amounts) -> int:
        most = 0
        for dimension, free in enumerate(self._free[place]):
            if wanted[dimension] > free:
                sums = self._largest(place, start)[dimension]
                most = max(most, _first_reaching(wanted[dimension] - free, sums))
        return most

    def _largest(self, place: int, start: int) -> list[list[int]]:
        """Per dimension: what the 1, 2, … largest gains at a place come to, of candidates from `start` on."""
        begin = bisect_left(self._on[place], start)
        sums = self._most.get((place, begin))
        if sums is None:
            gains = self._gains_on[place][begin:]
            sums = [
                list(accumulate(sorted([amounts[dimension] for amounts in gains], reverse=True)))
                for dimension in range(len(self._total))
            ]
            self._most[place, begin] = sums
        return sums

    def _reaches(self, start: int) -> list[int]:
        """How many cards the 1, 2, … candidates from `start` on that sit on most cards sit on."""
        sums = self._reach.get(start)
        if sums is None:
            reach = sorted([len(gains) - 1 for gains in self._gains[start:]], reverse=True)
            sums = self._reach[start] = list(accumulate(reach))
        return sums

    def _go(self, position: int) -> None:
        for place, amounts in self._gains[position]:
            self._free[place] = [
                free + amount for free, amount in zip(self._free[place], amounts, strict=True)
            ]

    def _stay(self, position: int) -> None:
        for place, amounts in self._gains[position]:
            self._free[place] = [
                free - amount for free, amount in zip(self._free[place], amounts, strict=True)
            ]


def _first_reaching(wanted: int, sums: list[int]) -> int:
    """How many of the sums' parts it takes to reach `wanted`."""
    if wanted <= 0:
        return 0
    at = bisect_left(sums, wanted)
    return at + 1 if at < len(sums) else _NEVER
