"""The audit: a ledger that is wrong is put right; one that is only early or late is left alone."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest

from extender import slices
from extender.audit import Audit
from gpushare.bookings import PodRef
from sandbox.apiserver import Rule
from tests import build
from tests.build import NAMES
from tests.extender.cluster import Cluster, Scheduler
from tests.waiting import until

LIST = "^/api/v1/pods$"


def audit_of(scheduler: Scheduler) -> Audit:
    return scheduler.extender.audit


async def bound(cluster: Cluster, scheduler: Scheduler, name: str, *, memory: int = 1000) -> str:
    """A pod on n1 that the watch has shown; its UID."""
    pod = await cluster.pod(name, memory)
    assert await scheduler.bind(pod, node="n1") == ""
    uid: str = pod["metadata"]["uid"]
    await scheduler.seen(uid)
    return uid


@pytest.fixture
async def n1(cluster: Cluster, scheduler: Scheduler) -> None:
    await cluster.node("n1", cards=[8192, 8192])
    await scheduler.seen_nodes("n1")


async def moved_on(cluster: Cluster) -> None:
    """Something else happens to pods: the watch gets a version to show."""
    await cluster.pod(f"other-{time.monotonic_ns()}")


@pytest.mark.usefixtures("n1")
async def test_L16_a_ledger_that_is_right_is_found_so(cluster: Cluster, scheduler: Scheduler) -> None:
    await bound(cluster, scheduler, "a")
    await cluster.create(build.pod("bad", memory=3000, on="n1", annotations={NAMES.index: "x"}))
    await cluster.pod("waiting", 500)
    await cluster.pod("plain", on="n1")
    await scheduler.shut("n1")
    assert await audit_of(scheduler).once() == "clean"
    assert audit_of(scheduler).corrections == 0


@pytest.mark.usefixtures("n1")
@pytest.mark.parametrize("fault", ["lost", "invented", "another card", "another amount", "unreadable"])
async def test_L16_a_ledger_that_is_wrong_is_put_right(
    cluster: Cluster, scheduler: Scheduler, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = scheduler.extender.ledger
    uid = await bound(cluster, scheduler, "a")
    right = await scheduler.inspect("n1")

    def wrong(**asked: Any) -> None:
        ledger.set_pod(build.pod("a", uid=uid, on="n1", **asked))

    match fault:
        case "lost":
            ledger.remove_pod(uid)
        case "invented":
            ledger.set_pod(build.pod("ghost", uid="ghost", memory=2000, on="n1", cards=[1]))
        case "another card":
            wrong(memory=1000, cards=[1])
        case "another amount":
            wrong(memory=1001, cards=[0])
        case "unreadable":
            wrong(memory=1000, annotations={NAMES.index: "x"})
    assert await scheduler.inspect("n1") != right
    await moved_on(cluster)
    with caplog.at_level(logging.ERROR):
        assert await audit_of(scheduler).once() == "corrected"
    assert await scheduler.inspect("n1") == right
    assert audit_of(scheduler).corrections == 1
    assert "ledger corrected uid=" in caplog.text
    assert await audit_of(scheduler).once() == "clean"


@pytest.mark.usefixtures("n1")
async def test_a_lost_reservation_is_given_back(cluster: Cluster, scheduler: Scheduler) -> None:
    """Nobody binds the pod any more, and yet it is charged."""
    pod = build.pod("a", uid="forgotten", memory=1000)
    ledger = scheduler.extender.ledger
    reserved = ledger.reserve_cards(
        PodRef.of(pod), demand=build.demand(pod), node="n1", policy=scheduler.extender.policy
    )
    assert reserved is not None
    await moved_on(cluster)
    assert await audit_of(scheduler).once() == "corrected"
    assert await scheduler.free("n1") == [8192, 8192]


@pytest.mark.usefixtures("n1")
async def test_L11_a_bind_in_flight_is_no_difference(cluster: Cluster, scheduler: Scheduler) -> None:
    pod = await cluster.pod("a", 1000)
    held = cluster.faults.add(Rule(action="hold", method="POST", path="/binding"))
    bind = asyncio.create_task(scheduler.bind(pod, node="n1"))
    await asyncio.wait_for(held.struck(), 5)
    await moved_on(cluster)
    assert await audit_of(scheduler).once() == "clean"
    assert await scheduler.free("n1") == [7192, 8192]
    cluster.faults.remove(held.number)
    assert await bind == ""


async def during_the_list(cluster: Cluster, scheduler: Scheduler) -> tuple[Any, asyncio.Task[str]]:
    """An audit whose list has been taken and is not there yet."""
    held = cluster.faults.add(Rule(action="hold", when="after", method="GET", path=LIST, count=1))
    audit = asyncio.create_task(audit_of(scheduler).once())
    await asyncio.wait_for(held.struck(), 5)
    return held, audit


@pytest.mark.usefixtures("n1")
async def test_what_happens_while_the_list_is_under_way_is_no_difference(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    going = await bound(cluster, scheduler, "going")
    held, audit = await during_the_list(cluster, scheduler)
    await cluster.delete("going")
    await scheduler.released(going)
    await bound(cluster, scheduler, "coming", memory=3000)
    brief = await bound(cluster, scheduler, "brief", memory=2000)
    await cluster.delete("brief")
    await scheduler.released(brief)
    cluster.faults.remove(held.number)
    assert await audit == "clean"
    assert await scheduler.free("n1") == [5192, 8192]


@pytest.mark.usefixtures("n1")
async def test_a_pod_that_the_ledger_never_had_and_that_goes_meanwhile_is_not_taken_up(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    uid = await bound(cluster, scheduler, "a")
    scheduler.extender.ledger.remove_pod(uid)  # a fault, which this audit sees
    held, audit = await during_the_list(cluster, scheduler)
    await cluster.delete("a")
    await moved_on(cluster)
    await until(lambda: len(scheduler.extender.ledger.uids()) == 0)
    version = max(int(each["metadata"]["resourceVersion"]) for each in cluster.api.objects("pods"))
    pods = scheduler.extender.reflectors[1]
    await until(lambda: (pods.version or 0) >= version, what="the watch has seen it")
    cluster.faults.remove(held.number)
    assert await audit == "clean"
    assert await scheduler.free("n1") == [8192, 8192]


@pytest.mark.usefixtures("n1")
async def test_V7_what_a_late_watch_has_not_shown_is_waited_for(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    uid = await bound(cluster, scheduler, "a")
    frozen = cluster.faults.add(Rule(action="freeze", client="gpushare-extender"))
    await cluster.delete("a")
    listed = cluster.faults.add(Rule(action="delay", when="after", method="GET", path=LIST))
    audit = asyncio.create_task(audit_of(scheduler).once())
    await asyncio.wait_for(listed.struck(), 5)
    assert scheduler.extender.ledger.booking(uid) is not None
    cluster.faults.remove(frozen.number)
    assert await audit == "clean"
    assert await scheduler.free("n1") == [8192, 8192]


@pytest.mark.usefixtures("n1")
async def test_V7_while_the_watch_stays_behind_nothing_is_corrected(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    uid = await bound(cluster, scheduler, "a")
    frozen = cluster.faults.add(Rule(action="freeze", client="gpushare-extender"))
    await cluster.delete("a")
    audit = audit_of(scheduler)
    audit.catch_up = 0.05
    assert await audit.once() == "unfinished"
    assert scheduler.extender.ledger.booking(uid) is not None
    cluster.faults.remove(frozen.number)
    await scheduler.released(uid)
    assert await audit.once() == "clean"
    assert audit.outcomes == {"unfinished": 1, "clean": 1}


@pytest.mark.usefixtures("n1")
async def test_an_api_server_that_fails_costs_one_audit(
    cluster: Cluster, scheduler: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    uid = await bound(cluster, scheduler, "a")
    cluster.faults.add(Rule(action="answer", status=500, method="GET", path=LIST, count=1))
    assert await audit_of(scheduler).once() == "failed"
    assert "audit failed" in caplog.text
    assert scheduler.extender.ledger.booking(uid) is not None
    assert await audit_of(scheduler).once() == "clean"


async def test_a_long_comparison_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE", 0.0)
    order: list[object] = []

    async def other() -> None:
        order.append("other")

    async for item in slices.in_slices(range(3)):
        if item == 0:
            beside = asyncio.create_task(other())
        order.append(item)
    await beside
    assert order == [0, "other", 1, 2]
