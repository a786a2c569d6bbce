"""The processes of a measurement: an API server, and the extender under test, each on its own."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.bench import apiserver, server
from tests.bench import readers as readers_module

LOADING = 120.0
"""Seconds to wait for a process to be ready."""


@dataclass(frozen=True, kw_only=True)
class ApiProcess:
    """The API server."""

    url: str
    _input: asyncio.StreamWriter

    async def change(self, *, events: int, seconds: float) -> None:
        """Let pods change this often a second, for so long; returns at once."""
        self._input.write(f"{events} {seconds}\n".encode())
        await self._input.drain()


@dataclass(frozen=True, kw_only=True)
class ExtenderProcess:
    """The extender."""

    port: int
    pid: int
    ready_after: float
    """Seconds from its start, Python's own included, until both watches had synced."""

    def peak_memory(self) -> float:
        """MiB it has had resident at most."""
        return self._status("VmHWM:")

    def memory(self) -> float:
        """MiB it has resident now."""
        return self._status("VmRSS:")

    def _status(self, key: str) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith(key))
        return int(line.split()[1]) / 1024


@contextlib.asynccontextmanager
async def api_server(*, nodes: int, pods_per_node: int, waiting: int = 0) -> AsyncIterator[ApiProcess]:
    """A loaded API server."""
    async with _process(apiserver.__name__, str(nodes), str(pods_per_node), str(waiting)) as process:
        assert process.stdin is not None
        yield ApiProcess(url=await _first_line(process), _input=process.stdin)


@contextlib.asynccontextmanager
async def extender(api: ApiProcess) -> AsyncIterator[ExtenderProcess]:
    """A ready extender."""
    with tempfile.TemporaryDirectory() as folder:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "bench", "cluster": {"server": api.url}}],
            "users": [{"name": "bench", "user": {}}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
            "current-context": "bench",
        }
        path = Path(folder) / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        begun = time.perf_counter()
        async with _process(server.__name__, str(path)) as process:
            port = int(await _first_line(process))
            yield ExtenderProcess(port=port, pid=process.pid, ready_after=time.perf_counter() - begun)


@contextlib.asynccontextmanager
async def readers(
    extender: ExtenderProcess, *, pages: int
) -> AsyncIterator[Callable[[], Awaitable[list[float]]]]:
    """So many pages that open together again and again, once the first are on their way.

    The call that is given ends them and answers how many seconds each round took until all had been told
    everything.
    """
    async with _process(readers_module.__name__, str(extender.port), str(pages)) as process:
        assert await _first_line(process) == "opening"

        async def end() -> list[float]:
            process.terminate()
            said, _ = await process.communicate()
            return [float(line) for line in said.decode().split() if line != "opening"]

        yield end


@contextlib.asynccontextmanager
async def _process(module: str, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _first_line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), LOADING)
    assert line, "the process ended before it was ready"
    return line.decode().strip()
