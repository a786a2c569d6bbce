"""The plugin's HTTP side: `/metrics`, `/healthz` and `/readyz`. It only reads."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

from aiohttp import web

from deviceplugin.metrics import CONTENT_TYPE


@contextlib.asynccontextmanager
async def serving(
    listener: socket.socket,
    *,
    metrics: Callable[[], Awaitable[bytes]],
    problems: Callable[[], Iterable[str]],
) -> AsyncIterator[None]:
    """Serve on a socket while the context is open; `problems` say why the plugin is not ready."""

    async def show_metrics(request: web.Request) -> web.Response:
        return web.Response(body=await metrics(), headers={"Content-Type": CONTENT_TYPE})

    async def health(request: web.Request) -> web.Response:
        return web.Response(text="ok\n")  # that this is answered is the answer

    async def ready(request: web.Request) -> web.Response:
        found = tuple(problems())
        text = "".join(f"{problem}\n" for problem in found) or "ok\n"
        return web.Response(text=text, status=503 if found else 200)

    app = web.Application()
    app.router.add_get("/metrics", show_metrics)
    app.router.add_get("/healthz", health)
    app.router.add_get("/readyz", ready)
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.5)
    await runner.setup()
    try:
        await web.SockSite(runner, listener).start()
        yield
    finally:
        await runner.cleanup()
