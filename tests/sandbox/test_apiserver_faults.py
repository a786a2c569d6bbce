"""Ordered faults strike whom they name, as often as they say, and leave the rest alone."""

import asyncio
import time
from typing import Any

import httpx
import pytest

from sandbox.apiserver import ApiServer, Rule
from tests.sandbox.calls import NODES, PODS, bind, create, pod, watch

FAULTS = "/_sandbox/faults"


async def exists(client: httpx.AsyncClient, path: str) -> bool:
    return (await client.get(path)).status_code == 200


@pytest.mark.parametrize(("when", "applied"), [("before", False), ("after", True)])
async def test_a_dropped_connection_leaves_the_write_undone_or_done(
    api: ApiServer,
    client: httpx.AsyncClient,
    when: Any,
    applied: bool,  # noqa: FBT001 - a parameter of the table
) -> None:
    api.faults.add(Rule(action="drop", when=when, method="POST", path="/pods$", count=1))
    with pytest.raises(httpx.RemoteProtocolError):
        await client.post(PODS, json=pod())
    assert await exists(client, f"{PODS}/p") is applied
    assert (await client.post(PODS, json=pod())).status_code == (409 if applied else 201)


@pytest.mark.parametrize(("when", "applied"), [("before", False), ("after", True)])
@pytest.mark.parametrize("status", [409, 429, 500])
async def test_an_ordered_refusal_leaves_the_write_undone_or_done(
    api: ApiServer,
    client: httpx.AsyncClient,
    when: Any,
    applied: bool,  # noqa: FBT001
    status: int,
) -> None:
    retry_after = 7 if status == 429 else None
    await create(client, PODS, pod())
    api.faults.add(
        Rule(action="answer", when=when, path="/binding$", status=status, retry_after=retry_after, count=1)
    )
    refused = await bind(client, "p")
    assert (refused.status_code, refused.json()["kind"], refused.json()["code"]) == (status, "Status", status)
    assert refused.headers.get("Retry-After") == ("7" if status == 429 else None)
    found = (await client.get(f"{PODS}/p")).json()["spec"].get("nodeName")
    assert found == ("n1" if applied else None)
    assert (await bind(client, "p")).status_code == (409 if applied else 201)


async def test_a_held_request_waits_until_its_rule_is_removed(
    api: ApiServer, client: httpx.AsyncClient
) -> None:
    await create(client, PODS, pod())
    fault = api.faults.add(Rule(action="hold", path="/binding$"))
    held = asyncio.create_task(bind(client, "p"))
    await fault.struck()
    assert "nodeName" not in (await client.get(f"{PODS}/p")).json()["spec"]
    assert not held.done()
    api.faults.remove(fault.number)
    assert (await held).status_code == 201


async def test_an_answer_can_be_held_after_the_write(api: ApiServer, client: httpx.AsyncClient) -> None:
    await create(client, PODS, pod())
    fault = api.faults.add(Rule(action="hold", when="after", path="/binding$"))
    held = asyncio.create_task(bind(client, "p"))
    await fault.struck()
    assert (await client.get(f"{PODS}/p")).json()["spec"]["nodeName"] == "n1"
    assert not held.done()
    api.faults.clear()
    assert (await held).status_code == 201


async def test_a_delay_delays(api: ApiServer, client: httpx.AsyncClient) -> None:
    api.faults.add(Rule(action="delay", seconds=0.1, path="/nodes", count=1))
    started = time.monotonic()
    assert (await client.get(NODES)).status_code == 200
    assert time.monotonic() - started >= 0.1


async def test_a_rule_is_for_the_client_the_method_and_the_path_it_names(
    api: ApiServer, client: httpx.AsyncClient
) -> None:
    api.faults.add(Rule(action="answer", status=500, client="victim", method="GET", path="/nodes"))
    by_header, by_agent = {"X-Sandbox-Client": "victim"}, {"User-Agent": "the-victim/1.0"}
    assert (await client.get(NODES, headers=by_header)).status_code == 500
    assert (await client.get(NODES, headers=by_agent)).status_code == 500
    assert (await client.get(NODES)).status_code == 200
    assert (await client.get(PODS, headers=by_header)).status_code == 200
    node = {"metadata": {"name": "n"}}
    assert (await client.post(NODES, json=node, headers=by_header)).status_code == 201


async def test_a_rule_wears_out(api: ApiServer, client: httpx.AsyncClient) -> None:
    fault = api.faults.add(Rule(action="answer", status=503, count=2))
    assert [(await client.get(NODES)).status_code for _ in range(3)] == [503, 503, 200]
    assert fault.hits == 2


