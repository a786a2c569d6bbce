"""A cluster on a virtual loop with several replicas of the extender, and what must hold in it at any moment.

`check` looks at the API server alone. What an extender books is looked at only `at_rest`, when nothing is
under way any more.

Two things are as in reality. One replica is active at a time, and the next begins `GAP` seconds after the
last one stopped. And a request that the API server has in hand when its client dies is carried out
within `LINGER` seconds, or never: nobody on this side can know of one that takes longer.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest import mock

from gpushare.bookings import Standing
from kubeapi.client import MERGE_PATCH, Response
from sandbox.apiserver import ApiServer, Rule
from tests import build
from tests.build import NAMES
from tests.extender import truth
from tests.extender.cluster import PODS, manifest
from tests.extender.replica import Replica, watch_owners
from tests.extender.truth import KINDS, Pod, Published, allocation, is_live, kind_of, node_of, uid_of
from tests.inprocess import LocalApi
from tests.virtual import VirtualLoop

GAP = 5.0
"""kube-scheduler's lease (15 s) less the time its holder tries to renew it (10 s; 1.36). One that is told
to end gives its lease up at once: a write that is still under way then can be missed by the next one."""
LINGER = 1.0
REST = 100.0
"""Seconds in which everything comes to its end: a lost write is waited for during 65 s."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A bind that kube-scheduler has asked for."""

    task: asyncio.Task[Response]
    pod: Pod
    node: str


