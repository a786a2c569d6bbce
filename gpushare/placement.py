"""Which cards a pod gets on a node, and which node suits it best: pure choices over free amounts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from gpushare.demand import Demand, Share
from gpushare.errors import PolicyError, quoted
from gpushare.names import Names


class Policy(StrEnum):
    """How to choose between cards that fit."""

    BINPACK = "binpack"
    """The card with the least memory left: keeps large cards whole."""
    SPREAD = "spread"
    """The card with the most memory left: keeps neighbours few."""


P = TypeVar("P", Policy, None)


def policy_of(annotations: Mapping[str, str], *, names: Names, default: P) -> Policy | P:
    """Return the policy a pod asks for, or the cluster's; raises `PolicyError` for an unknown one."""
    wanted = annotations.get(names.policy)
    if wanted is None:
        return default
    try:
        return Policy(wanted)
    except ValueError as error:
        known = " or ".join(Policy)
        raise PolicyError(f"annotation {names.policy}: {quoted(wanted)} is not {known}") from error


@dataclass(frozen=True, kw_only=True, slots=True)
class CardRoom:
    """A card a pod may be put on, and what is left of it."""

    index: int
    free: Share


def in_order(rooms: Iterable[CardRoom], *, policy: Policy) -> tuple[CardRoom, ...]:
    """Return the cards in the policy's order of preference, equal ones by index."""
    sign = 1 if policy is Policy.BINPACK else -1
    return tuple(sorted(rooms, key=lambda room: (sign * room.free.memory, room.index)))


def choose_cards(demand: Demand, *, preferred: Sequence[CardRoom]) -> tuple[CardRoom, ...] | None:
    """Return one card per position of the demand, all different, or `None` if the demand does not fit.

    `preferred` are the cards `in_order`: each position takes the first that fits. Positions are served
    from the first, which needs the most in every dimension (a container sees the first s cards). So every
    card that fits a position also fits all later ones, and no choice made early can leave a later
    position without a card.
    """
    chosen: list[CardRoom] = []
    for share in demand.cards:
        room = next((room for room in preferred if room not in chosen and share.fits(room.free)), None)
        if room is None:
            return None
        chosen.append(room)
    return tuple(chosen)


Preference = tuple[int, int, str]
"""A sort key by which the best node for a demand comes first; the node's name is its last part."""


def node_preference(
    demand: Demand, *, preferred: Sequence[CardRoom], policy: Policy, name: str
) -> Preference | None:
    """Return a sort key by which the best node for the demand comes first, `None` where it does not fit.

    See `preference_of`.
    """
    chosen = choose_cards(demand, preferred=preferred)
    if chosen is None:
        return None
    return preference_of(chosen, preferred=preferred, policy=policy, name=name)


def preference_of(
    chosen: Sequence[CardRoom], *, preferred: Sequence[CardRoom], policy: Policy, name: str
) -> Preference:
    """Return the sort key of a node whose cards `chosen`, of all `preferred`, a pod would get.

    First what stays free on the cards that the pod would get, then what stays free on the whole node,
    then the name: a fixed order, since kube-scheduler breaks ties at random.
    """
    sign = 1 if policy is Policy.BINPACK else -1
    on_cards = sum([room.free.memory for room in chosen])
    on_node = sum([room.free.memory for room in preferred])
    return sign * on_cards, sign * on_node, name


def rank_scores(ranked: Sequence[str], *, highest: int = 10) -> dict[str, int]:
    """Give nodes, best first, whole scores: `highest` to exactly one of them, the others below by rank."""
    others = max(1, len(ranked) - 1)
    return {
        name: highest if rank == 0 else highest - 1 - (rank - 1) * highest // others
        for rank, name in enumerate(ranked)
    }
