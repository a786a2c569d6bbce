"""The program around the verbs: start, readiness, ports, signals, reports."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from extender.listeners import http_server
from extender.settings import ExtenderSettings
from gpushare import __version__
from kubeapi.settings import load
from sandbox.apiserver import ApiServer, Rule
from tests.extender.cluster import PREFIX, Cluster, Scheduler
from tests.waiting import until

COMMAND = Path(sys.executable).parent / "gpushare-extender"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


async def run(*arguments: str) -> tuple[int, str]:
    """Run the command to its end; exit code and standard error."""
    process = await asyncio.create_subprocess_exec(
        COMMAND, *arguments, stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    _, errors = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode is not None
    return process.returncode, errors.decode()


async def test_I3_a_port_in_use_ends_the_program_with_a_message(cluster: Cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, errors = await run("--kubeconfig", str(cluster.kubeconfig), "--listen", address)
    assert code == 1
    assert f"cannot listen on {address}: Address already in use" in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--listen", "nowhere"], "--listen (or GPUSHARE_LISTEN): must read HOST:PORT"),
        (["--listen", "127.0.0.1:70000"], "--listen (or GPUSHARE_LISTEN): must read HOST:PORT"),
        (["--policy", "best"], "--policy (or GPUSHARE_POLICY)"),
        (["--resource", "gpu"], "is not an extended resource's name"),
        (["--unit", "TiB"], "--unit (or GPUSHARE_UNIT)"),
        (["--nonsense"], "unrecognized arguments: --nonsense"),
    ],
)
def test_a_bad_flag_ends_the_program_and_is_named(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        load(ExtenderSettings, program="gpushare-extender", argv=arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


async def test_an_unusable_kubeconfig_ends_the_program_and_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("clusters: {")
    code, errors = await run("--kubeconfig", str(path), "--listen", "127.0.0.1:0")
    assert code == 1
    assert f"kubeconfig {path} is not usable" in errors
    assert "Traceback" not in errors


async def test_without_an_api_server_it_lives_is_not_ready_and_says_why(tmp_path: Path) -> None:
    port, listen = free_port(), free_port()
    kubeconfig = ApiServer(port=port).kubeconfig(tmp_path / "kubeconfig")
    process = await asyncio.create_subprocess_exec(
        COMMAND, "--kubeconfig", kubeconfig, "--listen", f"127.0.0.1:{listen}", stderr=asyncio.subprocess.PIPE
    )
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{listen}") as http:
            await answered(http, "/readyz", 503, text=f"API server http://127.0.0.1:{port} is out of reach")
            body = {"Pod": {}, "NodeNames": ["n1"]}
            refused = (await http.post(f"{PREFIX}/filter", json=body)).json()
            assert "not ready" in refused["Error"]
            assert (await http.get("/healthz")).text == "ok"
            async with ApiServer(port=port):
                await answered(http, "/readyz", 200)
    finally:
        process.send_signal(signal.SIGTERM)
        _, log = await asyncio.wait_for(process.communicate(), 10)
    assert process.returncode == 0
    assert b"level=warning at=kubeapi.reflector retry path=/api/v1/nodes" in log


async def answered(http: httpx.AsyncClient, path: str, status: int, *, text: str = "") -> None:
    """Ask until the program answers with this status and text."""
    async with asyncio.timeout(15):
        while True:
            try:
                answer = await http.get(path)
            except httpx.TransportError:
                await asyncio.sleep(0.02)  # not listening yet
                continue
            if answer.status_code == status and text in answer.text:
                return


async def test_V7_nothing_passes_before_the_first_sync(cluster: Cluster) -> None:
    cluster.faults.add(Rule(action="hold", method="GET", path="/api/v1/pods"))
    async with cluster.extender(synced=False) as scheduler:
        pod = await cluster.pod("a", 100)
        answer = await scheduler.filter(pod, nodes=["n1"])
        assert answer["NodeNames"] is None
        assert "not ready: /api/v1/" in answer["Error"]
        assert "not ready" in await scheduler.bind(pod, node="n1")
        assert (await scheduler.http.get(f"{scheduler.url}/readyz")).status_code == 503
        cluster.faults.clear()
        await asyncio.wait_for(scheduler.extender.synced(), 10)
        assert (await scheduler.http.get(f"{scheduler.url}/readyz")).text == "ok"


async def test_V10_idle_connections_outlive_kube_schedulers_own() -> None:
    assert http_server(FastAPI()).config.timeout_keep_alive >= 95


async def test_V10_a_connection_is_used_again(cluster: Cluster, scheduler: Scheduler) -> None:
    reader, writer = await asyncio.open_connection(*scheduler.url.removeprefix("http://").split(":"))
    for _ in range(2):
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: extender\r\n\r\n")
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
        assert head.startswith(b"HTTP/1.1 200")
        assert await reader.readexactly(2) == b"ok"
    writer.close()


async def test_reports(cluster: Cluster, scheduler: Scheduler) -> None:
    await cluster.node("n1", cards=[16384, 8192])
    await cluster.node("bare", cards=[])
    await until(lambda: {"n1", "bare"} <= set(scheduler.extender.ledger.known_nodes()), what="nodes seen")
    pod = await cluster.pod("a", 3000)
    assert await scheduler.bind(pod, node="n1") == ""
    await scheduler.seen(pod["metadata"]["uid"])
    answer = (await scheduler.http.get(f"{scheduler.url}{PREFIX}/inspect")).json()
    on_card = {
        "name": "a",
        "namespace": "default",
        "usedGPU": 3000,
        "uid": pod["metadata"]["uid"],
        "standing": "seen",
        "card": 1,
        "assigned": False,
        "containers": [{"name": "main", "usedGPU": 3000}],
    }
    one = (await scheduler.http.get(f"{scheduler.url}{PREFIX}/inspect/n1")).json()
    assert one == answer
    since = datetime.fromisoformat(answer["nodes"][0]["devs"][1]["pods"][0].pop("since"))
    assert abs((datetime.now(UTC) - since).total_seconds()) < 60
    assert answer == {
        "resource": "aliyun.com/gpu-mem",
        "unit": "MiB",
        "waiting": [],
        "nodes": [
            {
                "name": "n1",
                "totalGPU": 24576,
                "usedGPU": 3000,
                "unit": "MiB",
                "closed": None,
                "address": "",
                "missing": [],
                "unreadable": [],
                "devs": [
                    {
                        "id": 0,
                        "totalGPU": 16384,
                        "usedGPU": 0,
                        "freeGPU": 16384,
                        "pods": [],
                        "uuid": "GPU-n1-0",
                        "model": "",
                        "healthy": True,
                        "reason": "",
                        "overCommit": 0,
                        "usedSlots": 0,
                        "totalSlots": 32,
                    },
                    {
                        "id": 1,
                        "totalGPU": 8192,
                        "usedGPU": 3000,
                        "freeGPU": 5192,
                        "pods": [on_card],
                        "uuid": "GPU-n1-1",
                        "model": "",
                        "healthy": True,
                        "reason": "",
                        "overCommit": 0,
                        "usedSlots": 1,
                        "totalSlots": 32,
                    },
                ],
            }
        ],
    }
    bare = (await scheduler.inspect("bare"))["closed"]
    assert bare == "node shares no GPU cards"
    unknown = await scheduler.http.get(f"{scheduler.url}{PREFIX}/inspect/ghost")
    assert (unknown.status_code, unknown.json()) == (404, {"error": "node 'ghost' is not known"})
    assert (await scheduler.http.get(f"{scheduler.url}/version")).json() == {"version": __version__}


async def test_an_unreadable_cards_annotation_is_refused_and_explained(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    await cluster.node("n1", cards=[16384])
    await cluster.patch("/api/v1/nodes/n1", {"metadata": {"annotations": {"aliyun.com/gpu-cards": "{"}}})
    await until(lambda: not scheduler.extender.ledger.view("n1").cards, what="the bad annotation is seen")
    answer = await scheduler.filter(await cluster.pod("a", 10), nodes=["n1"])
    assert answer["FailedAndUnresolvableNodes"] == {"n1": "node publishes unreadable GPU cards"}
    assert "Input data was truncated" in (await scheduler.inspect("n1"))["closed"]


async def test_an_unknown_path_and_a_wrong_method_are_answered(scheduler: Scheduler) -> None:
    assert (await scheduler.http.get(f"{scheduler.url}/nowhere")).status_code == 404
    assert (await scheduler.http.get(f"{scheduler.url}{PREFIX}/filter")).status_code == 405


async def test_a_client_that_leaves_in_mid_request_is_no_fault(
    cluster: Cluster, scheduler: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    _, writer = await asyncio.open_connection(*scheduler.url.removeprefix("http://").split(":"))
    writer.write(f"POST {PREFIX}/filter HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{{".encode())
    await writer.drain()
    with caplog.at_level("INFO"):
        writer.close()
        await until(lambda: "client gone" in caplog.text, what="its leaving is noticed")
    assert [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []
    assert (await scheduler.http.get(f"{scheduler.url}/healthz")).text == "ok"
