"""The process under test: the extender as it ships with its page, plus a route that echoes what it is sent.

usage: python -m tests.bench.server KUBECONFIG
Prints its port when both watches have synced. `GET /api-seconds` answers how long it has waited for the API
server on behalf of binds.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from pathlib import Path
from typing import Any

import uvloop
from fastapi import Request, Response

from extender.app import ALL_ROUTES, create_app
from extender.core import Extender
from extender.listeners import http_server
from extender.server import spare_the_first_list
from extender.ui.page import ui_routes
from gpushare.names import Names
from gpushare.placement import Policy
from kubeapi import client, logs
from kubeapi.client import KubeApi
from kubeapi.listen import open_socket


class TimedApi(KubeApi):
    """Adds up the seconds of every request about one pod, and of every list of a node's pods."""

    seconds = 0.0

    async def request(self, method: str, path: str, **options: Any) -> client.Response:
        begun = time.perf_counter()
        try:
            return await super().request(method, path, **options)
        finally:
            if "/pods/" in path or "spec.nodeName=" in str(options.get("query")):
                self.seconds += time.perf_counter() - begun


async def main(kubeconfig: Path) -> None:
    listener = open_socket("127.0.0.1:0")
    async with await TimedApi.connect(kubeconfig, user_agent="bench") as api:
        assert isinstance(api, TimedApi)
        extender = Extender(api, names=Names.of(), unit="MiB", policy=Policy.BINPACK)
        app = create_app(extender, *ALL_ROUTES, ui_routes)

        @app.post("/echo")
        async def echo(request: Request) -> Response:
            return Response(await request.body(), media_type="application/json")

        @app.get("/api-seconds")
        async def api_seconds() -> float:
            return api.seconds

        async with extender.running():
            await spare_the_first_list(extender)
            server = http_server(app)
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.stop)
            print(listener.getsockname()[1], flush=True)
            await server.serve(sockets=[listener])


if __name__ == "__main__":
    logs.configure("info")
    uvloop.run(main(Path(sys.argv[1])))
