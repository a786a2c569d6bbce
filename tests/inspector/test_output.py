"""Where the command writes: full disks, closed outputs, readers that leave, documents in a row."""

from __future__ import annotations

import asyncio
import json
import os
import signal

import pytest
import yaml

from tests.extender.cluster import Cluster, Scheduler
from tests.inspector.front import Front
from tests.inspector.test_command import COMMAND, populate


@pytest.fixture(autouse=True)
async def populated(cluster: Cluster, scheduler: Scheduler, reachable: Front) -> None:
    await populate(cluster, scheduler)


async def shell(line: str) -> tuple[int | None, str]:
    """What a shell makes of it, `$0` being the command: exit code and standard error."""
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", line, COMMAND, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await asyncio.wait_for(process.communicate(), 20)
    return process.returncode, errors.decode()


@pytest.mark.parametrize("flags", ["-o json", "-w"])
async def test_a_full_disk_is_one_line_and_exit_code_1(flags: str) -> None:
    code, errors = await shell(f'"$0" {flags} >/dev/full')
    assert (code, errors) == (1, "error: standard output cannot be written: No space left on device\n")


async def test_a_closed_standard_output_is_one_line_and_exit_code_1() -> None:
    assert await shell('"$0" >&-') == (1, "error: standard output is closed\n")


async def test_a_closed_standard_error_costs_the_remarks_only() -> None:
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", '"$0" 2>&-', COMMAND, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 0
    assert out.endswith(b"9000/49152 (18%)  \n"), "no remark among the answer"


async def test_a_watch_ends_when_its_reader_leaves_though_nothing_changes() -> None:
    reading, writing = os.pipe()
    process = await asyncio.create_subprocess_exec(
        COMMAND, "-w", "--interval", "0.05", stdout=writing, stderr=asyncio.subprocess.PIPE
    )
    os.close(writing)
    assert await asyncio.to_thread(os.read, reading, 4) == b"NAME"
    os.close(reading)
    _, errors = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 0
    assert b"Traceback" not in errors


async def watched(cluster: Cluster, form: str, *, once: bytes) -> bytes:
    """What a watch prints until one change has been printed; every document has `once` once."""
    process = await asyncio.create_subprocess_exec(
        COMMAND, "-w", "--interval", "0.05", "-o", form, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    first = await asyncio.wait_for(process.stdout.readuntil(once), 20)
    await cluster.delete("a")
    again = await asyncio.wait_for(process.stdout.readuntil(once), 20)
    process.send_signal(signal.SIGINT)
    rest, _ = await asyncio.wait_for(process.communicate(), 20)
    return first + again + rest


async def test_watched_json_is_a_document_a_line(cluster: Cluster) -> None:
    printed = await watched(cluster, "json", once=b"\n")
    before, after = map(json.loads, printed.splitlines())
    assert (before["nodes"][0]["usedGPU"], after["nodes"][0]["usedGPU"]) == (9000, 0)


async def test_watched_yaml_has_dashes_between_documents(cluster: Cluster) -> None:
    printed = await watched(cluster, "yaml", once=b"\nwaiting:\n")
    assert printed.count(b"---\n") == 1
    before, after = yaml.safe_load_all(printed)
    assert (before["nodes"][0]["usedGPU"], after["nodes"][0]["usedGPU"]) == (9000, 0)
