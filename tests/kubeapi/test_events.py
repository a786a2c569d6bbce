"""Events: counted when they repeat, bounded, and never in anybody's way."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from gpushare.bookings import PodRef
from kubeapi import events
from kubeapi.client import KubeApi
from kubeapi.events import EventRecorder, ObjectRef
from tests.kubeapi.scripted import Script, answer, refuse
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

POD = ObjectRef.of_pod(PodRef(uid="uid-1", namespace="team", name="a"))
NODE = ObjectRef.of_node("n1")
EPOCH = 1_795_000_000.0


class Clock:
    def __init__(self) -> None:
        self.now = EPOCH

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest_asyncio.fixture(loop_scope="module")
async def recorder(api: KubeApi, clock: Clock) -> AsyncIterator[EventRecorder]:
    async with writing(
        EventRecorder(api, component="gpushare-extender", host="h1", pace=0, clock=clock)
    ) as it:
        yield it


@contextlib.asynccontextmanager
async def writing(recorder: EventRecorder) -> AsyncIterator[EventRecorder]:
    task = asyncio.create_task(recorder.run())
    try:
        yield recorder
    finally:
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def body(asked: Any) -> Any:
    return msgspec.json.decode(asked.body)


async def test_an_event_on_a_pod(recorder: EventRecorder, script: Script) -> None:
    script.then(answer({}, status=201))
    recorder.record(POD, reason="GPUBindRefused", message="no room")
    asked = await script.asked_for(1)
    assert (asked.method, asked.path) == ("POST", "/api/v1/namespaces/team/events")
    event = body(asked)
    name = event["metadata"].pop("name")
    assert name.startswith("a.")
    assert int(name.removeprefix("a."), 16) == int(EPOCH * 1e9)
    assert event == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": "team"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "team",
            "name": "a",
            "uid": "uid-1",
        },
        "type": "Warning",
        "reason": "GPUBindRefused",
        "message": "no room",
        "count": 1,
        "firstTimestamp": "2026-11-18T11:06:40Z",
        "lastTimestamp": "2026-11-18T11:06:40Z",
        "source": {"component": "gpushare-extender", "host": "h1"},
        "reportingComponent": "gpushare-extender",
        "reportingInstance": "h1",
    }


async def test_an_event_on_a_node_lives_in_default_and_names_it_as_kubelet_does(
    recorder: EventRecorder, script: Script
) -> None:
    script.then(answer({}, status=201))
    recorder.record(NODE, reason="GPUNodeReopened", message="open", severity="Normal")
    asked = await script.asked_for(1)
    assert asked.path == "/api/v1/namespaces/default/events"
    assert body(asked)["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"}
    assert body(asked)["type"] == "Normal"


async def test_what_repeats_is_one_event_whose_count_goes_up(
    recorder: EventRecorder, script: Script, clock: Clock
) -> None:
    script.then(answer({}, status=201), answer({}), answer({}, status=201))
    recorder.record(POD, reason="R", message="m")
    name = body(await script.asked_for(1))["metadata"]["name"]
    clock.now += 5
    recorder.record(POD, reason="R", message="m")
    again = await script.asked_for(2)
    assert (again.method, again.path) == ("PATCH", f"/api/v1/namespaces/team/events/{name}")
    assert again.headers["Content-Type"] == "application/merge-patch+json"
    assert body(again) == {"count": 2, "lastTimestamp": "2026-11-18T11:06:45Z"}
    recorder.record(POD, reason="R", message="another")
    assert (await script.asked_for(3)).method == "POST"


async def test_an_event_that_the_api_server_has_forgotten_is_written_anew(
    recorder: EventRecorder, script: Script, clock: Clock
) -> None:
    script.then(answer({}, status=201), refuse(404, reason="NotFound"), answer({}, status=201), answer({}))
    recorder.record(POD, reason="R", message="m")
    first = body(await script.asked_for(1))["metadata"]["name"]
    clock.now += 7200
    recorder.record(POD, reason="R", message="m")
    anew = await script.asked_for(3)
    assert (anew.method, body(anew)["count"]) == ("POST", 2)
    recorder.record(POD, reason="R", message="m")
    assert (await script.asked_for(4)).path.rpartition("/")[2] == body(anew)["metadata"]["name"] != first


async def test_recording_waits_for_nothing_and_repeats_meanwhile_are_one_write(
    recorder: EventRecorder, script: Script
) -> None:
    recorder.record(NODE, reason="R", message="first")  # the API server hangs on this one
    await script.asked_for(1)
    for _ in range(5):
        recorder.record(POD, reason="R", message="m")
    assert len(script.asked) == 1


async def test_one_object_cannot_flood_the_api_server(
    recorder: EventRecorder, script: Script, clock: Clock
) -> None:
    script.then(*[answer({}, status=201)] * 20)
    for number in range(30):
        recorder.record(POD, reason="R", message=f"{number} left")
    recorder.record(NODE, reason="R", message="another object")
    await until(lambda: any(body(asked)["message"] == "another object" for asked in script.asked))
    assert len(script.asked) == events.BURST + 1
    clock.now += events.REFILL
    recorder.record(POD, reason="R", message="one more")
    recorder.record(POD, reason="R", message="and too many")
    assert body(await script.asked_for(events.BURST + 2))["message"] == "one more"


async def test_writes_keep_their_pace(api: KubeApi, script: Script, clock: Clock) -> None:
    script.then(*[answer({}, status=201)] * 2)
    async with writing(EventRecorder(api, component="c", pace=60, clock=clock)) as slow:
        slow.record(POD, reason="R", message="m")
        slow.record(NODE, reason="R", message="m")
        await script.asked_for(1)
        await until(lambda: script.open == 0)
        await asyncio.sleep(0)
        assert len(script.asked) == 1


async def test_memory_is_bounded_and_the_newest_are_kept(
    recorder: EventRecorder, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MOST_SERIES", 3)
    for number in range(10):
        recorder.record(ObjectRef.of_node(f"n{number}"), reason="R", message="m")
    script.then(*[answer({}, status=201)] * 10)
    await until(lambda: len(script.asked) == 3 and script.open == 0)
    names = [body(asked)["involvedObject"]["name"] for asked in script.asked]
    assert names == ["n7", "n8", "n9"]


async def test_failures_are_logged_once_and_dropped(
    recorder: EventRecorder, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    forbidden = refuse(403, reason="Forbidden", message="no")
    script.then(forbidden, forbidden, answer({}, status=201), forbidden)
    with caplog.at_level(logging.WARNING):
        for number in range(4):
            recorder.record(ObjectRef.of_node(f"n{number}"), reason="R", message="m")
            await script.asked_for(number + 1)
        await until(lambda: script.open == 0)
        await until(lambda: len(caplog.messages) == 2)
    assert "events cannot be written" in caplog.text


async def test_texts_are_cut_to_what_kubernetes_takes(recorder: EventRecorder, script: Script) -> None:
    script.then(answer({}, status=201))
    long = ObjectRef(kind="Pod", namespace="team", name="x" * 253, uid="u")
    recorder.record(long, reason="R", message="é" * 1024)
    event = body(await script.asked_for(1))
    assert len(event["metadata"]["name"]) <= 253
    assert len(event["message"].encode()) <= 1024
    assert event["involvedObject"]["name"] == "x" * 253
