"""An API server with more to it than the sandbox's: in front of that one, it answers for what that one lacks.

Kinds that only the doctor reads, the proxy to pods and Services, and missing rights. All else is passed on.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

Object = Mapping[str, Any]


class Front:
    """Ask `front.kubeconfig(folder)`'s API server; change what it says at any time."""

    def __init__(self, behind: str) -> None:
        self._behind = behind
        self._http: aiohttp.ClientSession | None = None
        self.url = ""
        self.lists: dict[str, Sequence[Object]] = {}
        """Collections by path."""
        self.objects: dict[str, Object] = {}
        """Single objects by path."""
        self.view: str | None = None
        """URL of the extender that the proxy leads to; `None` where nobody answers."""
        self.forbidden: list[tuple[str, str]] = []
        """Method and part of a path that the user has no right to."""
        self.asked: set[tuple[str, str]] = set()
        """Method and path of every request."""

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Front]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app)
        await runner.setup()
        async with aiohttp.ClientSession() as self._http:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            host, port = runner.addresses[0][:2]
            self.url = f"http://{host}:{port}"
            try:
                yield self
            finally:
                await runner.cleanup()

    def kubeconfig(self, folder: Path) -> Path:
        path = folder / "front.kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "front", "cluster": {"server": self.url}}],
            "users": [{"name": "me", "user": {}}],
            "contexts": [{"name": "front", "context": {"cluster": "front", "user": "me"}}],
            "current-context": "front",
        }
        path.write_text(yaml.safe_dump(config))
        return path

    async def _answer(self, request: web.Request) -> web.Response:
        path = request.path
        self.asked.add((request.method, path))
        for method, part in self.forbidden:
            if request.method == method and part in path:
                verb = "create" if method == "POST" else "get"
                return _status(
                    403, f'User "me" cannot {verb} resource "{part.split("/")[-1]}" in API group ""'
                )
        _, proxied, rest = path.partition("/proxy/")
        if proxied:
            if self.view is None:
                return _status(503, "error trying to reach service: dial tcp: connect: connection refused")
            return await self._pass_on(request, f"{self.view}/{rest}")
        if path in self.lists:
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": self.lists[path]})
        if path in self.objects:
            return web.json_response(self.objects[path])
        return await self._pass_on(request, self._behind + request.path_qs)

    async def _pass_on(self, request: web.Request, url: str) -> web.Response:
        assert self._http is not None
        headers = {"Content-Type": request.headers.get("Content-Type", "application/json")}
        async with self._http.request(
            request.method, url, data=await request.read(), headers=headers
        ) as answer:
            kind = answer.headers.get("Content-Type", "").partition(";")[0]
            return web.Response(status=answer.status, body=await answer.read(), content_type=kind)


def _status(code: int, message: str) -> web.Response:
    reasons = {403: "Forbidden", 503: "ServiceUnavailable"}
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}
    text = '{"kind":"Status",' + web.json_response(body | {"reason": reasons[code]}).text[1:]  # type: ignore[index]
    return web.Response(status=code, text=text, content_type="application/json")
