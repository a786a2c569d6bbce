"""L16: random histories of a cluster; after every step the ledger equals a recomputation made here.

The model is an API server with pods, a watch that lags behind it, and binds whose answers come late. What
the ledger should say is computed anew each time from two plain books: what it was last told of every pod,
and what was promised since. The amounts of the few kinds of pods are written down by hand.
"""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gpushare.bookings import PodRef, Standing
from gpushare.cards import Card
from gpushare.demand import Share
from gpushare.errors import NoRoomError
from gpushare.ledger import Ledger
from gpushare.objects import Pod
from gpushare.placement import Policy
from gpushare.refusals import Reason
from tests.build import NAMES, container, demand, node, pod

RESERVE = 1
SLOTS = 3
SEEDS = st.integers(0, 99)
"""Which of the candidates a rule is about."""
SIZES = {"n1": (10, 10, 17), "n2": (11, 6)}
"""All cards that a node ever has."""


@dataclass(frozen=True)
class Kind:
    """A kind of pod, and by hand what it needs of each of its cards: (memory, slots)."""

    build: Callable[..., Pod]
    needs: tuple[tuple[int, int], ...]


def several(**asked: object) -> Callable[..., Pod]:
    return lambda name, **more: pod(name, **asked, **more)  # type: ignore[arg-type]


KINDS = (
    Kind(several(memory=3), ((3, 1),)),
    Kind(several(memory=9), ((9, 1),)),
    Kind(several(memory=8, slots=2), ((4, 1), (4, 1))),
    Kind(
        several(
            init=[container("i", memory=6), container("s", memory=1, sidecar=True)],
            containers=[container("c", memory=2)],
        ),
        ((6, 2),),
    ),
    Kind(
        several(containers=[container("wide", memory=6, slots=2), container("narrow", memory=2)]),
        ((5, 2), (3, 1)),
    ),
    Kind(several(memory=0), ()),
)


@dataclass(frozen=True)
class Truth:
    """A pod as the API server has it."""

    uid: str
    kind: Kind
    node: str = ""
    cards: tuple[str, ...] | None = None
    """UUIDs; `None` for a bound pod whose allocation nobody can read."""
    phase: str = "Pending"
    deleting: bool = False
    forced: bool = False
    """Whether it got its node behind the ledger's back."""

    @property
    def is_live(self) -> bool:
        return self.phase not in ("Failed", "Succeeded")

    def shown(self) -> Pod:
        """What the watch delivers of it."""
        more = {"uid": self.uid, "on": self.node, "phase": self.phase, "deleting": self.deleting}
        if self.node and self.kind.needs:
            if self.cards is None:
                more["annotations"] = {NAMES.index: "x"}
            else:
                more["cards"] = [
                    Card(index=number, uuid=uuid, memory=1) for number, uuid in enumerate(self.cards)
                ]
        elif not self.node:
            more["annotations"] = {NAMES.index: "0", NAMES.pod_memory: "99"}  # a forged claim on every one
        return self.kind.build(self.uid, **more)


@dataclass(frozen=True)
class Promise:
    """A reservation, in the test's own terms."""

    kind: Kind
    node: str
    cards: tuple[str, ...]
    moment: int
    is_confirmed: bool = False
    has_landed: bool = False


