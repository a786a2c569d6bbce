"""Which pods have to go from a node so that a more important one finds a card there.

kube-scheduler chooses victims by the node's sums and knows no cards: what it proposes may leave half a card
free here and half a card there. Its proposal is kept where it frees the cards; else the smallest set that
does takes its place. It has also looked at what we cannot see (CPU, ports, affinity, disruption budgets),
and its proposal has no needless pod: with any one of them back, something would not fit. So a victim that
the sums of memory and slots could do without was asked for something else, and stays a victim; so does
every pod that holds no card. Only victims that those sums account for are exchanged for others, and the
sums have to fit afterwards, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gpushare.bookings import Booking, PodRef, Standing
from gpushare.demand import NOTHING, Demand, Share
from gpushare.nominations import Nominated, places
from gpushare.victims import PATIENCE, Leaving, Room, smallest_eviction, total
from gpushare.views import NodeView


@dataclass(frozen=True, kw_only=True, slots=True)
class Preemptor:
    """The pod that looks for room."""

    demand: Demand
    priority: int

    def outranks(self, pod: PodRef) -> bool:
        """Whether the pod may be evicted for this one: equals never are (kube-scheduler's rule, 1.36)."""
        return pod.priority < self.priority


def choose_victims(
    view: NodeView,
    *,
    preemptor: Preemptor,
    proposed: Sequence[str],
    patience: int = PATIENCE,
    ahead: Sequence[Nominated] = (),
) -> tuple[str, ...] | None:
    """Return the UIDs of the pods to evict from a node, or `None` where evicting would not help.

    `proposed` are the UIDs of kube-scheduler's own victims, the most important first, and so is the answer:
    kube-scheduler takes the first of a node for the most important one when it compares nodes
    (`pickOneNodeForPreemption`, 1.36). It is never empty: kube-scheduler drops the answer for all nodes
    if one has no victim. A proposal with a pod that the preemptor does not outrank is refused. `patience`
    bounds the search, see `smallest_eviction`. What the node is being cleared of for the pods `ahead` is
    theirs.
    """
    proposed = tuple(dict.fromkeys(proposed))
    demand = preemptor.demand
    if not demand.cards:
        return proposed or None
    if view.problem is not None:
        return None
    leaving = {held.pod.uid: held for held in _leavings(view, proposed=frozenset(proposed))}
    known = [leaving[uid] for uid in proposed if uid in leaving]
    if not all(preemptor.outranks(held.pod) for held in known):
        return None
    room = _as_kube_scheduler_sums(_beside(ahead, view=view), without=known, demand=demand)
    after = room.without(known)
    if after.has_cards(demand):
        return proposed or None
    kept = [held for held in known if total(demand).fits(after.node - held.node)]
    others = [held for held in leaving.values() if held not in kept and preemptor.outranks(held.pod)]
    others.sort(key=lambda held: held.pod.importance)
    found = smallest_eviction(others, room=room.without(kept), demand=demand, patience=patience)
    if found is None:
        return None
    staying = {held.pod.uid for held in known} - {held.pod.uid for held in (*kept, *found)}
    merged = _merge(proposed, known=leaving, added=[held.pod for held in found])
    return tuple(uid for uid in merged if uid not in staying) or None


def is_fragmented(view: NodeView, *, preemptor: Preemptor) -> bool:
    """Whether fragmentation alone keeps the pod off this node, and evicting pods it outranks would help.

    kube-scheduler finds the node's sums in order, so it looks for no victims here and never asks: the pod
    waits until somebody else goes, however important it is. Costs as much as looking at every pod on the
    node: ask for pods that wait, not in every filter.
    """
    demand = preemptor.demand
    if not demand.cards or view.problem is not None:
        return False
    room = room_of(view)
    if room.has_cards(demand) or not room.has_sum(demand):
        return False
    others = [held for held in _leavings(view) if preemptor.outranks(held.pod)]
    return bool(others) and room.without(others).has_cards(demand)


def room_of(view: NodeView) -> Room:
    """What is left of a node's healthy cards, and in kube-scheduler's sum over the node.

    The sum is of what the device plugin announces: memory of healthy cards and what is still booked on the
    others, slots of healthy cards (kubelet's allocatable devices); all pods on the node are taken off it.
    The extender's reserve is not, for kube-scheduler does not know it.
    """
    node = NOTHING
    for card in view.cards:
        if card.card.healthy:
            node = node + card.size - card.booked
        else:
            node = node - _in_sum(card.booked, healthy=False)
    for holding in view.missing:
        node = node - holding.share
    cards = {card.card.index: card.usable - card.booked for card in view.cards if card.card.healthy}
    return Room(cards=cards, node=node)


def _beside(ahead: Sequence[Nominated], *, view: NodeView) -> Room:
    """What these pods, too, leave of a node; kube-scheduler counts them in its sums (1.36)."""
    room = room_of(view)
    found = places(view, ahead=ahead, ended=True)
    for each in ahead:
        if shares := found.get(each.pod.uid):
            room = room.back(Leaving(pod=each.pod, cards=shares, node=total(each.demand)))
    return room


def _leavings(view: NodeView, *, proposed: frozenset[str] = frozenset()) -> Iterator[Leaving]:
    """What each pod of the node would leave behind.

    A reservation may be of a pod that kube-scheduler has given up on and no longer counts on the node; the
    answer for all nodes would be lost with one pod that it does not find. So only what was bound may go,
    or what kube-scheduler named itself.
    """
    cards: dict[str, dict[int, Share]] = {}
    sums: dict[str, Share] = {}
    bookings: dict[str, Booking] = {}
    for card in view.cards:
        healthy = card.card.healthy
        for holding in card.holdings:
            uid = holding.booking.pod.uid
            bookings[uid] = holding.booking
            sums[uid] = sums.get(uid, NOTHING) + _in_sum(holding.share, healthy=healthy)
            if healthy:
                cards.setdefault(uid, {})[card.card.index] = holding.share
    for holding in view.missing:
        uid = holding.booking.pod.uid
        bookings[uid] = holding.booking
        sums[uid] = sums.get(uid, NOTHING) + holding.share
    for uid, booking in bookings.items():
        if booking.standing is not Standing.RESERVED or uid in proposed:
            yield Leaving(pod=booking.pod, cards=cards.get(uid, {}), node=sums[uid])


def _in_sum(share: Share, *, healthy: bool) -> Share:
    """What a share on a card takes of the node's sum: the memory capacity grows with what is booked on an
    unhealthy card, its slots are just gone."""
    return share if healthy else replace(share, memory=0)


def _as_kube_scheduler_sums(room: Room, *, without: Sequence[Leaving], demand: Demand) -> Room:
    """The same room, with a sum that the demand fits once kube-scheduler's victims are gone.

    It has just made that sum, and knows pods and capacities that we may not have seen yet.
    """
    short = total(demand) - room.without(without).node
    return replace(room, node=room.node + short.clamped())


def _merge(proposed: Sequence[str], *, known: dict[str, Leaving], added: Sequence[PodRef]) -> list[str]:
    """kube-scheduler's victims in its order, and ours before the first that is known to matter less."""
    merged = list(proposed)
    for pod in added:
        if pod.uid in merged:
            continue
        less = (
            at for at, uid in enumerate(merged) if uid in known and known[uid].pod.importance > pod.importance
        )
        merged.insert(next(less, len(merged)), pod.uid)
    return merged
