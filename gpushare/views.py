"""A node as it stands: its cards, what is booked and what is left, and what it says to a demand.

Views are immutable; the ledger makes a new one when something changed. Everything that decides or
reports (filter, prioritize, bind, inspect) reads these.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpushare.bookings import Booking
from gpushare.cards import Card
from gpushare.demand import NOTHING, Demand, Share
from gpushare.placement import CardRoom, Policy, choose_cards
from gpushare.refusals import Reason, Refusal


@dataclass(frozen=True, kw_only=True, slots=True)
class Holding:
    """What one booking holds of one card."""

    booking: Booking
    share: Share


@dataclass(frozen=True, kw_only=True, slots=True)
class CardView:
    """One card: its size, what is booked on it, and what new pods may still get."""

    card: Card
    size: Share
    """All of the card, the extender's reserve included."""
    usable: Share
    """The size less the reserve: what pods may hold together."""
    booked: Share
    free: Share
    """Never below zero, whatever is booked; nothing on an unhealthy card."""
    holdings: tuple[Holding, ...]

    @classmethod
    def of(cls, card: Card, *, size: Share, reserve: Share, holdings: tuple[Holding, ...]) -> CardView:
        usable = (size - reserve).clamped()
        booked = sum((holding.share for holding in holdings), NOTHING)
        free = (usable - booked).clamped() if card.healthy else NOTHING
        return cls(card=card, size=size, usable=usable, booked=booked, free=free, holdings=holdings)

    @property
    def over_commit(self) -> int:
        """Units booked beyond the card's size: a fault to show, never to hide."""
        return max(0, self.booked.memory - self.size.memory)


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeView:
    """One node. Make it with `NodeView.of`, which precomputes what the filter reads most."""

    name: str
    known: bool
    unit: str
    cards: tuple[CardView, ...]
    missing: tuple[Holding, ...]
    """What is held of cards that the node no longer lists."""
    problem: Refusal | None
    """What shuts the node for every new pod."""
    rooms: tuple[CardRoom, ...]
    """The healthy cards and what is left of each."""
    most_free: Share
    """What is left of the card with the most memory left: decides most demands at once."""
    largest: Share
    """The largest healthy card, as if it were empty."""

    @classmethod
    def of(
        cls,
        *,
        name: str,
        known: bool,
        unit: str,
        cards: tuple[CardView, ...],
        missing: tuple[Holding, ...] = (),
        problem: Refusal | None = None,
    ) -> NodeView:
        if not known:
            problem = Refusal(reason=Reason.UNKNOWN_NODE)
        healthy = [view for view in cards if view.card.healthy]
        return cls(
            name=name,
            known=known,
            unit=unit,
            cards=cards,
            missing=missing,
            problem=problem,
            rooms=tuple(CardRoom(index=view.card.index, free=view.free) for view in healthy),
            most_free=max((view.free for view in healthy), key=_memory, default=NOTHING),
            largest=max((view.usable for view in healthy), key=_memory, default=NOTHING),
        )

    @classmethod
    def unknown(cls, name: str) -> NodeView:
        """The view of a node that nobody has shown yet."""
        return cls.of(name=name, known=False, unit="", cards=())

    @property
    def is_shared(self) -> bool:
        """Whether the node shares cards, or should: pods hold some, or what it publishes is unreadable."""
        not_shared = self.problem is not None and self.problem.reason is Reason.NOT_SHARED
        return bool(self.cards or self.missing) or not not_shared

    def refusal(self, demand: Demand) -> Refusal | None:
        """Why the node cannot take the demand now; `None` if it can. A demand of no card always fits."""
        if not demand.cards:
            return None
        if self.problem is not None:
            return self.problem
        if len(demand.cards) == 1:
            share = demand.cards[0]
            if share.memory <= self.most_free.memory:
                if share.slots <= self.most_free.slots:
                    return None
            elif share.memory <= self.largest.memory:
                return _NO_ROOM
        if choose_cards(demand, rooms=self.rooms, policy=Policy.BINPACK) is not None:
            return None
        return self._explain(demand)

    def _explain(self, demand: Demand) -> Refusal:
        single = len(demand.cards) == 1
        if not self._would_hold(demand, healthy_only=False):
            reason = Reason.TOO_LARGE if single else Reason.MORE_CARDS_THAN_NODE
            return Refusal(reason=reason, unresolvable=True)
        if not self._would_hold(demand, healthy_only=True):
            return Refusal(reason=Reason.UNHEALTHY, unresolvable=True)
        if self._fits_but_for_slots(demand):
            return Refusal(reason=Reason.NO_SLOT)
        return Refusal(reason=Reason.NO_ROOM if single else Reason.TOO_FEW_CARDS)

    def _would_hold(self, demand: Demand, *, healthy_only: bool) -> bool:
        empty = [
            CardRoom(index=view.card.index, free=view.usable)
            for view in self.cards
            if view.card.healthy or not healthy_only
        ]
        return choose_cards(demand, rooms=empty, policy=Policy.BINPACK) is not None

    def _fits_but_for_slots(self, demand: Demand) -> bool:
        by_memory = Demand(
            cards=tuple(Share(memory=share.memory) for share in demand.cards), containers=demand.containers
        )
        return choose_cards(by_memory, rooms=self.rooms, policy=Policy.BINPACK) is not None


_NO_ROOM = Refusal(reason=Reason.NO_ROOM)


def _memory(share: Share) -> int:
    return share.memory