class Cluster(RuleBasedStateMachine):
    """The rules are what can happen in a cluster; `ledger_equals_recomputation` is what must hold."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(names=NAMES, unit="MiB", reserve=RESERVE)
        self.server: dict[str, Truth] = {}
        self.watch: list[Truth | str] = []
        """Not delivered yet: a pod as it was, or the UID of one that went."""
        self.told: dict[str, Truth] = {}
        self.promises: dict[str, Promise] = {}
        self.cards: dict[str, dict[str, Card]] = {}
        """By node and UUID, as the ledger knows them."""
        self.listing: tuple[int, int, dict[str, Truth] | None] | None = None
        """Of a list under way: the ledger's mark, ours, and the snapshot if it has been taken."""
        self.moments = 0
        self.numbers = itertools.count()

    @initialize()
    def start_with_every_card(self) -> None:
        for name, sizes in SIZES.items():
            self.publish(name, present=[True] * len(sizes), healthy=[True] * len(sizes), turned=False)

    # The API server -----------------------------------------------------------------------------

    def publish(self, name: str, *, present: list[bool], healthy: list[bool], turned: bool) -> None:
        sizes = list(enumerate(SIZES[name]))
        cards = [
            Card(index=position, uuid=f"GPU-{name}-{number}", memory=size, healthy=healthy[number])
            for position, (number, size) in enumerate(
                pair for pair in (reversed(sizes) if turned else sizes) if present[pair[0]]
            )
        ]
        self.cards[name] = {each.uuid: each for each in cards}
        self.ledger.set_node(node(name, cards=cards, slots=SLOTS))

    def change(self, pod: Truth) -> None:
        self.server[pod.uid] = pod
        self.watch.append(pod)

    def pick(self, seed: int, *, among: Iterable[str]) -> str:
        candidates = sorted(among)
        return candidates[seed % len(candidates)]

    # Whom a rule can be about. Rules about nobody are not tried, so that every step does something.

    def live(self) -> list[str]:
        return [uid for uid, pod in self.server.items() if pod.is_live]

    def bindable(self) -> list[str]:
        return [
            uid
            for uid in self.live()
            if not self.server[uid].node and self.server[uid].kind.needs and self.claimed(uid) is None
        ]

    def on_the_way(self) -> list[str]:
        return [uid for uid, promise in self.promises.items() if not promise.has_landed]

    def readable(self) -> list[str]:
        return [uid for uid, promise in self.promises.items() if promise.has_landed and uid in self.server]

    def known(self) -> list[str]:
        return [uid for uid in self.told if uid not in self.promises]

    @rule(kind=st.sampled_from(KINDS))
    def create(self, kind: Kind) -> None:
        self.change(Truth(uid=f"uid-{next(self.numbers)}", kind=kind))

    @rule(kind=st.sampled_from(KINDS[:-1]), name=st.sampled_from(sorted(SIZES)), card=st.integers(0, 9))
    def force(self, kind: Kind, name: str, card: int) -> None:
        """A pod with a node and an allocation of its own making; or, for some cards, with none (L7, L10)."""
        numbers = [(card + step) % len(SIZES[name]) for step in range(len(kind.needs))]
        cards = tuple(f"GPU-{name}-{number}" for number in numbers) if card < 7 else None
        self.change(Truth(uid=f"uid-{next(self.numbers)}", kind=kind, node=name, cards=cards, forced=True))

    @precondition(lambda self: self.live())
    @rule(seed=SEEDS, phase=st.sampled_from(["Running", "Failed", "Succeeded"]))
    def move_on(self, seed: int, phase: str) -> None:
        self.change(replace(self.server[self.pick(seed, among=self.live())], phase=phase))

    @precondition(lambda self: self.live())
    @rule(seed=SEEDS)
    def delete_gracefully(self, seed: int) -> None:
        self.change(replace(self.server[self.pick(seed, among=self.live())], deleting=True))

    @precondition(lambda self: self.server)
    @rule(seed=SEEDS)
    def delete(self, seed: int) -> None:
        uid = self.pick(seed, among=self.server)
        del self.server[uid]
        self.watch.append(uid)

    @rule(
        name=st.sampled_from(sorted(SIZES)),
        present=st.lists(st.booleans(), min_size=3, max_size=3),
        healthy=st.lists(st.booleans(), min_size=3, max_size=3),
        turned=st.booleans(),
    )
    def change_node(self, name: str, present: list[bool], healthy: list[bool], turned: bool) -> None:  # noqa: FBT001
        self.publish(name, present=present, healthy=healthy, turned=turned)

    @rule(name=st.sampled_from(sorted(SIZES)))
    def repair_node(self, name: str) -> None:
        self.publish(name, present=[True] * 3, healthy=[True] * 3, turned=False)

    @rule(name=st.sampled_from(sorted(SIZES)), by_list=st.booleans())
    def remove_node(self, name: str, by_list: bool) -> None:  # noqa: FBT001
        self.cards.pop(name, None)
        if by_list:
            self.ledger.retain_nodes(self.cards.keys())
        else:
            self.ledger.remove_node(name)

    # Binds --------------------------------------------------------------------------------------

    @precondition(lambda self: self.bindable())
    @rule(seed=SEEDS, name=st.sampled_from(sorted(SIZES)), policy=st.sampled_from(Policy))
    def reserve(self, seed: int, name: str, policy: Policy) -> None:
        uid = self.pick(seed, among=self.bindable())
        kind = self.server[uid].kind
        asking = self.server[uid].shown()
        free = {
            uuid: (view[0], view[1])
            for uuid, view in self.expected_free(name).items()
            if not self.is_closed(name)
        }
        fits = any(
            all(
                need[0] <= free[uuid][0] and need[1] <= free[uuid][1]
                for need, uuid in zip(kind.needs, chosen, strict=True)
            )
            for chosen in itertools.permutations(free, len(kind.needs))
        )
        view = self.ledger.view(name)
        assert (view.refusal(demand(asking)) is None) == fits
        try:
            booking = self.ledger.reserve_cards(
                PodRef.of(asking), demand=demand(asking), node=name, policy=policy
            )
        except NoRoomError:
            assert not fits, f"refused although {free} has room for {kind.needs}"
            return
        uuids = tuple(ref.uuid for ref in booking.allocation.cards)
        assert fits, f"gave {uuids} although {free} has no room for {kind.needs}"
        assert all(
            need[0] <= free[uuid][0] and need[1] <= free[uuid][1]
            for need, uuid in zip(kind.needs, uuids, strict=True)
        )
        self.moments += 1
        self.promises[uid] = Promise(kind=kind, node=name, cards=uuids, moment=self.moments)

    @precondition(lambda self: self.on_the_way())
    @rule(seed=SEEDS)
    def write_lands(self, seed: int) -> None:
        uid = self.pick(seed, among=self.on_the_way())
        pod, promise = self.server.get(uid), self.promises[uid]
        if pod is None or pod.node or not pod.is_live:
            self.answer_comes(uid)
            return
        self.change(replace(pod, node=promise.node, cards=promise.cards))
        self.promises[uid] = replace(promise, has_landed=True)

    @precondition(lambda self: self.promises)
    @rule(seed=SEEDS)
    def some_answer_comes(self, seed: int) -> None:
        self.answer_comes(self.pick(seed, among=self.promises))

    def answer_comes(self, uid: str) -> None:
        if self.promises[uid].has_landed:
            self.ledger.confirm(uid)
            self.promises[uid] = replace(self.promises[uid], is_confirmed=True)
        else:
            self.ledger.release(uid)
            del self.promises[uid]

    @precondition(lambda self: self.readable())
    @rule(seed=SEEDS)
    def answer_is_lost_and_the_pod_read(self, seed: int) -> None:
        """What is read is ahead of the watch, which goes on to deliver what came before."""
        self.tell(self.server[self.pick(seed, among=self.readable())])

    @precondition(lambda self: self.known())
    @rule(seed=SEEDS)
    def answer_comes_when_all_is_known(self, seed: int) -> None:
        uid = self.pick(seed, among=self.known())
        self.ledger.confirm(uid)
        self.ledger.release(uid)

    # What the ledger is told --------------------------------------------------------------------

    def tell(self, pod: Truth) -> None:
        self.ledger.set_pod(pod.shown())
        if not pod.node and pod.is_live and self.claimed(pod.uid) is not None:
            return  # a pod never loses its node: this view is older than what is known
        self.told[pod.uid] = pod
        if pod.node or not pod.is_live:
            self.promises.pop(pod.uid, None)

    def tell_gone(self, uid: str) -> None:
        self.told.pop(uid, None)
        self.promises.pop(uid, None)

    @precondition(lambda self: self.listing is None and self.watch)
    @rule(most=st.integers(1, 5))
    def deliver(self, most: int) -> None:
        for event in self.watch[:most]:
            if isinstance(event, Truth):
                self.tell(event)
            else:
                self.ledger.remove_pod(event)
                self.tell_gone(event)
        del self.watch[:most]

    @precondition(lambda self: self.listing is None)
    @rule(at_once=st.booleans())
    def begin_list(self, at_once: bool) -> None:  # noqa: FBT001
        """A gap: the watch is lost. The snapshot is made now, or only when the list ends."""
        self.watch.clear()
        self.listing = (self.ledger.mark(), self.moments, dict(self.server) if at_once else None)

    @precondition(lambda self: self.listing is not None)
    @rule()
    def end_list(self) -> None:
        assert self.listing is not None
        mark, moment, snapshot = self.listing
        if snapshot is None:
            snapshot = dict(self.server)
            self.watch.clear()
        for listed in snapshot.values():
            self.tell(listed)
        self.ledger.retain_pods(snapshot.keys(), since=mark)
        for uid in [uid for uid in {*self.told, *self.promises} if uid not in snapshot]:
            promise = self.promises.get(uid)
            if promise is None or promise.moment <= moment:
                self.tell_gone(uid)
        self.listing = None

    # The recomputation --------------------------------------------------------------------------

    def claimed(self, uid: str) -> tuple[Kind, str, tuple[str, ...] | None] | None:
        """What a pod holds: kind, node and cards, by what was told of it or else promised to it."""
        told, promise = self.told.get(uid), self.promises.get(uid)
        if told is not None and told.node and told.is_live and told.kind.needs:
            return told.kind, told.node, told.cards
        return None if promise is None else (promise.kind, promise.node, promise.cards)

    def standing(self, uid: str) -> Standing:
        promise = self.promises.get(uid)
        if promise is None:
            return Standing.SEEN
        return Standing.BOUND if promise.is_confirmed else Standing.RESERVED

    def all_claimed(self) -> dict[str, tuple[Kind, str, tuple[str, ...] | None]]:
        found = {uid: self.claimed(uid) for uid in {*self.told, *self.promises}}
        return {uid: claim for uid, claim in found.items() if claim is not None}

    def is_closed(self, name: str) -> bool:
        return any(on == name and cards is None for _, on, cards in self.all_claimed().values())

    def held(self, name: str) -> dict[str, list[tuple[str, int, int]]]:
        """By UUID, whether or not the node has the card now: (UID, memory, slots) of all who hold it."""
        held: dict[str, list[tuple[str, int, int]]] = {}
        for uid, (kind, on, cards) in self.all_claimed().items():
            for uuid, (memory, slots) in zip(cards or (), kind.needs, strict=cards is not None):
                if on == name:
                    held.setdefault(uuid, []).append((uid, memory, slots))
        return held

    def expected_free(self, name: str) -> dict[str, tuple[int, int]]:
        held = self.held(name)
        return {
            uuid: (
                max(0, card.memory - RESERVE - sum(memory for _, memory, _ in held.get(uuid, ()))),
                max(0, SLOTS - sum(slots for _, _, slots in held.get(uuid, ()))),
            )
            for uuid, card in self.cards.get(name, {}).items()
            if card.healthy
        }

    @invariant()
    def ledger_equals_recomputation(self) -> None:
        assert self.ledger.known_nodes() == sorted(self.cards)
        readable = {uid for uid, (_, _, cards) in self.all_claimed().items() if cards is not None}
        assert {booking.pod.uid: booking.standing for booking in self.ledger.bookings()} == {
            uid: self.standing(uid) for uid in readable
        }
        for name in SIZES:
            view, held, free = self.ledger.view(name), self.held(name), self.expected_free(name)
            cards = self.cards.get(name, {})
            assert [each.card.uuid for each in view.cards] == list(cards)
            for each in view.cards:
                holders = held.get(each.card.uuid, [])
                assert sorted(
                    (holding.booking.pod.uid, holding.share.memory, holding.share.slots)
                    for holding in each.holdings
                ) == sorted(holders)
                booked = sum(memory for _, memory, _ in holders)
                assert each.booked.memory == booked
                assert each.over_commit == max(0, booked - each.card.memory)
                assert (each.free.memory, each.free.slots) == free.get(each.card.uuid, (0, 0))
            assert sorted(
                (holding.booking.pod.uid, holding.share.memory) for holding in view.missing
            ) == sorted((uid, memory) for uuid in held.keys() - cards.keys() for uid, memory, _ in held[uuid])
            if name not in self.cards:
                assert view.problem is not None
                assert view.problem.reason is Reason.UNKNOWN_NODE
            elif cards:
                assert (view.problem is not None) == self.is_closed(name)
            self.check_indexes(name)

    def check_indexes(self, name: str) -> None:
        """What filter looks up must be what the cards say."""
        free = {} if self.is_closed(name) else self.expected_free(name)
        cards = {} if self.is_closed(name) else self.cards.get(name, {})
        for wanted in range(SLOTS + 2):
            room = max((memory for memory, slots in free.values() if slots >= wanted), default=0)
            whole = max((card.memory - RESERVE for card in cards.values() if card.healthy), default=0)
            whole = whole if wanted <= SLOTS else 0
            for memory in {1, room, room + 1, whole, whole + 1} - {0}:
                share = Share(memory=memory, slots=wanted)
                assert (name in self.ledger.with_room(share)) == (room >= memory)
                assert (name in self.ledger.with_card(share)) == (whole >= memory)

    @invariant()
    def no_card_is_over_its_size_but_by_force(self) -> None:
        """On the API server, and in what was promised: not only in the ledger's own view."""
        for name, sizes in SIZES.items():
            for number, size in enumerate(sizes):
                uuid = f"GPU-{name}-{number}"
                landed = {
                    uid: (pod.kind, pod.cards)
                    for uid, pod in self.server.items()
                    if pod.node == name and pod.is_live and not pod.forced
                }
                promised = {
                    uid: (promise.kind, promise.cards)
                    for uid, promise in self.promises.items()
                    if promise.node == name and not promise.has_landed
                }
                on_card = [
                    need
                    for kind, cards in (landed | promised).values()
                    for held, need in zip(cards or (), kind.needs, strict=True)
                    if held == uuid
                ]
                assert sum(memory for memory, _ in on_card) <= size - RESERVE
                assert sum(slots for _, slots in on_card) <= SLOTS

    def teardown(self) -> None:
        """In the end every answer comes and a list is made: then the ledger shows what the server has."""
        for uid in list(self.promises):
            self.answer_comes(uid)
        self.listing = None
        self.begin_list(at_once=True)
        self.end_list()
        self.ledger_equals_recomputation()
        live = {
            uid: (pod.node, pod.cards)
            for uid, pod in self.server.items()
            if pod.node and pod.is_live and pod.kind.needs and pod.cards is not None
        }
        assert {
            booking.pod.uid: (booking.node, tuple(ref.uuid for ref in booking.allocation.cards))
            for booking in self.ledger.bookings()
        } == live


@pytest.mark.timeout(300)  # finding the shortest history that fails takes its time
def test_L16_the_ledger_equals_a_recomputation_after_every_step_of_any_history() -> None:
    run_state_machine_as_test(Cluster, settings=settings(max_examples=250, stateful_step_count=60))
