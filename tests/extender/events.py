"""Random histories of a `World`: the rules are single events, `World.check` is what must hold.

Between two rules the loop makes as many turns as were drawn, so that everything can happen at every point
at which an extender waits.
"""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gpushare.cards import Card
from sandbox.apiserver import Rule
from tests.build import card
from tests.extender.replica import Replica
from tests.extender.truth import KINDS, Pod, Published, is_live, node_of, uid_of
from tests.extender.world import World

SEEDS = st.integers(0, 99)
"""Which of the candidates a rule is about."""
SIZES = {"n1": (10, 17), "n2": (12,)}
"""All cards that a node ever has."""
TURNS = st.one_of(st.just(0), st.integers(0, 12), st.just(40))
"""A bind takes about ten turns of the loop."""
SECONDS = st.sampled_from([0.06, 0.5, 2.1, 4.0, 12.0])
KIND = st.sampled_from(sorted(KINDS))
NODES = st.sampled_from(sorted(SIZES))
MOSTLY = st.sampled_from([True, True, True, False])
FAULTS = st.builds(
    Rule,
    action=st.sampled_from(["drop", "answer", "hold", "delay"]),
    when=st.sampled_from(["before", "after"]),
    path=st.sampled_from(["/binding$", "/binding$", "/pods/[^/]+$", "/pods$", ""]),
    status=st.sampled_from([500, 503, 504]),
    count=st.sampled_from([1, 1, 2, 9]),
    seconds=st.sampled_from([0.05, 0.9, 3.4, 3.6]),
) | st.builds(
    Rule,
    action=st.just("answer"),
    status=st.just(429),
    retry_after=st.sampled_from([None, 1]),
    count=st.just(2),
)


