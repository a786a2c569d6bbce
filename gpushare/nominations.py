"""Cards that are being cleared for a waiting pod are left to it.

kube-scheduler evicts pods for a more important one, writes the node's name into that pod's status
(`nominatedNodeName`) and tries it again when the victims have ended, seconds later. Meanwhile its own fit
filters count the nominated pod on its node for every pod of the same or a lower priority
(`RunFilterPluginsWithNominatedPods`, 1.36); an extender is not told. So it is done here, card by card.
Nothing is booked for a nominated pod: it is only asked whether the others leave it a place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from gpushare.bookings import PodRef
from gpushare.demand import NOTHING, Demand, Share, demand_of
from gpushare.errors import GpuShareError
from gpushare.names import Names
from gpushare.objects import Pod
from gpushare.placement import CardRoom, Policy, choose_cards, in_order, policy_of
from gpushare.views import CardView, NodeView


@dataclass(frozen=True, kw_only=True, slots=True)
class Nominated:
    """A pod that waits for a node to be cleared for it."""

    pod: PodRef
    demand: Demand
    policy: Policy


def choose_beside(
    view: NodeView, *, demand: Demand, policy: Policy, ahead: Sequence[Nominated] = ()
) -> tuple[CardRoom, ...] | None:
    """Return the cards that a pod gets, as `choose_cards`, but none that the pods `ahead` of it need.

    Each of these that has a place on the node keeps one, by what is free now, and by what is free once the
    pods that go for it have ended. One that has no place, not even then, is in nobody's way.
    """
    preferred = view.rooms[policy]
    chosen = choose_cards(demand, preferred=preferred)
    if chosen is None or not ahead:
        return chosen
    before = {ended: places(view, ahead=ahead, ended=ended).keys() for ended in (False, True)}

    def harms_nobody(taken: Mapping[int, Share]) -> bool:
        return all(
            places(view, ahead=ahead, ended=ended, taken=taken).keys() >= placed
            for ended, placed in before.items()
        )

    alike = {card.card.index: _likeness(card) for card in view.cards}
    found: list[CardRoom] = []
    taken: dict[int, Share] = {}
    for share in demand.cards:
        kinds: dict[object, CardRoom] = {}  # of cards that are alike, the first one speaks for all
        for each in preferred:
            if each.index not in taken and share.fits(each.free):
                kinds.setdefault(alike[each.index], each)
        room = next((each for each in kinds.values() if harms_nobody({**taken, each.index: share})), None)
        if room is None:
            return None
        found.append(room)
        taken[room.index] = share
    return tuple(found)


def places(
    view: NodeView, *, ahead: Sequence[Nominated], ended: bool, taken: Mapping[int, Share] | None = None
) -> dict[str, dict[int, Share]]:
    """Return what nominated pods would get, by UID and card, one after the other, each by its own policy.

    With `ended` the pods that are ending, and that the nominated one outranks, have gone. `taken` is what
    somebody else would hold of the cards. A pod without a place is left out.
    """
    cards = [] if view.problem else [card for card in view.cards if card.card.healthy]
    held = dict(taken or {})
    found: dict[str, dict[int, Share]] = {}
    for each in ahead:
        rooms = [
            CardRoom(
                index=card.card.index,
                free=card.usable
                - card.booked
                + (_ending(card, below=each.pod.priority) if ended else NOTHING)
                - held.get(card.card.index, NOTHING),
            )
            for card in cards
        ]
        chosen = choose_cards(each.demand, preferred=in_order(rooms, policy=each.policy))
        if chosen is not None:
            shares = {room.index: share for room, share in zip(chosen, each.demand.cards, strict=True)}
            found[each.pod.uid] = shares
            for index, share in shares.items():
                held[index] = held.get(index, NOTHING) + share
    return found


def _likeness(card: CardView) -> object:
    """What is free on a card and who is ending there. MIG instances are many and mostly alike."""
    return card.free, tuple(
        (holding.booking.pod.priority, holding.share) for holding in card.holdings if holding.booking.ending
    )


def _ending(card: CardView, *, below: int) -> Share:
    """What the ending pods below a priority still hold of a card."""
    leaving = [
        holding.share
        for holding in card.holdings
        if holding.booking.ending and holding.booking.pod.priority < below
    ]
    return sum(leaving, NOTHING)


class Nominations:
    """Which waiting pods are nominated to which node, as the API server has it."""

    def __init__(self, *, names: Names, is_placed: Callable[[str], bool]) -> None:
        """`is_placed` says of a UID whether the pod has its cards, which happens before it is seen bound."""
        self._names = names
        self._is_placed = is_placed
        self._nodes: dict[str, dict[str, tuple[PodRef, Demand, Policy | None]]] = {}
        self._node_of: dict[str, str] = {}

    @property
    def nodes(self) -> Set[str]:
        """The nodes that somebody is nominated to."""
        return self._nodes.keys()

    def put(self, pod: Pod) -> None:
        """Take over an unbound pod; nothing is left to one that is being deleted or fits no node at all."""
        self.drop(pod.metadata.uid)
        if not pod.nominated_node or pod.is_ending:
            return
        try:
            demand = demand_of(pod.spec, self._names)
            policy = policy_of(pod.annotations, names=self._names, default=None)
        except GpuShareError:
            return
        if demand is not None and demand.cards:
            self._node_of[pod.metadata.uid] = pod.nominated_node
            on_node = self._nodes.setdefault(pod.nominated_node, {})
            on_node[pod.metadata.uid] = PodRef.of(pod), demand, policy

    def drop(self, uid: str) -> None:
        """The pod is bound, or ended, or gone."""
        node = self._node_of.pop(uid, None)
        if node is not None:
            del self._nodes[node][uid]
            if not self._nodes[node]:
                del self._nodes[node]

    def ahead(
        self, pod: PodRef, *, among: Iterable[str], default: Policy
    ) -> dict[str, tuple[Nominated, ...]]:
        """Return the nominated pods that come before a pod, the most important first, by node.

        Nodes where there are none are left out; `among` are those asked about, `default` is the policy of
        pods that ask for none. Before any pod come those of at least its priority (kube-scheduler's rule,
        1.36). Of two that are nominated to one node only the less important waits for the other, by
        priority and age: else both could wait for ever.
        """
        if not self._nodes:
            return {}
        nodes = self._nodes.keys() & among
        found = {node: tuple(self._before(pod, node=node, default=default)) for node in nodes}
        return {node: before for node, before in found.items() if before}

    def _before(self, pod: PodRef, *, node: str, default: Policy) -> Iterator[Nominated]:
        here = self._node_of.get(pod.uid) == node
        for other, demand, policy in sorted(self._nodes[node].values(), key=lambda each: each[0].importance):
            first = other.importance < pod.importance if here else other.priority >= pod.priority
            if first and not self._is_placed(other.uid):
                yield Nominated(pod=other, demand=demand, policy=policy or default)
