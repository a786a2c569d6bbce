"""A node as it stands: its cards, what is booked and what is left, and what it says to a demand.

Views are immutable; the ledger makes a new one when something changed. Everything that decides or
reports (filter, prioritize, bind, inspect) reads these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpushare.bookings import Booking, Unreadable
from gpushare.cards import Card
from gpushare.demand import NOTHING, Demand, Share
from gpushare.placement import CardRoom, Policy, choose_cards, in_order
from gpushare.refusals import Reason, Refusal


@dataclass(frozen=True, kw_only=True, slots=True)
class Holding:
    """What one booking holds of one card."""

    booking: Booking
    share: Share
    position: int = 0
    """Which of the booking's cards this is."""


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
    rooms: Mapping[Policy, tuple[CardRoom, ...]]
    """What is left of the healthy cards, in each policy's order of preference."""
    largest_memory: int
    """Units of the largest healthy card, as if it were empty; 0 where the node takes nobody."""
    whole_memory: int
    """Units of the largest card, healthy or not, as if it were empty."""
    largest_slots: int
    """Slots of a healthy card, as if it were empty: all cards of a node have as many."""
    address: str = ""
    """The node's InternalIP."""
    unreadable: tuple[Unreadable, ...] = ()
    """Pods whose cards nobody can tell."""

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
        address: str = "",
        unreadable: tuple[Unreadable, ...] = (),
    ) -> NodeView:
        """Compute the view. A node with a problem has nothing to give, whatever its cards have left."""
        if not known:
            problem = Refusal(reason=Reason.UNKNOWN_NODE)
        healthy = [] if problem else [view for view in cards if view.card.healthy]
        left = [CardRoom(index=view.card.index, free=view.free) for view in healthy]
        return cls(
            name=name,
            known=known,
            unit=unit,
            cards=cards,
            missing=missing,
            problem=problem,
            rooms={policy: in_order(left, policy=policy) for policy in Policy},
            largest_memory=max((view.usable.memory for view in healthy), default=0),
            whole_memory=max((view.usable.memory for view in cards), default=0),
            largest_slots=max((view.usable.slots for view in healthy), default=0),
            address=address,
            unreadable=unreadable,
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

    def offered(self, card: CardView) -> int:
        """Units of one of its cards that a new pod may still get: 0 where the node takes nobody, the card is
        unhealthy, or no slot is left. What everybody who shows "free" shows."""
        takes = self.problem is None and card.free.slots > 0
        return card.free.memory if takes else 0

    def room(self, slots: int) -> int:
        """Units left of the roomiest healthy card that has this many slots left.

        A demand of one card fits the node exactly if it asks for no more than this.
        """
        spread = self.rooms[Policy.SPREAD]
        return next((room.free.memory for room in spread if room.free.slots >= slots), 0)

    def largest(self, slots: int) -> int:
        """Units of the largest healthy card, as if it were empty, if it has this many slots; else 0."""
        return self.largest_memory if slots <= self.largest_slots else 0

    def refusal(self, demand: Demand) -> Refusal | None:
        """Why the node cannot take the demand now; `None` if it can. A demand of no card always fits."""
        if not demand.cards:
            return None
        if self.problem is not None:
            return self.problem
        if demand.cards[0].memory > self.whole_memory and len(demand.cards) == 1:
            return TOO_LARGE  # the commonest refusals first: a busy cluster gives thousands a second
        if choose_cards(demand, preferred=self.rooms[Policy.SPREAD]) is not None:
            return None
        if len(demand.cards) == 1 and self._lacks_only_memory(demand.cards[0]):
            return NO_ROOM
        return self._explain(demand)

    def _lacks_only_memory(self, share: Share) -> bool:
        return self.room(0) < share.memory <= self.largest(share.slots)

    def _explain(self, demand: Demand) -> Refusal:
        single = len(demand.cards) == 1
        memory_only = replace(demand, cards=tuple(Share(memory=share.memory) for share in demand.cards))
        whole = [CardRoom(index=view.card.index, free=view.usable) for view in self.cards]
        if choose_cards(memory_only, preferred=whole) is None:
            return TOO_LARGE if single else TOO_MANY
        if choose_cards(demand, preferred=whole) is None:
            return Refusal(reason=Reason.TOO_FEW_SLOTS, unresolvable=True)
        healthy = [room for room, view in zip(whole, self.cards, strict=True) if view.card.healthy]
        if choose_cards(demand, preferred=healthy) is None:
            return Refusal(reason=Reason.UNHEALTHY, unresolvable=True)
        if choose_cards(memory_only, preferred=self.rooms[Policy.SPREAD]) is not None:
            return Refusal(reason=Reason.NO_SLOT)
        return NO_ROOM if single else Refusal(reason=Reason.TOO_FEW_CARDS)


NO_ROOM = Refusal(reason=Reason.NO_ROOM)
TOO_LARGE = Refusal(reason=Reason.TOO_LARGE, unresolvable=True)
TOO_MANY = Refusal(reason=Reason.MORE_CARDS_THAN_NODE, unresolvable=True)
