"""The scheduler stand-in against the sandbox's API server and an extender that says what a test wants."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sysconfig
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web

from kubeapi.client import KubeApi
from sandbox.apiserver import ApiServer
from sandbox.scheduler import ExtenderClient, ExtenderSettings, Scheduler, SchedulerSettings
from tests.running import running
from tests.sandbox.calls import NODES, PODS, bind, create, patch
from tests.sandbox.scriptedextender import Request, ScriptedExtender, serve
from tests.waiting import until

R = "aliyun.com/gpu-mem"
SOON = SchedulerSettings(first_backoff=0.01, longest_backoff=0.02)
NEVER = SchedulerSettings(first_backoff=600.0, longest_backoff=600.0)
Start = Callable[..., AbstractAsyncContextManager[None]]


@pytest.fixture
async def extender(client: httpx.AsyncClient) -> AsyncIterator[ScriptedExtender]:
    """An extender whose bind binds."""
    scripted = ScriptedExtender(answers={"bind": lambda request: really_bind(client, request)})
    async with serve(scripted):
        yield scripted


async def really_bind(client: httpx.AsyncClient, request: Request) -> dict[str, str]:
    answer = await bind(client, request.body["PodName"], request.body["Node"], uid=request.body["PodUID"])
    return {"Error": "" if answer.status_code == 201 else answer.text}


@pytest.fixture
def scheduler(api: ApiServer, extender: ScriptedExtender, tmp_path: Path) -> Start:
    """Starts a scheduler with these settings; a context."""

    @contextlib.asynccontextmanager
    async def start(settings: SchedulerSettings = SOON, **options: Any) -> AsyncIterator[None]:
        kubeconfig = api.kubeconfig(tmp_path / "kubeconfig")
        url = options.pop("url", None) or extender.url
        async with (
            await KubeApi.connect(kubeconfig, user_agent="test") as kube,
            ExtenderClient(ExtenderSettings(url=url, **options)) as calls,
            running(Scheduler(api=kube, extender=calls, settings=settings).run()),
        ):
            yield

    return start


async def make_node(client: httpx.AsyncClient, name: str = "n1", *, memory: str = "10k") -> None:
    amounts = {R: memory, "cpu": "8", "pods": "110"}
    await create(client, NODES, {"metadata": {"name": name}, "status": {"capacity": amounts}})


async def make_pod(client: httpx.AsyncClient, name: str, *, memory: str | None = None, **spec: Any) -> None:
    container: dict[str, Any] = {"name": "main", "image": "registry.example/app:1"}
    if memory is not None:
        container["resources"] = {"limits": {R: memory}}
    await create(client, PODS, {"metadata": {"name": name}, "spec": {"containers": [container], **spec}})


def pods(api: ApiServer) -> dict[str, dict[str, Any]]:
    return {pod["metadata"]["name"]: pod for pod in api.objects("pods")}


def node_of(api: ApiServer, name: str) -> str:
    return str(pods(api)[name]["spec"].get("nodeName", ""))


def condition(api: ApiServer, name: str) -> dict[str, Any]:
    listed = pods(api)[name]["status"].get("conditions", [])
    return next((item for item in listed if item["type"] == "PodScheduled"), {})


async def refused(api: ApiServer, name: str) -> str:
    """Wait until a pod's condition says why it has no node."""
    await until(lambda: condition(api, name).get("status") == "False", what=f"{name} refused")
    return str(condition(api, name)["message"])


async def bound(api: ApiServer, name: str) -> str:
    """Wait until a pod has a node."""
    await until(lambda: node_of(api, name), what=f"{name} bound")
    return node_of(api, name)


async def test_only_nodes_that_pass_its_own_checks_are_asked_about(
    api: ApiServer, client: httpx.AsyncClient, extender: ScriptedExtender, scheduler: Start
) -> None:
    for name, memory in (("n1", "1k"), ("n2", "10k"), ("n3", "10k")):
        await make_node(client, name, memory=memory)
    await make_pod(client, "a", memory="8000")
    async with scheduler():
        await bound(api, "a")
    assert extender.requests[0].body["NodeNames"] == ["n2", "n3"]