class World:
    """Use it as a context manager."""

    def __init__(self, *, replicas: int = 3) -> None:
        self.loop = VirtualLoop()
        watch_owners(self.loop)
        self.counts: Counter[str] = Counter()
        """What has happened, for people."""
        self.api = ApiServer()
        self._user = LocalApi(self.api.app, user_agent="user")
        names = [f"replica-{number}" for number in range(1, replicas + 1)]
        self.replicas = [Replica(self.loop, self.api.app, name=name) for name in names]
        self.active: Replica | None = None
        self.published: dict[str, Published] = {}
        self._variants: dict[str, list[Published]] = {}
        """What each node published since the last rest: an extender may have seen any of it last."""
        self.foreign: set[str] = set()
        """UIDs of pods whose cards nobody can tell: bound by hand, or with a spoilt annotation."""
        self._written: dict[str, dict[str, Any]] = {}
        self._calls: list[Call] = []
        self._numbers = itertools.count(1)
        self._stack = ExitStack()
        self._errors = _Errors()
        self._left_over: list[Mapping[str, Any]] = []

    def __enter__(self) -> World:
        self._stack.enter_context(self.loop.as_clock())
        make_uid: Callable[[], uuid.UUID] = lambda: uuid.UUID(int=next(self._numbers))  # noqa: E731
        self._stack.enter_context(mock.patch("sandbox.apiserver.metadata.uuid4", make_uid))
        logging.getLogger().addHandler(self._errors)
        self._stack.callback(logging.getLogger().removeHandler, self._errors)
        self.loop.set_exception_handler(lambda _, context: self._left_over.append(context))
        return self

    def __exit__(self, *_: object) -> None:
        self.api.faults.clear()
        for replica in self.replicas:
            if replica.is_running:
                replica.crash()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.turn(5)
        self.loop.run(self.loop.shutdown_asyncgens())
        self._stack.close()
        self.loop.close()

    # What users, nodes and kubelets do -----------------------------------------------------------

    def request(
        self, method: str, path: str, body: object = None, *, kind: str = "application/json"
    ) -> dict[str, Any]:
        """A user's request; fails on a refusal."""
        answer = self.loop.run(self._user.request(method, path, body=body, content_type=kind))
        assert answer.status < 300, answer
        result: dict[str, Any] = answer.json()
        return result

    def patch(self, path: str, body: object) -> None:
        self.request("PATCH", path, body, kind=MERGE_PATCH)

    def pods(self) -> list[Pod]:
        """Every pod as it is now."""
        return [*self.api.objects("pods")]

    def create(self, kind: str, *, number: int, on: str = "") -> Pod | None:
        """Create a pod, unless its name is taken; one that names its node bypasses every scheduler."""
        name = f"{kind}-{number}"
        if any(pod["metadata"]["name"] == name for pod in self.pods()):
            return None
        forged = {NAMES.index: "0", NAMES.pod_memory: "99"}
        asked = build.pod(name, on=on, annotations={} if on else forged, **KINDS[kind].asked)
        pod = self.request("POST", PODS, manifest(asked))
        if on:
            self.foreign.add(uid_of(pod))
        self.counts["pods created"] += 1
        return pod

    def delete(self, pod: Pod, *, grace: int = 0) -> None:
        """Delete a pod; with `grace` it stays, marked, until it is deleted without."""
        self.request("DELETE", f"{PODS}/{pod['metadata']['name']}", {"gracePeriodSeconds": grace})
        self.counts["pods deleted"] += 1

    def finish(self, pod: Pod, *, phase: str) -> None:
        self.patch(f"{PODS}/{pod['metadata']['name']}/status", {"status": {"phase": phase}})
        self.counts["pods ended"] += 1

    def nominate(self, pod: Pod, *, node: str | None) -> None:
        """kube-scheduler says which node is being cleared for a pod, or that none is any more."""
        patch = {"status": {"nominatedNodeName": node}}
        self.patch(f"{PODS}/{pod['metadata']['name']}/status", patch)
        self.counts["pods nominated"] += 1

    def spoil(self, pod: Pod, *, text: str) -> None:
        """Somebody edits the card of a bound pod."""
        self.patch(f"{PODS}/{pod['metadata']['name']}", {"metadata": {"annotations": {NAMES.index: text}}})
        self.foreign.add(uid_of(pod))
        self.counts["annotations spoilt"] += 1

    def publish(self, name: str, published: Published) -> None:
        """A node appears, or its plugin publishes something else."""
        body, path = truth.node_body(name, published), f"/api/v1/nodes/{name}"
        self._variants.setdefault(name, []).append(published)
        if name not in self.published:
            body["metadata"]["annotations"] = _present(body["metadata"]["annotations"])
            body["status"]["capacity"] = _present(body["status"]["capacity"])
            self.request("POST", "/api/v1/nodes", body)
        else:
            # Never the capacities without the annotation: that is what a node of the classic plugin has.
            writes = [(path, {"metadata": body["metadata"]}), (f"{path}/status", {"status": body["status"]})]
            for where, what in reversed(writes) if published.state == "zeroed" else writes:
                self.patch(where, what)
        self.published[name] = published
        self.counts["nodes changed"] += 1

    def remove_node(self, name: str) -> None:
        self.request("DELETE", f"/api/v1/nodes/{name}")
        del self.published[name]
        self._variants[name].append(Published(cards=()))
        self.counts["nodes removed"] += 1

    # What happens to extenders -------------------------------------------------------------------

    def start(self, replica: Replica) -> None:
        """A new process takes a moment to come up."""
        self.loop.advance(LINGER)
        replica.start()
        self.counts["starts"] += 1

    def crash(self, replica: Replica) -> None:
        replica.crash()
        self.release(replica)
        self.counts["crashes"] += 1

    def switch(self, replica: Replica) -> None:
        """Another kube-scheduler takes over, and asks the extender at its side."""
        if self.active is not None:
            self.release(self.active)
        self.active = None
        self.loop.advance(GAP)
        self.active = replica
        self.counts["switches"] += 1

    def release(self, replica: Replica) -> None:
        """Whatever the API server holds of this client's is carried out."""
        for fault in self.api.faults.in_force():
            if fault.rule.client == replica.name and fault.rule.action != "freeze":
                self.api.faults.remove(fault.number)

    def cut(self, replica: Replica, *, expired: bool) -> None:
        """Its watches break; what was written meanwhile, be it elsewhere, may have been forgotten (410)."""
        if expired:
            self.api.store.version += 1
            self.api.faults.expire_history()
        self.counts["watches cut"] += self.api.faults.cut_watches(client=replica.name)

    def fault(self, rule: Rule) -> None:
        self.api.faults.add(rule)
        self.counts[f"faults: {rule.action}"] += 1

    # What kube-scheduler does --------------------------------------------------------------------

    def bind(self, pod: Pod, *, node: str, by: Replica | None = None) -> Call:
        """Begin a bind."""
        replica = by or self.active
        assert replica is not None
        call = Call(task=replica.bind(pod, node=node), pod=pod, node=node)
        self._calls.append(call)
        self.counts["binds"] += 1
        return call

    def bound(self, call: Call) -> str:
        """Wait for a bind; its error."""
        self.loop.run(asyncio.wait([call.task]))
        if call.task.cancelled():
            return "the extender crashed"
        error: str = call.task.result().json()["Error"]
        return error

    def ask(self, replica: Replica, pod: Pod) -> list[str]:
        """filter and prioritize: the nodes that fit, best first."""
        nodes = list(self.published)
        found = replica.ask("filter", pod, nodes=nodes)
        assert not found["Error"]
        fitting: list[str] = found["NodeNames"]
        refused = [*found["FailedNodes"], *found["FailedAndUnresolvableNodes"]]
        assert sorted([*fitting, *refused]) == sorted(nodes)
        scores = {item["Host"]: item["Score"] for item in replica.ask("prioritize", pod, nodes=fitting)}
        assert list(scores) == fitting
        assert [*scores.values()].count(10) <= 1  # none where the last room went since filter
        self.counts["asked"] += 1
        return sorted(fitting, key=lambda node: -scores[node])

    # What must hold ------------------------------------------------------------------------------

    def check(self) -> None:
        """At any moment, by what the API server has."""
        assert not self._errors.records, self._errors.records
        assert not self._left_over, self._left_over
        pods = self.pods()
        landed = [pod for pod in pods if self._is_news(pod)]
        for pod in landed:
            truth.check_complete(pod)
            self._written[uid_of(pod)] = allocation(pod) if kind_of(pod).needs else {}
        ours = [pod for pod in pods if uid_of(pod) in self._written and is_live(pod)]
        held = truth.totals(ours, written=self._written)
        for pod in landed:
            self._check_room(pod, held=held)
        self._check_answers({uid_of(pod): pod for pod in pods})

    def has_landed(self, pod: Pod) -> bool:
        """Whether one of the extenders bound it."""
        return uid_of(pod) in self._written

    def _is_news(self, pod: Pod) -> bool:
        uid = uid_of(pod)
        return bool(node_of(pod)) and uid not in self._written and uid not in self.foreign

    def _check_room(self, pod: Pod, *, held: Mapping[tuple[str, str], tuple[int, int]]) -> None:
        """Every card of a pod that has just landed holds no more than it has, by something its node published
        since the last rest."""
        node = node_of(pod)
        wanted = [uuid for uuid, *_ in truth.on_cards(pod, written=self._written[uid_of(pod)])]
        for published in self._variants[node]:
            sizes = {card.uuid: card.memory for card in published.open_cards}
            if all(
                uuid in sizes and held[node, uuid][0] <= sizes[uuid] and held[node, uuid][1] <= truth.SLOTS
                for uuid in wanted
            ):
                return
        name = pod["metadata"]["name"]
        raise AssertionError(f"{name} overfills {wanted} of {node}: {held}, {self._variants[node]}")

    def _check_answers(self, pods: Mapping[str, Pod]) -> None:
        """A bind that was answered with success is one."""
        for call in [call for call in self._calls if call.task.done()]:
            self._calls.remove(call)
            if call.task.cancelled():
                self.counts["binds cut short by a crash"] += 1
                continue
            answer = call.task.result()
            assert answer.status == 200, answer
            error: str = answer.json()["Error"]
            if error:
                self.counts[f"refused: {_gist(error)}"] += 1
                continue
            self.counts["bound"] += 1
            live = pods.get(uid_of(call.pod))
            assert live is None or node_of(live) == call.node

    def at_rest(self) -> None:
        """Let everything come to its end; then every extender's books are what the pods say."""
        self.api.faults.clear()
        self.loop.advance(REST)
        self.check()
        assert not self._calls
        self._variants = {name: [published] for name, published in self.published.items()} | {
            name: [Published(cards=())] for name in self._variants.keys() - self.published.keys()
        }
        for replica in self.replicas:
            if replica.is_running:
                assert replica.is_ready, replica.extender.problem
                self.check_books(replica)
                for pod in self.pods()[:4]:
                    self.ask(replica, pod)
                self.check_books(replica)
        self.counts["rests"] += 1

    def check_books(self, replica: Replica) -> None:
        """Nothing is lost, leaked or doubled in one extender's ledger."""
        ledger, pods = replica.extender.ledger, [pod for pod in self.pods() if is_live(pod)]
        charged = [pod for pod in pods if uid_of(pod) in self._written and kind_of(pod).needs]
        readable = [pod for pod in charged if uid_of(pod) not in self.foreign]
        assert {
            booking.pod.uid: (
                booking.node,
                booking.standing,
                [
                    (ref.uuid, share.memory, share.slots)
                    for ref, share in zip(booking.allocation.cards, booking.demand.cards, strict=True)
                ],
            )
            for booking in ledger.bookings()
        } == {
            uid_of(pod): (
                node_of(pod),
                Standing.SEEN,
                truth.on_cards(pod, written=self._written[uid_of(pod)]),
            )
            for pod in readable
        }
        assert set(replica.extender.waiting) == {uid_of(pod) for pod in pods if not node_of(pod)}
        assert set(replica.extender.nominations.nodes) == {
            node
            for pod in pods
            if not node_of(pod) and kind_of(pod).needs and not pod["metadata"].get("deletionTimestamp")
            if (node := pod.get("status", {}).get("nominatedNodeName"))
        }
        assert ledger.known_nodes() == sorted(self.published)
        held = truth.totals(readable, written=self._written)
        shut = {node_of(pod) for pod in pods if uid_of(pod) in self.foreign and kind_of(pod).needs}
        for name, published in self.published.items():
            view = ledger.view(name)
            open_cards = () if name in shut else published.open_cards
            assert {
                card.index: (room.free.memory, room.free.slots)
                for room in view.rooms[replica.extender.policy]
                for card in published.cards
                if card.index == room.index
            } == {card.index: self.left(name, card.uuid, card.memory, held=held) for card in open_cards}

    def left(
        self, node: str, uuid: str, size: int, *, held: Mapping[tuple[str, str], tuple[int, int]]
    ) -> tuple[int, int]:
        """(units, slots) that a card has left."""
        memory, slots = held.get((node, uuid), (0, 0))
        return max(0, size - memory), max(0, truth.SLOTS - slots)


def _present(values: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in values.items() if value is not None}


def _gist(error: str) -> str:
    """The kind of a refusal, for counting."""
    for gist in _GISTS:
        if gist in error:
            return gist
    return "other"


_GISTS: Sequence[str] = (
    "cannot take",
    "outcome unknown",
    "already",
    "is being bound",
    "is gone",
    "not ready",
    "out of reach",
    "did not answer in time",
    "a fault was ordered",
    "has gone from node",
    "is being deleted",
)


class _Errors(logging.Handler):
    """An extender that logs an error has met something that nobody thought of."""

    def __init__(self) -> None:
        super().__init__(level=logging.ERROR)
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record.getMessage())
