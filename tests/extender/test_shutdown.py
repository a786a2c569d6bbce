"""SIGTERM: not ready at once, everything in hand ends, the lease is free, exit code 0."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from sandbox.apiserver import Rule
from tests.extender.cluster import PREFIX, Cluster
from tests.extender.serving import ask, free_address, served
from tests.waiting import until

COMMAND = Path(sys.executable).parent / "gpushare-extender"


class Program:
    """The command as a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, *, address: str) -> None:
        self.process = process
        self.url = f"http://{address}"

    async def ready(self) -> None:
        async with asyncio.timeout(20):
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if (await ask("GET", f"{self.url}/readyz")).status_code == 200:
                        return
                await asyncio.sleep(0.02)

    async def ended(self) -> int:
        return await asyncio.wait_for(self.process.wait(), 10)


@contextlib.asynccontextmanager
async def program(cluster: Cluster, *argv: str) -> AsyncIterator[Program]:
    address = free_address()
    process = await asyncio.create_subprocess_exec(
        COMMAND, "--kubeconfig", cluster.kubeconfig, "--listen", address, *argv,
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    started = Program(process, address=address)
    try:
        await started.ready()
        yield started
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_sigterm_is_not_ready_at_once_answers_on_and_ends_with_0(cluster: Cluster) -> None:
    async with program(cluster, "--shutdown-grace", "60", "--leader-elect") as extender:
        extender.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(5):
            while (answer := await ask("GET", f"{extender.url}/readyz")).status_code == 200:
                pass
        assert (answer.status_code, answer.text) == (503, "shutting down")
        assert (await ask("GET", f"{extender.url}/healthz")).text == "ok"
        body = {"Pod": {"metadata": {"name": "a"}}, "NodeNames": ["n1"]}
        filtered = await ask("POST", f"{extender.url}{PREFIX}/filter", body=body)
        assert filtered.json()["NodeNames"] == ["n1"]
        extender.process.send_signal(signal.SIGTERM)  # the second one ends it, grace or not
        assert await extender.ended() == 128 + signal.SIGTERM


async def test_a_bind_in_flight_ends_then_the_lease_is_released_and_the_code_is_0(cluster: Cluster) -> None:
    await cluster.node("n1", cards=[8192])
    pod = await cluster.pod("a", 1000)
    args = {"PodName": "a", "PodNamespace": "default", "PodUID": pod["metadata"]["uid"], "Node": "n1"}
    held = cluster.faults.add(Rule(action="hold", method="POST", path="/binding"))
    async with program(cluster, "--leader-elect") as extender:
        bind = asyncio.create_task(ask("POST", f"{extender.url}{PREFIX}/bind", body=args))
        await asyncio.wait_for(held.struck(), 10)
        extender.process.send_signal(signal.SIGTERM)
        await refused(extender.url)
        (lease,) = cluster.api.objects("leases")
        assert lease["spec"]["holderIdentity"]
        cluster.faults.remove(held.number)
        assert (await bind).json() == {"Error": ""}
        assert await extender.ended() == 0
    assert (await cluster.live("a"))["spec"]["nodeName"] == "n1"
    (lease,) = cluster.api.objects("leases")
    assert lease["spec"]["holderIdentity"] == ""


async def refused(url: str) -> None:
    """Wait until nobody listens any more."""
    async with asyncio.timeout(10):
        while True:
            try:
                await ask("GET", f"{url}/healthz")
            except httpx.ConnectError:
                return
            except httpx.TransportError:
                continue  # it was about to be accepted


async def test_a_bind_whose_caller_has_gone_ends_too(cluster: Cluster) -> None:
    await cluster.node("n1", cards=[8192])
    pod = await cluster.pod("a", 1000)
    args = {"PodName": "a", "PodNamespace": "default", "PodUID": pod["metadata"]["uid"], "Node": "n1"}
    address = free_address()
    async with served(cluster, "--listen", address) as extender:
        async with asyncio.timeout(10):
            while (await ask("GET", f"http://{address}/readyz")).status_code != 200:
                pass
        held = cluster.faults.add(Rule(action="hold", method="POST", path="/binding"))
        bind = asyncio.create_task(ask("POST", f"http://{address}{PREFIX}/bind", body=args))
        await asyncio.wait_for(held.struck(), 10)
        bind.cancel()
        ending = asyncio.create_task(extender.end())
        await refused(f"http://{address}")
        assert not ending.done()
        cluster.faults.remove(held.number)
        await ending
    assert (await cluster.live("a"))["spec"]["nodeName"] == "n1"


async def test_a_lease_is_kept_while_a_write_may_still_land(cluster: Cluster) -> None:
    await cluster.node("n1", cards=[8192])
    pod = await cluster.pod("a", 1000)
    args = {"PodName": "a", "PodNamespace": "default", "PodUID": pod["metadata"]["uid"], "Node": "n1"}
    address = free_address()
    async with served(cluster, "--listen", address, "--leader-elect") as extender:
        async with asyncio.timeout(10):
            while (await ask("GET", f"http://{address}/readyz")).status_code != 200:
                pass
        cluster.faults.add(Rule(action="hold", method="POST", path="/binding"))
        answer = await ask("POST", f"http://{address}{PREFIX}/bind", body=args)
        assert "outcome unknown" in answer.json()["Error"]
        await extender.end()
    (lease,) = cluster.api.objects("leases")
    assert lease["spec"]["holderIdentity"]


async def test_a_request_that_never_comes_to_its_end_holds_nothing_up(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("extender.listeners.LAST_ANSWERS", 0.2)
    caplog.set_level("WARNING")
    address = free_address()
    host, port = address.split(":")
    async with served(cluster, "--listen", address) as extender:
        _, half = await asyncio.open_connection(host, int(port))
        half.write(b"POST /gpushare-scheduler/bind HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{")
        await half.drain()
        _, idle = await asyncio.open_connection(host, int(port))
        await extender.end()
        half.close()
        idle.close()
    (line,) = caplog.records
    assert "Cancel 1 running task(s)" in line.message
    assert not line.exc_info, "it says nothing of gpushare"
    with socket.create_server((host, int(port))):
        pass


async def test_the_grace_ends_by_itself(cluster: Cluster) -> None:
    address = free_address()
    async with served(cluster, "--listen", address, "--shutdown-grace", "0.2") as extender:
        extender.signalled.set()
        await until(extender.task.done, what="the end")
        extender.task.result()
