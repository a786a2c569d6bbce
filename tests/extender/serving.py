"""The whole program in this process: every address, certificate and file, without the time to start one."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Any

import httpx

from extender.server import run
from extender.settings import ExtenderSettings
from kubeapi.settings import read
from tests.extender.cluster import Cluster
from tests.waiting import DEADLINE


def free_address() -> str:
    """A loopback address with a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


class Served:
    """A running program."""

    def __init__(self, *, task: asyncio.Task[None], signalled: asyncio.Event) -> None:
        self.task = task
        self.signalled = signalled

    async def end(self) -> None:
        """As SIGTERM does; returns when the program has ended."""
        self.signalled.set()
        await asyncio.wait_for(self.task, DEADLINE)


def told(cluster: Cluster, *argv: str) -> ExtenderSettings:
    """Settings as the program reads them, now."""
    return read(
        ExtenderSettings, program="gpushare-extender", argv=[f"--kubeconfig={cluster.kubeconfig}", *argv]
    )


@contextlib.asynccontextmanager
async def served(cluster: Cluster, *argv: str) -> AsyncIterator[Served]:
    """Run the program with these flags until the context ends, from when its addresses answer."""
    signalled = asyncio.Event()
    settings = told(cluster, *argv)
    task = asyncio.create_task(
        run(settings, reread=lambda: told(cluster, *argv), signalled=signalled, every=0.02)
    )
    program = Served(task=task, signalled=signalled)
    try:
        for address in (settings.listen, settings.admission_listen, settings.view_listen):
            if address:
                await _listening(address, task)
        yield program
    finally:
        if not task.done():
            await program.end()


async def _listening(address: str, task: asyncio.Task[None]) -> None:
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                _, writer = await asyncio.open_connection(host, int(port))
            except OSError:
                if task.done():
                    task.result()
                await asyncio.sleep(0.01)
                continue
            writer.close()
            return


async def ask(
    method: str, url: str, *, tls: ssl.SSLContext | None = None, body: Any = None
) -> httpx.Response:
    """One request on a connection of its own."""
    async with httpx.AsyncClient(verify=tls or False, timeout=10) as http:
        return await http.request(method, url, json=body)
