"""The program on a node where NVIDIA's library comes late, as a process of its own."""

import asyncio
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.deviceplugin.cluster import Cluster, until
from tests.deviceplugin.nvml.board import LIBRARY, Board
from tests.deviceplugin.pods import NODE

SECONDS = 20.0
"""For a step of the program's, on a machine that has other things to do."""


async def test_N9_the_library_comes_late_and_the_program_says_what_is_missing_until_then(
    one_node: Cluster, library: Path, board: Board, tmp_path: Path
) -> None:
    if await found_elsewhere():
        pytest.skip("this machine has NVIDIA's library where every program finds it")
    board.gpu("GPU-0", memory=16000)
    libraries = tmp_path / "lib"
    libraries.mkdir()
    log = tmp_path / "log"
    arguments = {
        "--node-name": NODE,
        "--kubeconfig": one_node.server.kubeconfig(one_node.folder / "kubeconfig"),
        "--kubelet-dir": one_node.folder,
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
        started = time.monotonic()
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(SECONDS):
            await process.wait()
        assert time.monotonic() - started < 5
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, log.read_text()
    assert "Traceback" not in log.read_text()
    assert board.calls == ["nvmlInit", "nvmlEventSetFree", "nvmlShutdown"]


async def found_elsewhere() -> bool:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "import pynvml; pynvml._LoadNvmlLibrary()", stderr=asyncio.subprocess.DEVNULL
    )
    return await process.wait() == 0
