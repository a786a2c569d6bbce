"""The way through the API server to what stands behind a Service."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from aiohttp import web

from sandbox.apiserver import ApiServer, Rule
from tests.sandbox.calls import create
from tests.waiting import until

SERVICES = "/api/v1/namespaces/default/services"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"


@dataclass(kw_only=True)
class Backend:
    """A server that says what it was asked, and one endless page."""

    port: int = 0
    more: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def echo(self, request: web.Request) -> web.Response:
        said = {
            "method": request.method,
            "url": request.raw_path,
            "accept": request.headers.get("Accept"),
            "authorization": request.headers.get("Authorization"),
            "body": await request.text(),
        }
        return web.json_response(said, status=418, headers={"X-Said": "yes"})

    async def endless(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        await answer.write(b"first\n")
        try:
            await self.more.wait()
            await answer.write(b"second\n")
            await asyncio.Event().wait()
        finally:
            self.left.set()
        return answer


@pytest.fixture
async def backend() -> AsyncIterator[Backend]:
    async with serving(Backend()) as backend:
        yield backend


@contextlib.asynccontextmanager
async def serving(backend: Backend) -> AsyncIterator[Backend]:
    app = web.Application()
    app.router.add_get("/endless", backend.endless)
    app.router.add_route("*", "/{path:.*}", backend.echo)
    runner = web.AppRunner(app, shutdown_timeout=0.2, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    backend.port = runner.addresses[0][1]
    try:
        yield backend
    finally:
        await runner.cleanup()


async def publish(client: httpx.AsyncClient, *, port: int | None) -> None:
    """A Service `web` with the port `view`, and its endpoint where there is one."""
    ports = [{"name": "other", "port": 1}, {"name": "view", "port": 80}]
    await create(client, SERVICES, {"metadata": {"name": "web"}, "spec": {"ports": ports}})
    if port is not None:
        labels = {"kubernetes.io/service-name": "web"}
        endpoints: list[dict[str, Any]] = [{"addresses": ["127.0.0.1"]}]
        await create(
            client,
            SLICES,
            {
                "metadata": {"name": "web-1", "labels": labels},
                "addressType": "IPv4",
                "endpoints": endpoints,
                "ports": [{"name": "other", "port": 1}, {"name": "view", "port": port}],
            },
        )


@pytest.mark.parametrize("port", ["view", "80"])
async def test_a_request_reaches_what_is_behind_a_service(
    client: httpx.AsyncClient, backend: Backend, port: str
) -> None:
    await publish(client, port=backend.port)
    answer = await client.post(
        f"{SERVICES}/web:{port}/proxy/a%2Fb/?c=d%20e",
        content=b"text",
        headers={"Accept": "text/plain", "Authorization": "Bearer secret"},
    )
    assert answer.status_code == 418, "an answer of any status is the backend's own"
    assert answer.headers["X-Said"] == "yes"
    assert answer.json() == {
        "method": "POST",
        "url": "/a%2Fb/?c=d%20e",
        "accept": "text/plain",
        "authorization": None,
        "body": "text",
    }
    assert (await client.get(f"{SERVICES}/web:{port}/proxy")).json()["url"] == "/"
    assert (await client.get(f"{SERVICES}/web:{port}/proxy/proxy/x")).json()["url"] == "/proxy/x"


async def test_an_answer_is_passed_on_as_it_comes_and_ends_when_its_reader_leaves(
    client: httpx.AsyncClient, backend: Backend
) -> None:
    await publish(client, port=backend.port)
    async with client.stream("GET", f"{SERVICES}/web:view/proxy/endless") as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        lines = answer.aiter_lines()
        assert await anext(lines) == "first"
        backend.more.set()
        assert await anext(lines) == "second"
    await asyncio.wait_for(backend.left.wait(), 10)


async def test_stopping_the_server_ends_what_it_passes_on(backend: Backend) -> None:
    async with ApiServer() as api, httpx.AsyncClient(base_url=api.url, verify=False) as client:
        await publish(client, port=backend.port)
        async with client.stream("GET", f"{SERVICES}/web:view/proxy/endless") as answer:
            assert await anext(answer.aiter_lines()) == "first"
            await api.stop()
    await until(backend.left.is_set, what="the backend is rid of its reader")


@pytest.mark.parametrize(
    ("path", "code", "said"),
    [
        ("nothing:view", 404, 'services "nothing" not found'),
        ("web:7", 503, 'no service port 7 found for service "web"'),
        ("web:none", 503, 'no endpoints available for service "web"'),
        ("web", 503, 'no endpoints available for service "web"'),
        ("web:view", 503, 'no endpoints available for service "web"'),
    ],
)
async def test_what_leads_nowhere_is_told_in_kubernetes_words(
    client: httpx.AsyncClient, path: str, code: int, said: str
) -> None:
    await publish(client, port=None)
    answer = await client.get(f"{SERVICES}/{path}/proxy/x")
    assert (answer.status_code, answer.json()["message"]) == (code, said)


async def test_a_backend_that_does_not_listen_is_503(client: httpx.AsyncClient, unused_tcp_port: int) -> None:
    await publish(client, port=unused_tcp_port)
    answer = await client.get(f"{SERVICES}/web:view/proxy/x")
    assert answer.status_code == 503
    assert answer.json()["message"].startswith("error trying to reach service: ")


async def test_faults_strike_on_the_way(client: httpx.AsyncClient, api: ApiServer, backend: Backend) -> None:
    await publish(client, port=backend.port)
    api.faults.add(Rule(action="answer", path="/proxy/", status=403))
    assert (await client.get(f"{SERVICES}/web:view/proxy/x")).status_code == 403
