"""``gpushare-sandbox api`` as a process."""

import asyncio
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import yaml

from tests.sandbox.calls import PODS, watch


@asynccontextmanager
async def running(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "sandbox.cli",
        "api",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def ready_url(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode()
    assert line.startswith("API server ready on http://127.0.0.1:"), line
    return line.split()[-1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_says_where_it_is_and_ends_at_once_on_a_signal(
    number: signal.Signals, tmp_path: Path
) -> None:
    config = tmp_path / "kubeconfig"
    async with running("--listen", "127.0.0.1:0", "--kubeconfig-out", str(config)) as process:
        url = await ready_url(process)
        assert yaml.safe_load(config.read_text())["clusters"][0]["cluster"]["server"] == url
        async with httpx.AsyncClient(base_url=url, verify=False) as client, watch(client, PODS) as events:
            started = time.monotonic()
            process.send_signal(number)
            assert await events.rest() == []
            assert await process.wait() == 0
            assert time.monotonic() - started < 1


async def test_a_port_in_use_is_named_and_the_exit_code_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with running("--listen", f"127.0.0.1:{port}") as process:
            _, errors = await process.communicate()
    assert process.returncode == 1
    assert f"port {port}" in errors.decode()
    assert "Traceback" not in errors.decode()


async def test_a_kubeconfig_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    async with running("--kubeconfig-out", str(tmp_path / "none" / "config")) as process:
        _, errors = await process.communicate()
    assert process.returncode == 1
    assert "cannot write" in errors.decode()
    assert "Traceback" not in errors.decode()


@pytest.mark.parametrize("listen", ["", "8080", "host:", "host:99999", "host:x"])
async def test_an_address_that_is_none_is_refused(listen: str) -> None:
    async with running("--listen", listen) as process:
        _, errors = await process.communicate()
    assert process.returncode == 2
    assert "HOST:PORT" in errors.decode()
