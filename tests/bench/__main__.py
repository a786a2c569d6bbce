"""Measure filter against an echo of the same bytes, and print the table.

The extender runs in a process of its own, fed by the sandbox's API server with nodes of 8 cards and a pod
on each. Echo and filter requests alternate over one kept connection; medians are compared, so that
whatever else the machine does weighs on both alike.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from sandbox.apiserver import ApiServer
from tests import build

SIZES = (500, 5000)
REQUESTS = 300
CARD = 24576
HOLD = 2.5  # filter of 5,000 names × 8 cards against the echo


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Median milliseconds of one question to one size of cluster."""

    nodes: int
    question: str
    echo: float
    filter: float

    @property
    def ratio(self) -> float:
        return self.filter / self.echo


def names(count: int) -> list[str]:
    return [f"gpu-node-{number:04d}" for number in range(count)]


def nodes(count: int) -> Iterator[dict[str, Any]]:
    for name in names(count):
        yield {"apiVersion": "v1", "kind": "Node"} | build.wire(build.node(name, cards=[CARD] * 8))


def pods(count: int) -> Iterator[dict[str, Any]]:
    """A bound pod on every card."""
    for name in names(count):
        for index in range(8):
            pod = build.pod(f"{name}-{index}", memory=8000, on=name, cards=[index])
            yield {"apiVersion": "v1", "kind": "Pod"} | build.wire(pod)


def question(memory: int, *, nodes: int) -> bytes:
    body = {"Pod": build.wire(build.pod(memory=memory, slots=1)), "Nodes": None, "NodeNames": names(nodes)}
    return json.dumps(body).encode()


def alternate(port: int, body: bytes) -> tuple[float, float]:
    """Median milliseconds of echo and of filter, asked in turn."""
    connection = http.client.HTTPConnection("127.0.0.1", port)

    def timed(path: str) -> float:
        begun = time.perf_counter()
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200
        return (time.perf_counter() - begun) * 1000

    for path in ("/echo", "/gpushare-scheduler/filter") * 20:  # warm up
        timed(path)
    turns = [(timed("/echo"), timed("/gpushare-scheduler/filter")) for _ in range(REQUESTS)]
    connection.close()
    return statistics.median(turn[0] for turn in turns), statistics.median(turn[1] for turn in turns)


async def measure(count: int) -> list[Measured]:
    questions = {"all fit": 1000, "none fits": CARD, "too large": CARD + 1}
    with tempfile.TemporaryDirectory() as folder:
        async with ApiServer() as api:
            api.load("nodes", nodes(count))
            api.load("pods", pods(count))
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.bench.server",
                str(api.kubeconfig(Path(folder) / "kubeconfig")),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
            try:
                assert process.stdout is not None
                port = int(await asyncio.wait_for(process.stdout.readline(), 60))
                found = []
                for text, memory in questions.items():
                    echo, answer = await asyncio.to_thread(alternate, port, question(memory, nodes=count))
                    found.append(Measured(nodes=count, question=text, echo=echo, filter=answer))
                return found
            finally:
                process.terminate()
                await process.wait()


def show(found: list[Measured]) -> None:
    """Print the table, and whether what the design promises holds."""
    table = Table(title="filter over HTTP against an echo of the same bytes (medians)")
    for column in ("nodes × 8 cards", "question", "echo ms", "filter ms", "ratio", "µs per node"):
        table.add_column(column, justify="left" if column == "question" else "right")
    for one in found:
        table.add_row(
            str(one.nodes),
            one.question,
            f"{one.echo:.2f}",
            f"{one.filter:.2f}",
            f"{one.ratio:.2f}",
            f"{1000 * one.filter / one.nodes:.2f}",
        )
    console = Console(width=100)
    console.print(table)
    small, large = (
        next(one for one in found if one.nodes == nodes and one.question == "all fit") for nodes in SIZES
    )
    linear = large.filter / large.nodes <= small.filter / small.nodes
    within = large.ratio <= HOLD
    console.print(f"filter of {SIZES[1]} names ≤ {HOLD} × echo: {large.ratio:.2f}, {verdict(within)}")
    console.print(f"cost per node from {SIZES[0]} to {SIZES[1]} linear or better: {verdict(linear)}")


def verdict(holds: object) -> str:
    return "holds" if holds else "DOES NOT HOLD"


def main() -> None:
    found = [one for count in SIZES for one in asyncio.run(measure(count))]
    show(found)


if __name__ == "__main__":
    main()
