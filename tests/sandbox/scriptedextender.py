"""An extender for tests: it keeps what it was sent and answers what the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass(kw_only=True)
class Request:
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def verb(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def pod(self) -> str:
        return str(self.body["Pod"]["metadata"]["name"] if "Pod" in self.body else self.body["PodName"])


@dataclass(kw_only=True)
class ScriptedExtender:
    """Passes every node, scores them 0 and binds nothing, unless a test replaces a verb."""

    answers: dict[str, Callable[[Request], Awaitable[Any]]] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    url: str = ""
    in_progress: int = 0
    most_filters_at_once: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def verbs(self) -> list[tuple[str, str]]:
        """(verb, pod) of every request so far."""
        return [(request.verb, request.pod) for request in self.requests]

    async def until(self, *expected: tuple[str, str]) -> None:
        """Wait until all of these (verb, pod) have arrived, as often as they are named."""
        async with asyncio.timeout(10):
            while any(self.verbs().count(call) < expected.count(call) for call in expected):
                self._changed.clear()
                await self._changed.wait()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        arrived = Request(path=request.path, headers=dict(request.headers), body=await request.json())
        self.requests.append(arrived)
        self._changed.set()
        if arrived.verb == "filter":
            self.in_progress += 1
            self.most_filters_at_once = max(self.most_filters_at_once, self.in_progress)
        try:
            answer = await self.answers.get(arrived.verb, _default)(arrived)
        finally:
            if arrived.verb == "filter":
                self.in_progress -= 1
        return answer if isinstance(answer, web.StreamResponse) else web.json_response(answer)


async def _default(request: Request) -> Any:
    if request.verb == "filter":
        return {"NodeNames": request.body["NodeNames"], "Nodes": request.body["Nodes"], "Error": ""}
    if request.verb == "prioritize":
        return [{"Host": name, "Score": 0} for name in request.body["NodeNames"] or ()]
    return {"Error": ""}


@asynccontextmanager
async def serve(extender: ScriptedExtender, *, port: int = 0) -> AsyncIterator[ScriptedExtender]:
    """Serve it until the context ends."""
    app = web.Application()
    app.router.add_post("/gpushare-scheduler/{verb}", extender.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    extender.url = f"http://127.0.0.1:{runner.addresses[0][1]}/gpushare-scheduler"
    try:
        yield extender
    finally:
        await runner.cleanup()
