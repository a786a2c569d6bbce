"""The HTTP server process: one socket, one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Generator

import uvicorn
from fastapi import FastAPI

from extender.app import create_app
from extender.core import Extender
from extender.settings import ExtenderSettings, split_address
from gpushare.errors import GpuShareError
from gpushare.placement import Policy
from kubeapi.client import KubeApi

log = logging.getLogger(__name__)

KEEP_ALIVE = 100
"""Seconds an idle connection is kept. kube-scheduler keeps its own for 90 s (Go's default transport) and
gets an EOF on one that we closed first."""


class ListenError(GpuShareError):
    """The address to listen on cannot be had."""


def open_socket(address: str) -> socket.socket:
    """Bind `HOST:PORT`; raises `ListenError` naming it."""
    host, port = split_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named: asyncio sets TCP_NODELAY on accepted connections only where it is, and without
    # it every answer waits 40 ms for the peer's delayed acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise ListenError(f"cannot listen on {address}: {error.strerror or error}") from error
    return listener


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handling, which ends the process by the signal instead of with code 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    def stop(self) -> None:
        """Accept nothing new; `serve` returns once the requests in hand are answered."""
        self.should_exit = True


def http_server(app: FastAPI) -> HttpServer:
    """The server, configured for kube-scheduler's connections."""
    return HttpServer(
        uvicorn.Config(
            app,
            loop="uvloop",
            http="httptools",
            lifespan="off",
            timeout_keep_alive=KEEP_ALIVE,
            access_log=False,
            log_config=None,
        )
    )


async def serve(settings: ExtenderSettings) -> None:
    """Run until SIGTERM or SIGINT; raises `GpuShareError` when it cannot start."""
    listener = open_socket(settings.listen)
    path = settings.kubeconfig
    async with await KubeApi.connect(path, user_agent="gpushare-extender") as api:
        extender = Extender(api, names=settings.names, unit=settings.unit, policy=Policy(settings.policy))
        async with extender.running():
            host, port = listener.getsockname()[:2]
            log.info("serving address=%s:%d api=%s policy=%s", host, port, api.host, settings.policy)
            server = http_server(create_app(extender))
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, server.stop)
            await server.serve(sockets=[listener])
