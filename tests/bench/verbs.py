"""filter, prioritize and preempt over HTTP, against an echo of the same bytes.

Echo and verb are asked in turn over one kept connection and medians are compared, so that whatever else
the machine does weighs on both alike.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests import build
from tests.bench import cluster, processes
from tests.bench.table import Promise, show

SIZES = (500, 5000)
REQUESTS = 200
PATIENCE = 20.0
"""Seconds for one question at most: fewer requests where the answer is slow."""
FILTER_HOLDS = 2.5  # times the echo, at 5,000 names


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Median milliseconds of one question to one size of cluster."""

    nodes: int
    verb: str
    question: str
    echo: float
    answer: float

    @property
    def ratio(self) -> float:
        return self.answer / self.echo

    @property
    def per_node(self) -> float:
        """Microseconds."""
        return 1000 * self.answer / self.nodes


def questions(nodes: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Verb, what is asked, body. Every card has a pod of 8,000 units."""
    names = cluster.names(nodes)

    def about(memory: int, **pod: Any) -> dict[str, Any]:
        return {"Pod": build.wire(build.pod(memory=memory, **pod)), "Nodes": None, "NodeNames": names}

    yield "filter", "all fit", about(1000, slots=1)
    yield "filter", "none fits", about(cluster.CARD, slots=1)
    yield "filter", "too large", about(cluster.CARD + 1, slots=1)
    yield "filter", "two cards", about(2000, slots=2)
    yield "prioritize", "all fit", about(1000, slots=1)
    yield "prioritize", "two cards", about(2000, slots=2)
    urgent = build.wire(build.pod(memory=cluster.CARD - 1000, slots=1))
    urgent["spec"]["priority"] = 1000
    victims = {name: {"Pods": [{"UID": f"uid-{name}-0"}], "NumPDBViolations": 0} for name in names}
    yield "preempt", "one victim each", {"Pod": urgent, "NodeNameToMetaVictims": victims}


def alternate(port: int, verb: str, body: bytes) -> tuple[float, float]:
    """Median milliseconds of echo and of the verb."""
    connection = http.client.HTTPConnection("127.0.0.1", port)

    def timed(path: str) -> float:
        begun = time.perf_counter()
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, (verb, answer.status)
        return (time.perf_counter() - begun) * 1000

    turns: list[tuple[float, float]] = []
    path, begun = f"/gpushare-scheduler/{verb}", time.perf_counter()
    for _ in range(5):  # warm up
        timed("/echo"), timed(path)
    while len(turns) < REQUESTS and time.perf_counter() - begun < PATIENCE:
        turns.append((timed("/echo"), timed(path)))
    connection.close()
    return statistics.median(turn[0] for turn in turns), statistics.median(turn[1] for turn in turns)


async def measure(nodes: int) -> list[Measured]:
    found = []
    async with (
        processes.api_server(nodes=nodes, pods_per_node=cluster.CARDS) as api,
        processes.extender(api) as extender,
    ):
        for verb, question, body in questions(nodes):
            sent = json.dumps(body).encode()
            echo, answer = await asyncio.to_thread(alternate, extender.port, verb, sent)
            found.append(Measured(nodes=nodes, verb=verb, question=question, echo=echo, answer=answer))
    return found


async def main() -> None:
    found = [one for nodes in SIZES for one in await measure(nodes)]
    show(
        "verbs over HTTP against an echo of the same bytes (medians)",
        ("verb", "question", "nodes × 8 cards", "echo ms", "verb ms", "ratio", "µs per node"),
        [
            (
                one.verb,
                one.question,
                str(one.nodes),
                f"{one.echo:.2f}",
                f"{one.answer:.2f}",
                f"{one.ratio:.2f}",
                f"{one.per_node:.2f}",
            )
            for one in found
        ],
    )
    small, large = (
        next(one for one in found if (one.nodes, one.verb, one.question) == (nodes, "filter", "all fit"))
        for nodes in SIZES
    )
    Promise(
        what="filter of 5,000 names against the echo", figure=large.ratio, most=FILTER_HOLDS, unit="×"
    ).show()
    growth = large.per_node / small.per_node
    Promise(what="cost per node at 5,000 against 500 nodes", figure=growth, most=1.0, unit="×").show()