async def test_one_feasible_node_is_not_scored(
    api: ApiServer, client: httpx.AsyncClient, extender: ScriptedExtender, scheduler: Start
) -> None:
    await make_node(client)
    await make_pod(client, "a", memory="8000")
    async with scheduler():
        assert await bound(api, "a") == "n1"
    assert extender.verbs() == [("filter", "a"), ("bind", "a")]


async def test_the_highest_score_wins(
    api: ApiServer, client: httpx.AsyncClient, extender: ScriptedExtender, scheduler: Start
) -> None:
    for name in ("n1", "n2", "n3"):
        await make_node(client, name)

    async def prefer_n2(request: Request) -> Any:
        return [{"Host": name, "Score": 10 if name == "n2" else 9} for name in request.body["NodeNames"]]

    extender.answers["prioritize"] = prefer_n2
    async with scheduler():
        for name in ("a", "b", "c"):
            await make_pod(client, name, memory="1")
            assert await bound(api, name) == "n2"


async def test_scores_that_cannot_be_had_are_done_without(
    api: ApiServer, client: httpx.AsyncClient, extender: ScriptedExtender, scheduler: Start
) -> None:
    await make_node(client, "n1")
    await make_node(client, "n2")
    extender.answers["prioritize"] = _code(500)
    await make_pod(client, "a", memory="1")
    async with scheduler():
        assert await bound(api, "a") in ("n1", "n2")


def _code(status: int) -> Callable[[Request], Any]:
    async def answer(request: Request) -> web.Response:
        return web.Response(status=status, text='{"Error": "never read"}')

    return answer


async def test_a_pod_that_does_not_name_the_resource_is_none_of_the_extenders_business(
    api: ApiServer, client: httpx.AsyncClient, extender: ScriptedExtender, scheduler: Start
) -> None:
    await make_node(client)
    await make_pod(client, "plain")
    await make_pod(client, "zero", memory="0")
    async with scheduler():
        assert await bound(api, "plain") == "n1"
        assert await bound(api, "zero") == "n1"
    assert {pod for _, pod in extender.verbs()} == {"zero"}


async def test_pods_of_other_schedulers_and_gated_pods_are_left_alone(
    api: ApiServer, client: httpx.AsyncClient, extender: ScriptedExtender, scheduler: Start
) -> None:
    await make_node(client)
    await make_pod(client, "theirs", memory="1", schedulerName="another")
    await make_pod(client, "gated", memory="1", schedulingGates=[{"name": "example.com/wait"}])
    async with scheduler():
        await make_pod(client, "ours", memory="1", schedulerName="gpushare-scheduler")
        await bound(api, "ours")
        answer = await patch(client, f"{PODS}/gated", {"spec": {"schedulingGates": None}})
        assert answer.status_code == 200, answer.text
        await bound(api, "gated")
    assert not node_of(api, "theirs")


async def test_a_pod_that_is_being_deleted_is_not_tried_again(
    api: ApiServer, client: httpx.AsyncClient, extender: ScriptedExtender, scheduler: Start
) -> None:
    await make_pod(client, "a", memory="1")
    await patch(client, f"{PODS}/a", {"metadata": {"finalizers": ["example.com/wait"]}})
    async with scheduler():
        await refused(api, "a")
        await client.delete(f"{PODS}/a")
        await make_pod(client, "b", memory="1")
        await refused(api, "b")
        await make_node(client)
        await bound(api, "b")
    assert {pod for _, pod in extender.verbs()} == {"b"}


async def test_pods_go_by_priority_then_age(
    api: ApiServer, client: httpx.AsyncClient, extender: ScriptedExtender, scheduler: Start
) -> None:
    priority = "/apis/scheduling.k8s.io/v1/priorityclasses"
    await create(client, priority, {"metadata": {"name": "urgent"}, "value": 1000})
    await make_node(client)
    for name in ("a-first", "b-second"):
        await make_pod(client, name, memory="1")
    await make_pod(client, "c-urgent", memory="1", priorityClassName="urgent")
    async with scheduler():
        for name in ("a-first", "b-second", "c-urgent"):
            await bound(api, name)
    assert [pod for verb, pod in extender.verbs() if verb == "filter"] == ["c-urgent", "a-first", "b-second"]