async def test_cut_watches_break_off_and_new_ones_are_served(
    api: ApiServer, client: httpx.AsyncClient
) -> None:
    async with (
        watch(client, PODS, client_name="victim") as cut,
        watch(client, PODS, client_name="other") as spared,
    ):
        assert api.faults.cut_watches(client="victim") == 1
        with pytest.raises(httpx.RemoteProtocolError):
            await cut.next()
        await create(client, PODS, pod())
        assert await spared.names(1) == [("ADDED", "p")]
    async with watch(client, PODS):
        assert api.faults.cut_watches(client="httpx") == 1  # by its User-Agent
    async with watch(client, PODS, client_name="victim") as again:
        assert await again.names(1) == [("ADDED", "p")]


async def test_a_frozen_watch_stays_open_and_silent_and_catches_up_when_thawed(
    api: ApiServer, client: httpx.AsyncClient
) -> None:
    async with (
        watch(client, PODS, client_name="victim", timeoutSeconds=60) as frozen,
        watch(client, PODS, client_name="other") as running,
    ):
        freeze = api.faults.add(Rule(action="freeze", client="victim"))
        await create(client, PODS, pod("a"))
        await client.delete(f"{PODS}/a")
        assert await running.names(3) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
        waiting = asyncio.create_task(frozen.names(3))
        await create(client, PODS, pod("b"))
        assert await running.names(1) == [("ADDED", "b")]
        assert not waiting.done()
        api.faults.remove(freeze.number)
        assert await waiting == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


async def test_a_watch_frozen_beyond_the_history_ends(api: ApiServer, client: httpx.AsyncClient) -> None:
    async with watch(client, PODS, client_name="victim") as frozen:
        freeze = api.faults.add(Rule(action="freeze", client="victim"))
        await create(client, PODS, pod())
        api.faults.expire_history()
        api.faults.remove(freeze.number)
        assert await frozen.rest() == []


async def test_expired_history_is_410_for_the_next_watch_but_open_ones_go_on(
    api: ApiServer, client: httpx.AsyncClient
) -> None:
    version = (await create(client, PODS, pod("a")))["metadata"]["resourceVersion"]
    async with watch(client, PODS) as running:
        await create(client, PODS, pod("b"))
        await running.names(2)
        api.faults.expire_history()
        async with watch(client, PODS, resourceVersion=version) as late:
            [(kind, status)] = await late.rest()
            assert (kind, status["code"]) == ("ERROR", 410)
        await create(client, PODS, pod("c"))
        assert await running.names(1) == [("ADDED", "c")]


async def test_faults_can_be_ordered_over_http(api: ApiServer, client: httpx.AsyncClient) -> None:
    order = {"action": "answer", "status": 429, "retryAfter": 3, "path": "/nodes", "count": 1}
    ordered = await client.post(FAULTS, json=order)
    assert ordered.status_code == 201
    refused = await client.get(NODES)
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "3")
    [shown] = (await client.get(FAULTS)).json()
    assert (shown["hits"], shown["rule"]["retryAfter"]) == (1, 3)
    await client.post(FAULTS, json={"action": "drop"})
    assert (await client.delete(f"{FAULTS}/{shown['number']}")).status_code == 200
    assert len((await client.get(FAULTS)).json()) == 1
    assert (await client.delete(FAULTS)).status_code == 200
    assert (await client.get(NODES)).status_code == 200
    async with watch(client, PODS, client_name="w") as events:
        assert (await client.post(FAULTS, json={"action": "cut-watches", "client": "w"})).json() == {"cut": 1}
        with pytest.raises(httpx.RemoteProtocolError):
            await events.next()
    assert (await client.post(FAULTS, json={"action": "expire-history"})).status_code == 200
    event = (await client.get(PODS, params={"watch": "1", "resourceVersion": "1"})).json()
    assert event["object"]["code"] == 410


@pytest.mark.parametrize(
    "order",
    [
        {},
        [],
        {"action": "explode"},
        {"action": "drop", "path": "("},
        {"action": "drop", "typo": 1},
        {"action": "drop", "count": 0},
        {"action": "answer", "status": 200},
    ],
)
async def test_an_order_that_makes_no_sense_is_400(client: httpx.AsyncClient, order: Any) -> None:
    assert (await client.post(FAULTS, json=order)).status_code == 400
    assert (await client.get(FAULTS)).json() == []


async def test_the_controls_answer_404_and_405(client: httpx.AsyncClient) -> None:
    assert (await client.delete(f"{FAULTS}/9")).status_code == 404
    assert (await client.get("/_sandbox/nothing")).status_code == 404
    assert (await client.put(FAULTS, json={})).status_code == 405


async def test_stop_ends_watches_and_held_requests_at_once(client: httpx.AsyncClient, api: ApiServer) -> None:
    fault = api.faults.add(Rule(action="hold", path="/nodes"))
    async with watch(client, PODS) as events:
        held = asyncio.create_task(client.get(NODES))
        await fault.struck()
        started = time.monotonic()
        await api.stop()
        assert await events.rest() == []
        assert (await held).status_code == 200
        assert time.monotonic() - started < 1
