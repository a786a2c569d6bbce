"""The sandbox's API server, and before it what it has not: the paths that lead to pods, and refusals."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

SERVICE = "/api/v1/namespaces/{namespace}/services/{name}/proxy/{path:.*}"
OLDER = "/gpushare-scheduler/inspect"
POD = "/api/v1/namespaces/{namespace}/pods/{name}/proxy/metrics"


@dataclass(kw_only=True)
class Front:
    """What stands before the sandbox's API server."""

    behind: str
    """URL of the API server."""
    url: str = ""
    refusal: int | None = None
    """Status with which proxied requests to services are refused."""
    metrics: dict[tuple[str, str], str] = field(default_factory=dict)
    """Metrics of device plugins by node and pod."""
    asked: list[str] = field(default_factory=list)
    """Paths so far."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Everything that is not said below is the API server's."""
        self.asked.append(request.path)
        return await self._forward(request, f"{self.behind}{request.rel_url}")

    async def service(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        if self.refusal is not None:
            return _status(self.refusal, f"services {request.match_info['name']} refused")
        return await self._forward(request, f"{self.behind}{request.rel_url}")

    async def older(self, _: web.Request) -> web.Response:
        """What an extender of another time might answer."""
        return web.json_response({"nodes": "n1 n2"})

    async def pods(self, request: web.Request) -> web.StreamResponse:
        if "labelSelector" not in request.query:
            return await self.handle(request)
        items = [
            _metadata("gpushare-system", pod) | {"spec": {"nodeName": node}, "status": {"phase": "Running"}}
            for node, pod in self.metrics
        ]
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})

    async def plugin(self, request: web.Request) -> web.StreamResponse:
        name, _, port = request.match_info["name"].partition(":")
        text = next((text for (_, pod), text in self.metrics.items() if pod == name), "")
        return web.Response(text=text) if port == "9449" and text else _status(503, "no answer from the pod")

    async def _forward(self, request: web.Request, url: str) -> web.StreamResponse:
        who = {"User-Agent": request.headers.get("User-Agent", "")}
        async with (
            aiohttp.ClientSession(headers=who) as session,
            session.request(request.method, url, data=await request.read()) as answer,
        ):
            return web.Response(
                body=await answer.read(), status=answer.status, content_type=answer.content_type
            )


@contextlib.asynccontextmanager
async def serving(behind: str) -> AsyncIterator[Front]:
    """Serve on a free port before the API server at this URL."""
    front = Front(behind=behind)
    app = web.Application()
    app.router.add_route("GET", SERVICE, front.service)
    app.router.add_route("GET", POD, front.plugin)
    app.router.add_route("GET", OLDER, front.older)
    app.router.add_route("GET", "/api/v1/pods", front.pods)
    app.router.add_route("*", "/{path:.*}", front.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    front.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield front
    finally:
        await runner.cleanup()


def _metadata(namespace: str, name: str) -> dict[str, object]:
    return {"metadata": {"namespace": namespace, "name": name, "resourceVersion": "1"}}


def _status(code: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "status": "Failure", "message": message}, status=code)