class SingleEvents(RuleBasedStateMachine):
    """What can happen, one thing at a time. `counts` adds up over all runs what has."""

    counts: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.world.__enter__()

    def teardown(self) -> None:
        try:
            self.world.at_rest()
            self.everything_can_be_bound()
        finally:
            self.world.__exit__()
            self.counts.update(self.world.counts)

    @initialize()
    def begin(self) -> None:
        for name, sizes in SIZES.items():
            self.world.publish(name, Published(cards=cards(name, sizes=sizes)))
        for replica in self.world.replicas:
            self.world.start(replica)
        self.world.loop.advance(1)
        self.world.switch(self.world.replicas[0])

    # Users and kubelets

    @rule(kind=KIND, number=st.integers(0, 2), turns=TURNS)
    def create(self, kind: str, number: int, turns: int) -> None:
        self.world.create(kind, number=number)
        self.world.loop.turn(turns)

    @rule(kind=st.sampled_from(["small", "zero"]), node=NODES)
    def bypass(self, kind: str, node: str) -> None:
        """L10: a pod that names its node itself."""
        self.world.create(kind, number=9, on=node)

    @precondition(lambda self: self.world.pods())
    @rule(seed=SEEDS, grace=st.sampled_from([0, 0, 30]), turns=TURNS)
    def delete(self, seed: int, grace: int, turns: int) -> None:
        self.world.delete(self.pick(self.world.pods(), seed), grace=grace)
        self.world.loop.turn(turns)

    @precondition(lambda self: self.bound())
    @rule(seed=SEEDS, phase=st.sampled_from(["Running", "Succeeded", "Failed"]))
    def phase(self, seed: int, phase: str) -> None:
        self.world.finish(self.pick(self.bound(), seed), phase=phase)

    @precondition(lambda self: self.bound())
    @rule(seed=SEEDS, text=st.sampled_from(["abc", "-1", "", "1.0", "7"]))
    def spoil(self, seed: int, text: str) -> None:
        """L9."""
        self.world.spoil(self.pick(self.bound(), seed), text=text)

    @precondition(lambda self: self.world.pods())
    @rule(seed=SEEDS, node=st.one_of(NODES, st.none()), turns=TURNS)
    def nominate(self, seed: int, node: str | None, turns: int) -> None:
        """V11: kube-scheduler has a node cleared for a pod, or thinks better of it."""
        self.world.nominate(self.pick(self.world.pods(), seed), node=node)
        self.world.loop.turn(turns)

    # Nodes

    @rule(
        name=NODES,
        present=st.lists(MOSTLY, min_size=2, max_size=2),
        healthy=st.lists(MOSTLY, min_size=2, max_size=2),
        less=st.sampled_from([0, 0, 4]),
        state=st.sampled_from(["ok"] * 8 + ["unit", "garbage", "zeroed", "gone"]),
        turns=TURNS,
    )
    def change_node(
        self, name: str, present: list[bool], healthy: list[bool], less: int, state: str, turns: int
    ) -> None:
        """Cards come, go, shift, fail and are sized anew; what the node publishes breaks; it goes."""
        if state == "gone":
            if name in self.world.published:
                self.world.remove_node(name)
            return
        found = cards(name, sizes=[size - less for size in SIZES[name]])
        kept = [
            Card(index=0, uuid=each.uuid, memory=each.memory, healthy=well)
            for each, there, well in zip(found, present, healthy, strict=False)
            if there
        ]
        shifted = tuple(
            Card(index=index, uuid=each.uuid, memory=each.memory, healthy=each.healthy)
            for index, each in enumerate(kept)
        )
        self.world.publish(name, Published(cards=shifted, state=state))  # type: ignore[arg-type]
        self.world.loop.turn(turns)

    # kube-scheduler

    @precondition(lambda self: self.can_bind())
    @rule(seed=SEEDS, node=NODES, turns=TURNS)
    def bind(self, seed: int, node: str, turns: int) -> None:
        """Any pod to any node: the scheduler's own view may be as old as it likes."""
        self.world.bind(self.pick(self.world.pods(), seed), node=node)
        self.world.loop.turn(turns)

    @precondition(lambda self: self.can_bind())
    @rule(seed=SEEDS, turns=TURNS)
    def schedule(self, seed: int, turns: int) -> None:
        """As kube-scheduler does it: to the best of the nodes that fit."""
        waiting = [pod for pod in self.world.pods() if not node_of(pod)]
        if waiting:
            assert self.world.active is not None
            pod = self.pick(waiting, seed)
            nodes = self.world.ask(self.world.active, pod)
            if nodes:
                self.world.bind(pod, node=nodes[0])
                self.world.loop.turn(turns)

    @precondition(lambda self: self.world.pods())
    @rule(number=st.integers(0, 2), seed=SEEDS)
    def ask(self, number: int, seed: int) -> None:
        """A standby may be asked too; it answers from what it knows."""
        if self.world.replicas[number].is_ready:
            self.world.ask(self.world.replicas[number], self.pick(self.world.pods(), seed))

    @rule(number=st.integers(0, 2))
    def switch(self, *, number: int) -> None:
        replica = self.world.replicas[number]
        if replica.is_ready:
            self.world.switch(replica)

    # What goes wrong

    @rule(number=st.integers(0, 2), fault=FAULTS, at_active=MOSTLY)
    def fail(self, *, number: int, fault: Rule, at_active: bool) -> None:
        active = self.world.active if at_active else None
        replica = active or self.world.replicas[number]
        self.world.fault(msgspec.structs.replace(fault, client=replica.name))

    @rule()
    def heal(self) -> None:
        self.world.api.faults.clear()

    @rule(number=st.integers(0, 2))
    def freeze(self, number: int) -> None:
        """Its watches stay open and say nothing until all faults are cleared."""
        self.world.fault(Rule(action="freeze", client=self.world.replicas[number].name))

    @rule(number=st.integers(0, 2), expired=st.booleans(), turns=TURNS)
    def cut(self, *, number: int, expired: bool, turns: int) -> None:
        self.world.cut(self.world.replicas[number], expired=expired)
        self.world.loop.turn(turns)

    @rule(number=st.integers(0, 2), turns=TURNS)
    def crash(self, number: int, turns: int) -> None:
        self.world.loop.turn(turns)
        if self.world.replicas[number].is_running:
            self.world.crash(self.world.replicas[number])

    @precondition(lambda self: any(not replica.is_running for replica in self.world.replicas))
    @rule(turns=TURNS)
    def start(self, turns: int) -> None:
        for replica in self.world.replicas:
            if not replica.is_running:
                self.world.start(replica)
        self.world.loop.turn(turns)

    # Time

    @rule(pause=TURNS | SECONDS | st.just(70.0))
    def pause(self, pause: float) -> None:
        """Turns of the loop (whole numbers), or seconds."""
        if isinstance(pause, int):
            self.world.loop.turn(pause)
        else:
            self.world.loop.advance(pause)

    @rule()
    def rest(self) -> None:
        self.world.at_rest()

    # What must hold

    @invariant()
    def the_api_server_has_no_card_overfull(self) -> None:
        self.world.check()

    def everything_can_be_bound(self) -> None:
        """At rest a bind succeeds exactly where a card has room."""
        if not self.can_bind():
            return
        active = self.world.active
        assert active is not None
        for pod in [pod for pod in self.world.pods() if not node_of(pod)]:
            nodes = self.world.ask(active, pod)
            if nodes:
                assert self.world.bound(self.world.bind(pod, node=nodes[0])) == ""
                self.world.loop.advance(0.01)
            self.world.check()
        self.world.check_books(active)

    # Candidates

    def bound(self) -> list[Pod]:
        return [
            pod for pod in self.world.pods() if node_of(pod) and is_live(pod) and self.world.has_landed(pod)
        ]

    def active_is_ready(self) -> bool:
        active: Replica | None = self.world.active
        return active is not None and active.is_ready

    def can_bind(self) -> bool:
        return self.active_is_ready() and bool(self.world.pods())

    @staticmethod
    def pick(pods: list[Pod], seed: int) -> Pod:
        ordered = sorted(pods, key=uid_of)
        return ordered[seed % len(ordered)]


def cards(name: str, *, sizes: tuple[int, ...] | list[int]) -> tuple[Card, ...]:
    return tuple(card(index, memory=size, node=name) for index, size in enumerate(sizes))
