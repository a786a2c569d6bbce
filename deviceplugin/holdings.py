"""What the live pods of this node hold of its cards, by their spec and their annotations."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from deviceplugin.pods import NodePod
from gpushare.bookings import Booking, claim_of
from gpushare.cards import Card
from gpushare.names import Names


def bookings_of(pods: Iterable[NodePod], *, names: Names) -> tuple[Booking, ...]:
    """The readable bookings of live pods; one that cannot be read is refused when kubelet asks for it."""
    # Every name derives from the memory resource's.
    claims = (pod.once(claim_of, names, key=names.memory) for pod in pods)
    return tuple(claim for claim in claims if isinstance(claim, Booking))


def units_on(card: Card, *, booking: Booking) -> int:
    """Units that one booking holds of a card, at its pod's peak."""
    shares = zip(booking.allocation.cards, booking.demand.cards, strict=True)
    return sum(share.memory for ref, share in shares if ref.names_card(card))


def units_beside(cards: Collection[Card], *, booking: Booking) -> int:
    """Units that one booking holds of other cards than these, at its pod's peak."""
    shares = zip(booking.allocation.cards, booking.demand.cards, strict=True)
    return sum(share.memory for ref, share in shares if not any(ref.names_card(card) for card in cards))
