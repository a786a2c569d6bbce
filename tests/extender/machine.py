"""Random histories in which things happen together that rarely do by chance: see `events` for the rest."""

from __future__ import annotations

from typing import Literal

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from sandbox.apiserver import Rule
from tests.extender.events import FAULTS, KIND, MOSTLY, NODES, SECONDS, SIZES, TURNS, SingleEvents, cards
from tests.extender.truth import Published, node_of

When = Literal["before", "after"]


class ClusterMachine(SingleEvents):
    """Scenes: several pods want the same cards while something goes wrong."""

    @precondition(lambda self: self.active_is_ready())
    @rule(
        kinds=st.lists(KIND, min_size=1, max_size=4),
        number=st.integers(0, 2),
        node=NODES,
        fault=st.none() | FAULTS,
        pauses=st.lists(TURNS | SECONDS, min_size=4, max_size=4),
        fresh=MOSTLY,
        healed=st.booleans(),
    )
    def rush(
        self,
        *,
        kinds: list[str],
        number: int,
        node: str,
        fault: Rule | None,
        pauses: list[float],
        fresh: bool,
        healed: bool,
    ) -> None:
        """Several new pods, more than the node may have room for, while a fault may strike the first ones."""
        if fresh:
            self.refresh(node)
        if fault is not None:
            self.fail(number=0, fault=fault, at_active=True)
        for kind, pause in zip(kinds, pauses, strict=False):
            pod = self.world.create(kind, number=number)
            if pod is not None and self.active_is_ready():
                self.world.bind(pod, node=node)
            self.pause(pause)
        if healed:
            self.heal()

    @precondition(lambda self: self.active_is_ready())
    @rule(
        number=st.integers(0, 2),
        node=NODES,
        kinds=st.lists(KIND, min_size=2, max_size=6),
        before=st.integers(1, 3),
        pause=TURNS | SECONDS,
        fresh=MOSTLY,
        frozen=MOSTLY,
    )
    def take_over(
        self,
        *,
        number: int,
        node: str,
        kinds: list[str],
        before: int,
        pause: float,
        fresh: bool,
        frozen: bool,
    ) -> None:
        """V7: another one goes on where the active one stopped; its watches are late by then."""
        if fresh:
            self.refresh(node)
        if frozen:
            self.freeze(number=number)
        self.bind_new(kinds[:before], number=number, node=node)
        self.pause(pause)
        self.switch(number=number)
        if self.active_is_ready():
            self.bind_new(kinds[before:], number=number, node=node)

    @precondition(lambda self: self.active_is_ready())
    @rule(
        number=st.integers(0, 2),
        node=NODES,
        kinds=st.lists(KIND, min_size=3, max_size=6),
        path=st.sampled_from(["/binding$", "/binding$", "/pods/[^/]+$", "^/api/v1/pods$"]),
        when=st.sampled_from(["before", "after"]),
        pauses=st.tuples(TURNS | SECONDS, TURNS | SECONDS),
        frozen=st.booleans(),
        gone=st.booleans(),
    )
    def lose(
        self,
        *,
        number: int,
        node: str,
        kinds: list[str],
        path: str,
        when: When,
        pauses: tuple[float, float],
        frozen: bool,
        gone: bool,
    ) -> None:
        """V8: a request without an answer, and others that want the same cards before it shows itself."""
        self.refresh(node)
        self.bind_new(kinds[:1], number=number, node=node)
        self.world.loop.advance(2.5)  # so that the node is looked at anew
        self.fail(number=number, fault=Rule(action="hold", when=when, path=path, count=1), at_active=True)
        if frozen:
            self.freeze_active()
        self.bind_new(kinds[1:2], number=number, node=node)
        self.pause(pauses[0])
        if gone:
            self.delete_bound()
        if self.active_is_ready():
            self.bind_new(kinds[2:], number=number, node=node)
        self.pause(pauses[1])
        self.heal()

    @precondition(lambda self: self.active_is_ready())
    @rule(
        number=st.integers(0, 2),
        node=NODES,
        kinds=st.lists(KIND, min_size=2, max_size=5),
        when=st.sampled_from(["before", "after"]),
        frozen=st.booleans(),
        gone=st.booleans(),
        turns=TURNS,
    )
    def relist(
        self, *, number: int, node: str, kinds: list[str], when: When, frozen: bool, gone: bool, turns: int
    ) -> None:
        """L3: a pod is bound, and goes, while a whole list is under way that may know nothing of it."""
        self.refresh(node)
        pod = self.world.create(kinds[0], number=number)
        active = self.world.active
        assert active is not None
        self.world.loop.advance(0.1)
        self.world.cut(active, expired=True)
        self.world.loop.advance(0.25)  # the watch is tried again, and answered with 410
        held = Rule(action="hold", when=when, path="^/api/v1/pods$", count=1)
        self.fail(number=0, fault=held, at_active=True)
        self.world.loop.advance(0.5)
        if pod is not None:
            self.world.bind(pod, node=node)
        self.world.loop.advance(0.5)
        if gone:
            self.delete_bound()
        if frozen:
            self.freeze_active()
        self.world.release(active)
        self.world.loop.turn(turns)
        self.bind_new(kinds[1:], number=number, node=node)

    def freeze_active(self) -> None:
        if self.world.active is not None:
            self.world.fault(Rule(action="freeze", client=self.world.active.name))

    def delete_bound(self) -> None:
        self.world.check()  # whoever lands after this has been seen
        for pod in self.bound():
            self.world.delete(pod)

    def refresh(self, node: str) -> None:
        """A good node without pods, as everybody knows: what comes next is not refused for old reasons."""
        for pod in self.world.pods():
            if node_of(pod) in ("", node):
                self.world.delete(pod)
        self.world.publish(node, Published(cards=cards(node, sizes=SIZES[node])))
        self.heal()
        self.world.loop.advance(0.3)

    def bind_new(self, kinds: list[str], *, number: int, node: str) -> None:
        for kind in kinds:
            pod = self.world.create(kind, number=number)
            if pod is not None:
                self.world.bind(pod, node=node)