async def test_filters_are_serial_and_binds_are_not(
    api: ApiServer, client: httpx.AsyncClient, extender: ScriptedExtender, scheduler: Start
) -> None:
    await make_node(client, memory="10k")
    may_bind = asyncio.Event()

    async def hold(request: Request) -> Any:
        await may_bind.wait()
        return await really_bind(client, request)

    extender.answers["bind"] = hold
    names = ["a", "b", "c", "d"]
    for name in names:
        await make_pod(client, name, memory="2500")
    await make_pod(client, "too-many", memory="1")
    async with scheduler():
        await extender.until(*(("bind", name) for name in names))
        # All of the node is taken by pods that are only assumed there so far.
        assert await refused(api, "too-many") == f"0/1 nodes are available: 1 Insufficient {R}."
        assert not any(node_of(api, name) for name in names)
        may_bind.set()
        for name in names:
            assert await bound(api, name) == "n1"
    assert extender.most_filters_at_once == 1


async def test_a_refusal_counts_the_extenders_reasons_beside_its_own(
    api: ApiServer, client: httpx.AsyncClient, extender: ScriptedExtender, scheduler: Start
) -> None:
    for name, memory in (("n1", "10k"), ("n2", "1"), ("n3", "10k"), ("n4", "10k")):
        await make_node(client, name, memory=memory)

    async def refuse(request: Request) -> Any:
        failed = {"n1": "no card has room", "n3": "no card has room"}
        return {"NodeNames": [], "FailedNodes": failed, "FailedAndUnresolvableNodes": {"n4": "no cards"}}

    extender.answers["filter"] = refuse
    await make_pod(client, "a", memory="8000")
    text = f"0/4 nodes are available: 1 Insufficient {R}, 1 no cards, 2 no card has room."
    async with scheduler(NEVER):
        assert await refused(api, "a") == text
    assert condition(api, "a")["reason"] == "Unschedulable"
    event = api.objects("events")[0]
    assert (event["reason"], event["message"], event["involvedObject"]["name"]) == (
        "FailedScheduling",
        text,
        "a",
    )


@pytest.mark.parametrize("room", ["deleted", "finished", "new node"])
async def test_L13_room_that_is_made_is_used_at_once(
    api: ApiServer, client: httpx.AsyncClient, scheduler: Start, room: str
) -> None:
    await make_node(client)
    await make_pod(client, "a", memory="8000")
    async with scheduler(NEVER):
        await bound(api, "a")
        await make_pod(client, "b", memory="8000")
        await refused(api, "b")
        if room == "deleted":
            await client.request("DELETE", f"{PODS}/a", json={"gracePeriodSeconds": 0})
        elif room == "finished":
            await patch(client, f"{PODS}/a/status", {"status": {"phase": "Succeeded"}})
        else:
            await make_node(client, "n2")
        assert await bound(api, "b") == ("n2" if room == "new node" else "n1")
    assert condition(api, "b")["status"] == "True"


async def test_a_refused_pod_is_tried_again_by_itself(
    api: ApiServer, client: httpx.AsyncClient, extender: ScriptedExtender, scheduler: Start
) -> None:
    await make_node(client)
    await make_pod(client, "a", memory="8000")

    async def refuse_twice(request: Request) -> Any:
        fits = extender.verbs().count(("filter", "a")) > 2
        return {"NodeNames": ["n1"] if fits else [], "FailedNodes": {} if fits else {"n1": "not yet"}}

    extender.answers["filter"] = refuse_twice
    async with scheduler():
        await bound(api, "a")
    assert [event["reason"] for event in api.objects("events")].count("FailedScheduling") == 1


