"""What people see with `kubectl describe`: refused binds on pods, closed and reopened nodes."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from extender.events import BIND_REFUSED, NODE_CLOSED, NODE_REOPENED, ExtenderEvents
from gpushare.ledger import Ledger
from kubeapi.events import ObjectRef, Severity
from sandbox.apiserver import Rule
from tests import build
from tests.build import NAMES
from tests.extender.cluster import Cluster, Scheduler
from tests.waiting import until


def events(cluster: Cluster) -> list[dict[str, Any]]:
    return [dict(event) for event in cluster.api.objects("events")]


async def one_event(cluster: Cluster, reason: str) -> dict[str, Any]:
    """The one event of this reason, once it is there."""

    def found() -> list[dict[str, Any]]:
        return [event for event in events(cluster) if event["reason"] == reason]

    await until(found, what=f"an event {reason}")
    (event,) = found()
    return event


async def test_V2_a_refused_bind_is_told_on_the_pod(cluster: Cluster, scheduler: Scheduler) -> None:
    await cluster.node("n1", cards=[8192])
    await scheduler.seen_nodes("n1")
    pod = await cluster.pod("a", 9000)
    error = await scheduler.bind(pod, node="n1")
    event = await one_event(cluster, BIND_REFUSED)
    assert event["type"] == "Warning"
    assert event["message"] == error
    assert event["involvedObject"]["uid"] == pod["metadata"]["uid"]
    assert (event["metadata"]["namespace"], event["source"]["component"]) == ("default", "gpushare-extender")
    assert await scheduler.bind(pod, node="n1") == error
    await until(lambda: [each["count"] for each in events(cluster)] == [2], what="the repeat is counted")


async def test_a_bind_does_not_wait_for_its_event(cluster: Cluster, scheduler: Scheduler) -> None:
    await cluster.node("n1", cards=[8192])
    await scheduler.seen_nodes("n1")
    held = cluster.faults.add(Rule(action="hold", method="POST", path="/events$"))
    assert await scheduler.bind(await cluster.pod("a", 9000), node="n1") != ""
    await asyncio.wait_for(held.struck(), 5)
    assert await scheduler.bind(await cluster.pod("b", 1000), node="n1") == ""
    cluster.faults.remove(held.number)


async def test_a_bind_that_is_no_business_of_a_replica_is_told_on_no_pod(cluster: Cluster) -> None:
    cluster.faults.add(Rule(action="hold", method="GET", path="^/api/v1/pods$"))
    async with cluster.extender(synced=False) as scheduler:
        assert "not ready" in await scheduler.bind(await cluster.pod("a", 9000), node="n1")
        await scheduler.post("/gpushare-scheduler/bind", b"garbage")
    assert events(cluster) == []


async def test_L9_a_node_that_fails_closed_says_because_of_whom(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    await cluster.node("n1", cards=[8192])
    await scheduler.seen_nodes("n1")
    await cluster.create(build.pod("bad", memory=3000, on="n1", annotations={NAMES.index: "abc"}))
    await scheduler.shut("n1")
    await scheduler.extender.events.look()
    event = await one_event(cluster, NODE_CLOSED)
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"}
    assert "until one of its pods is gone: default/bad has an unreadable card allocation" in event["message"]
    await cluster.delete("bad")
    await until(lambda: scheduler.extender.ledger.view("n1").problem is None)
    await scheduler.extender.events.look()
    reopened = await one_event(cluster, NODE_REOPENED)
    assert (reopened["type"], reopened["involvedObject"]["name"]) == ("Normal", "n1")


@dataclass
class Heard:
    """A recorder that remembers."""

    told: list[tuple[str, str, str]] = field(default_factory=list)

    def record(self, about: ObjectRef, *, reason: str, message: str, severity: Severity = "Warning") -> None:
        self.told.append((about.name, reason, message))

    def fresh(self) -> list[tuple[str, str]]:
        """Since the last time: node and reason."""
        told, self.told = self.told, []
        return [(name, reason) for name, reason, _ in told]


def bad(name: str, *, on: str = "n1") -> Any:
    return build.pod(name, uid=name, memory=1000, on=on)


async def test_L10_each_change_of_a_nodes_state_is_told_once() -> None:
    ledger, heard = Ledger(names=NAMES, unit="MiB"), Heard()
    watching = ExtenderEvents(heard, ledger=ledger, is_active=lambda: True)
    for name in ("n1", "n2"):
        ledger.set_node(build.node(name, cards=[8192]))
    ledger.set_node(build.node("plain", cards=[]))
    await watching.look()
    assert heard.fresh() == []
    ledger.set_pod(bad("one"))
    ledger.set_pod(bad("two"))
    await watching.look()
    await watching.look()
    assert heard.fresh() == [("n1", NODE_CLOSED)]
    ledger.remove_pod("one")
    await watching.look()
    assert heard.told[0][2].endswith("default/two has no card allocation")
    assert heard.fresh() == [("n1", NODE_CLOSED)]
    ledger.remove_pod("two")
    ledger.set_node(build.node("n2", cards=[8], unit="GiB"))
    await watching.look()
    assert heard.fresh() == [("n1", NODE_REOPENED), ("n2", NODE_CLOSED)]
    ledger.remove_node("n2")
    await watching.look()
    assert heard.fresh() == [], "a node that is gone has not reopened"
    ledger.set_node(build.node("n2", cards=[8192]))
    await watching.look()
    assert heard.fresh() == []


async def test_only_the_active_replica_tells_of_nodes() -> None:
    ledger, heard, active = Ledger(names=NAMES, unit="MiB"), Heard(), False
    watching = ExtenderEvents(heard, ledger=ledger, is_active=lambda: active)
    ledger.set_node(build.node("n1", cards=[8192]))
    ledger.set_pod(bad("one"))
    await watching.look()
    assert heard.fresh() == []
    active = True
    await watching.look()
    assert heard.fresh() == [("n1", NODE_CLOSED)]


async def test_looking_at_many_nodes_lets_others_run() -> None:
    ledger = Ledger(names=NAMES, unit="MiB")
    watching = ExtenderEvents(Heard(), ledger=ledger, is_active=lambda: True)
    for number in range(400):
        ledger.set_node(build.node(f"n{number}", cards=[8192] * 8))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    begun = time.perf_counter()
    await watching.look()
    took = time.perf_counter() - begun
    beside.cancel()
    assert turns > took / 0.02, "others ran less often than every 20 ms"
