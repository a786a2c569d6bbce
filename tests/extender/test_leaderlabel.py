"""The leader's label (V7): on its pod alone, never for longer than it leads, and nobody waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from extender.settings import ExtenderSettings
from kubeapi.configfile import SettingsRefused
from kubeapi.settings import read
from sandbox.apiserver import Rule
from sandbox.apiserver.routes import Request
from tests.extender.cluster import PREFIX, Cluster
from tests.extender.electing import Clock, Replica, replica
from tests.extender.serving import ask, free_address, served
from tests.waiting import DEADLINE, until

KEY = "example.com/leads"
LEASE_CLIENT = "first/leader-election"


def labelled(cluster: Cluster) -> set[str]:
    return {
        each["metadata"]["name"]
        for each in cluster.api.objects("pods")
        if each["metadata"].get("labels", {}).get(KEY) == "true"
    }


async def left_by_a_leader(cluster: Cluster, name: str) -> None:
    """Label the pod as it is found by a container that starts again."""
    await cluster.patch(f"/api/v1/namespaces/default/pods/{name}", {"metadata": {"labels": {KEY: "true"}}})


async def says(replica: Replica, status: int, *texts: str) -> None:
    """Wait until /readyz has this status and text in it."""
    async with asyncio.timeout(DEADLINE):
        while True:
            found, text = await replica.readiness()
            if found == status and all(each in text for each in texts):
                return
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def two(cluster: Cluster, clock: Clock) -> AsyncIterator[tuple[Replica, Replica]]:
    """A leader with its label and a standby that is ready."""
    await cluster.node("n1", cards=[8192])
    for name in ("first", "second"):
        await cluster.pod(name)
    async with replica(cluster, "first", clock, label=KEY) as first:
        await first.leading()
        async with replica(cluster, "second", clock, label=KEY) as second:
            await until(lambda: second.elector.holder == "first", what="the standby has seen the lease")
            await until(lambda: labelled(cluster) == {"first"}, what="the leader is labelled")
            await says(second, 200, "standby")
            for each in (first, second):
                await each.seen_nodes("n1")
            yield first, second


async def test_V7_the_leader_has_the_label_and_a_standby_is_ready_and_answers_no_verb(
    cluster: Cluster,
) -> None:
    async with two(cluster, Clock()) as (leader, standby):
        assert await leader.readiness() == (200, "ok")
        pod = await cluster.pod("a", 1000)
        assert "not the leader: first holds lease" in await standby.bind(pod, node="n1")
        assert "not the leader: first holds lease" in (await standby.filter(pod, nodes=["n1"]))["Error"]
        assert (standby.extender.is_active, leader.extender.is_active) == (False, True)
        assert await leader.bind(pod, node="n1") == ""
        assert labelled(cluster) == {"first"}


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt", "bind"])
async def test_a_standbys_refusal_ends_the_connection_so_that_the_next_call_reaches_the_leader(
    cluster: Cluster, verb: str
) -> None:
    bodies: dict[str, Any] = {
        "bind": {"PodName": "a", "PodNamespace": "default", "PodUID": "u", "Node": "n1"},
        "preempt": {"Pod": {"metadata": {"name": "a"}}, "NodeNameToMetaVictims": {}},
    }
    plain = {"Pod": {"metadata": {"name": "a"}}, "NodeNames": ["n1"]}
    async with two(cluster, Clock()) as (leader, standby):
        for each, closes in ((standby, True), (leader, False)):
            answer = await each.post(f"{PREFIX}/{verb}", bodies.get(verb, plain))
            assert ("close" in answer.headers.get("connection", "")) is closes


async def test_V7_the_label_goes_with_the_lease_and_comes_to_the_next_leader(cluster: Cluster) -> None:
    clock = Clock()
    async with two(cluster, clock) as (first, second):
        cut = cluster.faults.add(Rule(action="hold", client=LEASE_CLIENT))
        await asyncio.wait_for(cut.struck(), DEADLINE)
        clock.now = 11.0
        # Nobody can take it off: so the pod is not ready, and the Service passes it by all the same.
        status, said = await first.readiness()
        assert status == 503
        assert "lease kube-system/gpushare could not be renewed; label" in said
        assert labelled(cluster) == {"first"}
        await second.succeeding(clock)
        await until(lambda: labelled(cluster) == {"first", "second"}, what="the new leader is labelled")
        assert (await first.readiness())[0] == 503
        cluster.faults.clear()
        await until(lambda: labelled(cluster) == {"second"}, what="the label is off")
        await says(first, 200, "standby")


async def test_a_label_whose_answer_was_lost_may_be_on(cluster: Cluster) -> None:
    clock = Clock()
    async with two(cluster, clock) as (_, second):
        cluster.faults.add(Rule(action="hold", client=LEASE_CLIENT))
        cluster.faults.add(Rule(action="drop", when="after", method="PATCH", path="/pods/second$"))
        await second.succeeding(clock)
        await until(lambda: "second" in labelled(cluster), what="it is labelled and does not know")
        await says(second, 503, "not put on pod default/second")
        cut = cluster.faults.add(Rule(action="hold", client="second/leader-election"))
        await asyncio.wait_for(cut.struck(), DEADLINE)
        clock.now += 11.0
        status, said = await second.readiness()
        assert status == 503
        assert "could not be renewed; label" in said
        cluster.faults.clear()


async def test_a_container_that_starts_again_is_not_ready_before_the_label_it_left_is_off(
    cluster: Cluster,
) -> None:
    async with two(cluster, Clock()) as (first, _):
        await cluster.pod("third")
        await left_by_a_leader(cluster, "third")
        held = cluster.faults.add(Rule(action="hold", method="PATCH", client="third"))
        async with replica(cluster, "third", Clock(), label=KEY) as third:
            await asyncio.wait_for(held.struck(), DEADLINE)
            await until(lambda: third.elector.holder == "first", what="it has seen the lease")
            status, said = await third.readiness()
            assert (status, said.partition("; ")[2]) == (503, f"label {KEY} may be on pod default/third")
            cluster.faults.clear()
            await says(third, 200, "standby")
            assert labelled(cluster) == {"first"}
        assert await first.readiness() == (200, "ok")


async def test_a_new_leader_answers_before_it_is_labelled(cluster: Cluster) -> None:
    await cluster.node("n1", cards=[8192])
    await cluster.pod("first")
    held = cluster.faults.add(Rule(action="hold", method="PATCH", path="/pods/first$"))
    async with replica(cluster, "first", Clock(), label=KEY) as first:
        await asyncio.wait_for(held.struck(), DEADLINE)
        await first.leading()
        await first.seen_nodes("n1")
        assert await first.bind(await cluster.pod("a", 1000), node="n1") == ""
        assert await first.readiness() == (200, "ok")
        assert labelled(cluster) == set()
        cluster.faults.clear()
        await until(lambda: labelled(cluster) == {"first"}, what="it is labelled")


async def test_a_label_that_may_not_be_written_is_said_with_the_right_that_is_missing(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.pod("first")
    cluster.faults.add(
        Rule(action="answer", status=403, message="pods is forbidden", method="PATCH", path="/pods/first$")
    )
    async with replica(cluster, "first", Clock(), label=KEY) as first:
        await first.leading()
        # It leads, and no Service sends anybody: that is not ready.
        await says(first, 503, KEY, "not put on pod default/first", "pods is forbidden")
        errors = [each.message for each in caplog.records if each.levelname == "ERROR"]
        assert "service account needs the right to patch pods in its namespace" in errors[0]
        cluster.faults.clear()
        await says(first, 200, "ok")
        assert labelled(cluster) == {"first"}


async def test_what_somebody_changes_by_hand_is_put_right(cluster: Cluster) -> None:
    async with two(cluster, Clock()) as (first, second):
        path = "/api/v1/namespaces/default/pods/first"
        await cluster.patch(path, {"metadata": {"labels": {KEY: None}}})
        await left_by_a_leader(cluster, "second")
        await until(lambda: labelled(cluster) == {"first"}, what="the leader's alone")
        assert await first.readiness() == (200, "ok")
        assert await second.readiness() == (200, "standby")


async def test_a_pod_that_is_gone_has_no_label(cluster: Cluster) -> None:
    async with two(cluster, Clock()), replica(cluster, "stranger", Clock(), label=KEY) as stranger:
        await says(stranger, 200, "standby")


@pytest.mark.parametrize("grace", ["0", "60"])
async def test_at_the_end_the_label_goes_first_then_the_lease(cluster: Cluster, grace: str) -> None:
    await cluster.pod("mine")
    written: list[str] = []

    def hear(request: Request) -> None:
        if request.method == "PATCH":
            written.append(f"label {msgspec.json.decode(request.body)['metadata']['labels'][KEY]}")
        elif request.method == "PUT" and "leases" in request.path:
            holder = msgspec.json.decode(request.body)["spec"]["holderIdentity"]
            written.append("lease" if holder else "lease given up")

    cluster.api.app.heard.append(hear)
    address = free_address()
    flags = (f"--leader-label={KEY}", "--pod-name=mine", "--pod-namespace=default", "--leader-elect")
    async with served(cluster, f"--listen={address}", f"--shutdown-grace={grace}", *flags) as extender:
        await until(lambda: labelled(cluster) == {"mine"}, what="it is labelled")
        extender.signalled.set()
        if grace != "0":
            await until(lambda: labelled(cluster) == set(), what="the label is off")
            body = {"Pod": {"metadata": {"name": "a"}}, "NodeNames": ["n1"]}
            filtered = await ask("POST", f"http://{address}{PREFIX}/filter", body=body)
            assert filtered.json()["NodeNames"] == ["n1"], "it leads and answers whoever still comes"
            extender.task.cancel()
            await asyncio.wait([extender.task])
        else:
            await extender.end()
    off = len(written) - 1 - written[::-1].index("label None")
    assert written.index("label true") < off
    if grace == "0":
        assert written[-1] == "lease given up"
        assert off < len(written) - 1
    assert "label true" not in written[off:]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--leader-label=a b", "--leader-elect", "--pod-name=p"), "a b is no label of Kubernetes"),
        (("--leader-label=/a", "--leader-elect", "--pod-name=p"), "is no label of Kubernetes"),
        (("--leader-label=Ex.com/a", "--leader-elect", "--pod-name=p"), "is no label of Kubernetes"),
        ((f"--leader-label={'a' * 64}", "--leader-elect", "--pod-name=p"), "is no label of Kubernetes"),
        (("--leader-label=example.com/leader", "--pod-name=p"), "needs --leader-elect"),
        (("--leader-label=leader", "--leader-elect"), "needs --pod-name (or POD_NAME)"),
    ],
)
def test_a_label_needs_a_lease_and_a_pod(
    flags: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("POD_NAME", raising=False)
    with pytest.raises(SettingsRefused, match=re.escape(said)):
        read(ExtenderSettings, program="gpushare-extender", argv=flags)


def test_the_pods_name_is_read_as_it_is_commonly_wired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAME", "mine")
    flags = ("--leader-label=gpushare/leader", "--leader-elect")
    settings = read(ExtenderSettings, program="gpushare-extender", argv=flags)
    assert (settings.leader_label, settings.pod_name) == ("gpushare/leader", "mine")
    assert read(ExtenderSettings, program="gpushare-extender", argv=()).leader_label == ""
