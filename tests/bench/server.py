"""The process under test: the extender as it ships, plus a route that echoes what it is sent.

usage: python -m tests.bench.server KUBECONFIG
Prints its port when both watches have synced.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import uvloop
from fastapi import Request, Response

from extender.app import create_app
from extender.core import Extender
from extender.listeners import http_server
from gpushare.names import Names
from gpushare.placement import Policy
from kubeapi import logs
from kubeapi.client import KubeApi
from kubeapi.listen import open_socket


async def main(kubeconfig: Path) -> None:
    listener = open_socket("127.0.0.1:0")
    async with await KubeApi.connect(kubeconfig, user_agent="bench") as api:
        extender = Extender(api, names=Names.of(), unit="MiB", policy=Policy.BINPACK)
        app = create_app(extender)

        @app.post("/echo")
        async def echo(request: Request) -> Response:
            return Response(await request.body(), media_type="application/json")

        async with extender.running():
            await extender.synced()
            server = http_server(app)
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.stop)
            print(listener.getsockname()[1], flush=True)
            await server.serve(sockets=[listener])


if __name__ == "__main__":
    logs.configure("info")
    uvloop.run(main(Path(sys.argv[1])))
