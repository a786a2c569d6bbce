"""The books: which pod holds how much of which card, over all nodes.

The ledger is fed what the API server says (nodes and pods, one by one, or whole lists) and what was
promised since (reservations of binds in flight). It is keyed by pod UID, never by name, and equals a
recomputation from the same pods at every moment. It does no I/O and knows no time: one event loop owns it.

A bound pod is charged what its spec asks for on the cards its annotations name, until it is terminal or
gone. A bound pod whose allocation cannot be read closes its node for new pods: nobody can say which card
it uses. What an unbound pod claims about itself is ignored.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace

from gpushare.allocation import Allocation, CardRef
from gpushare.bookings import Booking, Claim, PodRef, Standing, Unreadable, claim_of
from gpushare.cards import Card, NodeCards, cards_of
from gpushare.demand import Demand, Share
from gpushare.errors import CardsError, NoRoomError
from gpushare.index import NodeIndex, NodeMemo, recent
from gpushare.names import Names
from gpushare.nominations import Nominated, choose_beside
from gpushare.objects import Node, Pod
from gpushare.placement import Policy, Preference, node_preference
from gpushare.refusals import Reason, Refusal
from gpushare.views import CardView, Holding, NodeView

_MOST_INDEXES = 16  # each has a number per node, and users choose how many slots they ask for
_MOST_PREFERENCES = 8  # each has a key per node, and users choose how much they ask for


@dataclass(kw_only=True, slots=True)
class _NodeRecord:
    known: bool = False
    """Whether the API server has shown this node (pods can be seen before their node)."""
    cards: NodeCards | None = None
    problem: Refusal | None = None
    address: str = ""
    claims: dict[str, Claim] = field(default_factory=dict)


class Ledger:
    """All bookings of a cluster. Not thread-safe: one event loop owns it."""

    def __init__(self, *, names: Names, unit: str, reserve: int = 0) -> None:
        """`unit` is what the cluster counts (`MiB`); `reserve` units of every card are never given out."""
        self.names = names
        self.unit = unit
        self.reserve = Share(memory=reserve)
        self._nodes: dict[str, _NodeRecord] = {}
        self._node_of: dict[str, str] = {}
        self._views: dict[str, NodeView] = {}  # computed when asked for, dropped on every change
        self._indexes: dict[tuple[str, int], NodeIndex] = {}
        self._preferences: dict[tuple[Policy, tuple[Share, ...]], NodeMemo[Preference | None]] = {}
        self._sequence = 0
        self._noted: set[str] | None = None
        self._largest: int | None = None  # computed when asked for, dropped when a node's cards change

    # What the API server says -------------------------------------------------------------------

    def set_node(self, node: Node) -> None:
        """Take over a node's cards as they are now."""
        cards, problem = self._judge_node(node)
        record = self._nodes.setdefault(node.name, _NodeRecord())
        said = True, cards, problem, node.internal_ip
        if (record.known, record.cards, record.problem, record.address) != said:
            record.known, record.cards, record.problem, record.address = said
            self._largest = None
            self._touch(node.name)

    def remove_node(self, name: str) -> None:
        """Forget a node; the bookings of pods that still name it stay until they go themselves."""
        record = self._nodes.get(name)
        if record is None:
            return
        record.known, record.cards, record.problem, record.address = False, None, None, ""
        self._largest = None
        self._touch(name)
        self._drop_if_empty(name)

    def retain_nodes(self, names: Set[str]) -> None:
        """After a whole list has been set one by one: nodes that it did not name are gone."""
        for name in [name for name in self._nodes if name not in names]:
            self.remove_node(name)

    def set_pod(self, pod: Pod) -> None:
        """Take over what a pod holds now, by the API server's view of it."""
        uid = pod.metadata.uid
        if not pod.node_name and not pod.is_terminal and uid in self._node_of:
            return  # a pod never loses its node: this view is older than the bind
        claim = claim_of(pod, self.names)
        if claim is None:
            self.remove_pod(uid)
        else:
            self._put(claim)

    def remove_pod(self, uid: str) -> None:
        """Release whatever a pod holds: it is gone."""
        if self._noted is not None:
            self._noted.add(uid)
        node = self._node_of.pop(uid, None)
        if node is None:
            return
        del self._nodes[node].claims[uid]
        self._touch(node)
        self._drop_if_empty(node)

    def read_ahead(self, pod: Pod) -> None:
        """Take over a bound pod as somebody has just read it, though the watch may show it later."""
        claim = claim_of(pod, self.names)
        if claim is not None:
            self._sequence += 1
            self._put(replace(claim, sequence=self._sequence))
        else:
            self.remove_pod(pod.metadata.uid)

    def retain_pods(self, uids: Set[str], *, since: int) -> list[PodRef]:
        """After a whole, consistent list has been set one by one: pods that it did not name are gone.

        `since` is the `mark` taken before the list was asked for. What came to be known later may well be
        missing from the list, and stays. Of that, what is not a bind in flight is returned: should such a
        pod have gone before the list was taken, no watch will ever say so, and it has to be asked for.
        """
        doubtful = []
        for uid in [uid for uid in self._node_of if uid not in uids]:
            claim = self.claim(uid)
            if claim is None or claim.sequence <= since:
                self.remove_pod(uid)
            elif isinstance(claim, Unreadable) or claim.standing is not Standing.RESERVED:
                doubtful.append(claim.pod)
        return doubtful

    # What was promised since --------------------------------------------------------------------

    def mark(self) -> int:
        """A moment on the ledger's own counter. Take it before asking for a list; see `retain_pods`."""
        return self._sequence

    def reserve_cards(
        self,
        pod: PodRef,
        *,
        demand: Demand,
        node: str,
        policy: Policy,
        ahead: Sequence[Nominated] = (),
    ) -> Booking:
        """Choose cards of `node` for a pod and hold them until `confirm`, `release` or the pod's end.

        Cards that the node is being cleared of for the pods `ahead` are left to these: `choose_beside`.
        Raises `NoRoomError`, naming what was asked and what every card has left. A pod that already has
        a booking must be released or asked for with `booking` first.
        """
        if pod.uid in self._node_of:
            raise ValueError(f"pod {pod} ({pod.uid}) already holds cards on {self._node_of[pod.uid]}")
        view = self.view(node)
        refusal = view.refusal(demand)
        chosen = None if refusal else choose_beside(view, demand=demand, policy=policy, ahead=ahead)
        if refusal or chosen is None:
            raise NoRoomError(
                node=node,
                asked=tuple(share.memory for share in demand.cards),
                free=tuple((card.card.index, card.free.memory) for card in view.cards),
                reason=str(refusal or Reason.NO_ROOM),
            )
        by_index = {view_card.card.index: view_card.card for view_card in view.cards}
        cards = tuple(CardRef(room.index, by_index[room.index].uuid) for room in chosen)
        return self._promise(pod, demand=demand, allocation=Allocation(node=node, cards=cards, vouched=True))

    def confirm(self, uid: str) -> None:
        """The API server took the bind. Nothing happens if the pod has been seen, or has gone, since."""
        claim = self.claim(uid)
        if isinstance(claim, Booking) and claim.standing is Standing.RESERVED:
            self._put(replace(claim, standing=Standing.BOUND))

    def release(self, uid: str) -> None:
        """Give up a reservation. What has been confirmed or seen since stays booked."""
        claim = self.claim(uid)
        if isinstance(claim, Booking) and claim.standing is Standing.RESERVED:
            self.remove_pod(uid)

    # Reading ------------------------------------------------------------------------------------

    def claim(self, uid: str) -> Claim | None:
        """What a pod holds, readable or not."""
        node = self._node_of.get(uid)
        return None if node is None else self._nodes[node].claims.get(uid)

    def booking(self, uid: str) -> Booking | None:
        """What a pod holds, if it holds anything readable."""
        claim = self.claim(uid)
        return claim if isinstance(claim, Booking) else None

    def uids(self) -> list[str]:
        """The UIDs of all pods that hold something."""
        return list(self._node_of)

    @contextlib.contextmanager
    def noting(self) -> Iterator[Set[str]]:
        """While the context is open, collect the UIDs of the pods that anything is said about.

        One context at a time.
        """
        noted = self._noted = set[str]()
        try:
            yield noted
        finally:
            self._noted = None

    def bookings(self) -> Iterator[Booking]:
        """Every booking of the cluster."""
        for record in self._nodes.values():
            yield from (claim for claim in record.claims.values() if isinstance(claim, Booking))

    def view(self, name: str) -> NodeView:
        """A node as it stands; unknown nodes have a view that refuses everything."""
        view = self._views.get(name)
        if view is None:
            record = self._nodes.get(name)
            if record is None:
                return NodeView.unknown(name)
            view = self._views[name] = self._compute_view(name, record)
        return view

    def with_room(self, share: Share) -> set[str]:
        """Names of the nodes where one healthy card has this much left: a demand of one card fits there."""
        return self._index(("room", share.slots), lambda view: view.room(share.slots)).at_least(share.memory)

    def with_card(self, share: Share) -> set[str]:
        """Names of the nodes that take pods and where one healthy card would hold this much if empty."""
        return self._index(("card", share.slots), lambda view: view.largest(share.slots)).at_least(
            share.memory
        )

    def preferences(self, names: Iterable[str], *, demand: Demand, policy: Policy) -> list[Preference]:
        """Of these nodes those where the demand fits, each as a key by which the best comes first."""

        def ask(name: str) -> Preference | None:
            return node_preference(demand, preferred=self.view(name).rooms[policy], policy=policy, name=name)

        memo = recent(
            self._preferences,
            (policy, demand.cards),
            make=lambda: NodeMemo(ask, nodes=self._nodes),
            most=_MOST_PREFERENCES,
        )
        return [preference for preference in memo.of(names) if preference is not None]

    def largest_card(self) -> int:
        """Units that the cluster's largest card has for pods; 0 where no card is known."""
        if self._largest is None:
            cards = (record.cards for record in self._nodes.values())
            sizes = (card.memory for node in cards if node and node.unit == self.unit for card in node.cards)
            self._largest = max(0, max(sizes, default=0) - self.reserve.memory)
        return self._largest

    def known_nodes(self) -> list[str]:
        """Names of the nodes the API server has shown, sorted."""
        return sorted(name for name, record in self._nodes.items() if record.known)

    # Inside -------------------------------------------------------------------------------------

    def _judge_node(self, node: Node) -> tuple[NodeCards | None, Refusal | None]:
        try:
            cards = cards_of(node, names=self.names, unit=self.unit)
        except CardsError as error:
            return None, Refusal(reason=Reason.UNREADABLE_CARDS, unresolvable=True, detail=str(error))
        if cards is None or not cards.cards:
            return cards, Refusal(reason=Reason.NOT_SHARED, unresolvable=True)
        if cards.unit != self.unit:
            return cards, Refusal(reason=Reason.UNIT_MISMATCH, unresolvable=True)
        return cards, None

    def _touch(self, node: str) -> None:
        """Whatever was computed of this node is old."""
        self._views.pop(node, None)
        for index in self._indexes.values():
            index.touch(node)
        for memo in self._preferences.values():
            memo.touch(node)

    def _index(self, key: tuple[str, int], measure: Callable[[NodeView], int]) -> NodeIndex:
        return recent(
            self._indexes,
            key,
            make=lambda: NodeIndex(lambda name: measure(self.view(name)), nodes=self._nodes),
            most=_MOST_INDEXES,
        )

    def _promise(self, pod: PodRef, *, demand: Demand, allocation: Allocation) -> Booking:
        self._sequence += 1
        booking = Booking(
            pod=pod,
            node=allocation.node,
            demand=demand,
            allocation=allocation,
            standing=Standing.RESERVED,
            sequence=self._sequence,
        )
        self._put(booking)
        return booking

    def _put(self, claim: Claim) -> None:
        uid = claim.pod.uid
        if self._noted is not None:
            self._noted.add(uid)
        previous = self._node_of.get(uid)
        if previous is not None and previous != claim.node:
            self.remove_pod(uid)
        record = self._nodes.setdefault(claim.node, _NodeRecord())
        if record.claims.get(uid) != claim:
            record.claims[uid] = claim
            self._touch(claim.node)
        self._node_of[uid] = claim.node

    def _drop_if_empty(self, name: str) -> None:
        record = self._nodes[name]
        if not record.known and not record.claims:
            del self._nodes[name]

    def _compute_view(self, name: str, record: _NodeRecord) -> NodeView:
        cards = record.cards.cards if record.cards else ()
        holdings: dict[int, list[Holding]] = {card.index: [] for card in cards}
        missing: list[Holding] = []
        unreadable: list[Unreadable] = []
        closed_by: list[tuple[str, str]] = []
        for claim in sorted(record.claims.values(), key=_by_pod):
            if isinstance(claim, Unreadable):
                unreadable.append(claim)
                closed_by.append((str(claim.pod), claim.problem))
                continue
            pairs = zip(claim.allocation.cards, claim.demand.cards, strict=True)
            for position, (ref, share) in enumerate(pairs):
                card = _find(ref, cards)
                on_card = missing if card is None else holdings[card.index]
                on_card.append(Holding(booking=claim, share=share, position=position))
                if card is None and record.cards and not claim.allocation.vouched:
                    problem = f"has a card allocation for card {ref.index}, which the node lacks"
                    closed_by.append((str(claim.pod), problem))
        slots = record.cards.slots if record.cards else 0
        return NodeView.of(
            name=name,
            known=record.known,
            unit=record.cards.unit if record.cards else self.unit,
            cards=tuple(
                CardView.of(
                    card,
                    size=Share(memory=card.memory, slots=slots),
                    reserve=self.reserve,
                    holdings=tuple(holdings[card.index]),
                )
                for card in sorted(cards, key=_by_index)
            ),
            missing=tuple(missing),
            problem=record.problem or _closing(closed_by),
            address=record.address,
            unreadable=tuple(unreadable),
        )


def _find(ref: CardRef, cards: tuple[Card, ...]) -> Card | None:
    return next((card for card in cards if ref.names_card(card)), None)


def _by_index(card: Card) -> int:
    return card.index


def _by_pod(claim: Claim) -> tuple[str, str, str]:
    return claim.pod.namespace, claim.pod.name, claim.pod.uid


def _closing(closed_by: list[tuple[str, str]]) -> Refusal | None:
    if not closed_by:
        return None
    pod, problem = closed_by[0]
    return Refusal(reason=Reason.CLOSED, detail=f"{pod} {problem}")
