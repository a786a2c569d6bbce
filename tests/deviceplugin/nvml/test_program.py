"""The program over NVIDIA's library, as a process: a library that comes late, a driver that hangs."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.deviceplugin.cluster import Cluster, until
from tests.deviceplugin.nvml.board import LIBRARY, Board
from tests.deviceplugin.pods import NODE

SECONDS = 20.0
"""For a step of the program's, on a machine that has other things to do."""


@contextlib.asynccontextmanager
async def program(node: Cluster, *, libraries: Path, log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """The device plugin, that finds shared libraries in a folder of the test's; it is ended with SIGTERM."""
    arguments = {
        "--node-name": NODE,
        "--kubeconfig": node.server.kubeconfig(node.folder / "kubeconfig"),
        "--kubelet-dir": node.folder,
        "--cards": "nvml",
        "--health-interval": "0.05",
    }
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-W", "error", "-m", "deviceplugin.cli"),
            *(str(word) for pair in arguments.items() for word in pair),
            stderr=stderr,
            env={**os.environ, "LD_LIBRARY_PATH": str(libraries)},
        )
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(SECONDS):
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    check_end(process.returncode, log=log)


def check_end(code: int | None, *, log: Path) -> None:
    """It ended as it should."""
    assert code == 0, log.read_text()
    assert "Traceback" not in log.read_text()


async def found_elsewhere() -> bool:
    """Whether this machine has NVIDIA's library where every program finds it."""
    load = "import pynvml; pynvml._LoadNvmlLibrary()"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", load, stderr=asyncio.subprocess.DEVNULL
    )
    return await process.wait() == 0


async def test_N9_the_library_comes_late_and_the_program_says_what_is_missing_until_then(
    one_node: Cluster, library: Path, board: Board, tmp_path: Path
) -> None:
    if await found_elsewhere():
        pytest.skip("this machine has NVIDIA's library where every program finds it")
    board.gpu("GPU-0", memory=16000)
    libraries, log = tmp_path / "lib", tmp_path / "log"
    libraries.mkdir()
    async with program(one_node, libraries=libraries, log=log):
        await until(
            lambda: "libnvidia-ml.so.1 cannot be loaded" in log.read_text(),
            what=log.read_text,
            deadline=SECONDS,
        )
        assert "runtimeClassName: nvidia" in log.read_text()
        assert one_node.slots_known() == 0
        shutil.copy(library, libraries / LIBRARY)
        await until(lambda: one_node.slots_known() == 32, what=log.read_text, deadline=SECONDS)
        board.xid("GPU-0", 79)
        await until(lambda: one_node.slots_known() == 0, what=log.read_text, deadline=SECONDS)
        await until(lambda: one_node.slots_known() == 32, what=log.read_text, deadline=SECONDS)
    assert board.calls == ["nvmlInit", "nvmlEventSetFree", "nvmlShutdown"]


async def test_it_ends_though_the_driver_does_not_answer(
    one_node: Cluster, library: Path, board: Board, tmp_path: Path
) -> None:
    board.gpu("GPU-0", memory=16000)
    log = tmp_path / "log"
    async with program(one_node, libraries=library.parent, log=log):
        await until(lambda: one_node.slots_known() == 32, what=log.read_text, deadline=SECONDS)
        board.hang("nvmlDeviceGetMemoryInfo")
        await until(lambda: "hangs" in board.calls, what=log.read_text, deadline=SECONDS)
        started = time.monotonic()
    assert time.monotonic() - started < SECONDS / 2
    assert "nvmlShutdown" not in board.calls
