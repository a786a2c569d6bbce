"""An API server that answers exactly what a test wrote down, one answer a request, over real HTTP.

When the script is at its end, requests wait: a watch that is open and silent, or a server that hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.waiting import until

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request, as it arrived."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


@dataclass(kw_only=True)
class Script:
    """What is answered next, and what was asked so far."""

    url: str
    answers: deque[Answer] = field(default_factory=deque)
    asked: list[Asked] = field(default_factory=list)
    open: int = 0
    """Requests that are being answered, or that wait."""

    def then(self, *answers: Answer) -> None:
        self.answers.extend(answers)

    async def asked_for(self, count: int) -> Asked:
        """Wait for the request of this number, the first being 1."""
        await until(lambda: len(self.asked) >= count, what=f"request {count}")
        return self.asked[count - 1]

    def kubeconfig(self, folder: Path, *, token: str = "secret") -> Path:
        return kubeconfig(folder / "kubeconfig", server=self.url, token=token)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(
            Asked(
                method=request.method,
                path=request.path,
                query=dict(request.query),
                headers=dict(request.headers),
                body=await request.read(),
            )
        )
        self.open += 1
        try:
            if not self.answers:
                await asyncio.Event().wait()
            return await self.answers.popleft()(request)
        finally:
            self.open -= 1


@contextlib.asynccontextmanager
async def scripted(
    *answers: Answer, port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Script]:
    """Serve this script; more can be added while it is served."""
    script = Script(url="", answers=deque(answers))
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", script.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.2)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls)
    await site.start()
    script.url = f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield script
    finally:
        await runner.cleanup()


def kubeconfig(path: Path, **cluster: str) -> Path:
    """Write a kubeconfig for `server`, with `token` if one is given."""
    token = cluster.pop("token", None)
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": {"token": token} if token else {}}],
            }
        )
    )
    return path


def answer(body: Any = None, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """A whole body; bytes as they are, anything else as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def respond(_: web.Request) -> web.StreamResponse:
        return web.Response(body=data, status=status, headers=headers, content_type="application/json")

    return respond


def refuse(
    status: int, *, reason: str = "", message: str = "", headers: Mapping[str, str] | None = None
) -> Answer:
    """A refusal as Kubernetes makes it."""
    body = {"kind": "Status", "status": "Failure", "code": status, "reason": reason, "message": message}
    return answer(body, status=status, headers=headers)


def cut(*, after: bytes = b"") -> Answer:
    """The connection breaks, without an answer or after some bytes of one."""

    async def respond(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        if after:
            await response.prepare(request)
            await response.write(after)
        assert request.transport is not None
        request.transport.abort()
        return response

    return respond


def pod(name: str, *, version: int | str, uid: str = "") -> dict[str, Any]:
    """A pod with nothing but its metadata."""
    return {"metadata": {"name": name, "uid": uid or name, "resourceVersion": str(version)}}


def page(*names: str, version: int | str, more: str = "") -> Answer:
    """A page of a list of pods; `more` is the token of the next page."""
    metadata = {"resourceVersion": str(version)} | ({"continue": more} if more else {})
    return answer({"metadata": metadata, "items": [pod(name, version=1) for name in names] or None})


def event(kind: str, name: str, *, version: int | str) -> bytes:
    """A line of a watch."""
    return json.dumps({"type": kind, "object": pod(name, version=version)}).encode() + b"\n"


EXPIRED = (
    b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired",'
    b'"message":"too old resource version: 1 (9)"}}\n'
)


def watch(*chunks: bytes, held: bool = False, broken: bool = False) -> Answer:
    """A watch that sends these chunks and ends; or stays open (`held`), or breaks off (`broken`)."""

    async def respond(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if held:
            await asyncio.Event().wait()
        if broken:
            assert request.transport is not None
            request.transport.abort()
        return response

    return respond