@pytest.mark.parametrize(
    ("filter_", "words"),
    [
        (
            {"NodeNames": ["n1", "n9"]},
            'claims a filtered node "n9" which is not found in the input node list',
        ),
        ({"NodeNames": ["n1"], "Error": "cannot tell"}, "cannot tell"),
    ],
)
async def test_an_answer_that_breaks_the_rules_aborts_the_attempt(
    api: ApiServer,
    client: httpx.AsyncClient,
    extender: ScriptedExtender,
    scheduler: Start,
    filter_: dict[str, Any],
    words: str,
) -> None:
    await make_node(client)
    await make_pod(client, "a", memory="8000")

    async def broken(request: Request) -> Any:
        return filter_

    extender.answers["filter"] = broken
    async with scheduler(NEVER):
        assert words in await refused(api, "a")
    assert condition(api, "a")["reason"] == "SchedulerError"
    assert extender.verbs() == [("filter", "a")]


async def test_an_answer_other_than_200_has_no_body(
    api: ApiServer, client: httpx.AsyncClient, extender: ScriptedExtender, scheduler: Start
) -> None:
    await make_node(client)
    await make_pod(client, "a", memory="8000")
    extender.answers["filter"] = _code(500)
    async with scheduler(NEVER):
        message = await refused(api, "a")
    assert message == f"failed filter with extender at URL {extender.url}/filter, code 500"


async def test_a_failed_bind_gives_the_room_back_and_is_tried_again(
    api: ApiServer, client: httpx.AsyncClient, extender: ScriptedExtender, scheduler: Start
) -> None:
    await make_node(client)
    await make_pod(client, "a", memory="8000")

    async def fail_once(request: Request) -> Any:
        if extender.verbs().count(("bind", "a")) == 1:
            return {"Error": "node n1 cannot take 8000 units"}
        return await really_bind(client, request)

    extender.answers["bind"] = fail_once
    async with scheduler():
        await bound(api, "a")
        await until(lambda: len(api.objects("events")) == 2)
    messages = [event["message"] for event in api.objects("events")]
    assert sorted(messages) == ["Successfully assigned default/a to n1", "node n1 cannot take 8000 units"]


async def test_pods_wait_for_an_extender_that_is_down(
    api: ApiServer, client: httpx.AsyncClient, scheduler: Start
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    await make_node(client)
    await make_pod(client, "a", memory="8000")
    await make_pod(client, "plain")
    late = ScriptedExtender(answers={"bind": lambda request: really_bind(client, request)})
    async with scheduler(url=f"http://127.0.0.1:{port}/gpushare-scheduler"):
        assert f'Post "http://127.0.0.1:{port}' in await refused(api, "a")
        await bound(api, "plain")
        async with serve(late, port=port):
            await bound(api, "a")


async def test_an_extender_that_takes_too_long_is_given_up(
    api: ApiServer, client: httpx.AsyncClient, extender: ScriptedExtender, scheduler: Start
) -> None:
    await make_node(client)
    await make_pod(client, "a", memory="8000")
    hung = asyncio.Event()

    async def hang(request: Request) -> Any:
        await hung.wait()

    extender.answers["filter"] = hang
    async with scheduler(NEVER, timeout=0.05):
        assert "context deadline exceeded" in await refused(api, "a")
    hung.set()


async def test_the_command_schedules_until_it_is_told_to_end(
    api: ApiServer, client: httpx.AsyncClient, extender: ScriptedExtender, tmp_path: Path
) -> None:
    await make_node(client)
    await make_pod(client, "a", memory="8000", schedulerName="mine")
    process = await asyncio.create_subprocess_exec(
        Path(sysconfig.get_path("scripts")) / "gpushare-sandbox",
        "scheduler",
        f"--kubeconfig={api.kubeconfig(tmp_path / 'kubeconfig')}",
        f"--extender={extender.url}",
        "--scheduler-name=mine",
        "--no-node-cache-capable",
        stderr=asyncio.subprocess.PIPE,
    )
    assert await bound(api, "a") == "n1"
    process.terminate()
    _, log = await process.communicate()
    assert process.returncode == 0, log.decode()
    assert extender.requests[0].body["NodeNames"] is None
