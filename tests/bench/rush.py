"""200 binds a second for 30 s while 1,000 pod events a second arrive: latency and errors.

The binds start at an even pace whether or not earlier ones have been answered, and are measured from when
they were due. The API server is the sandbox's, in Python: its own time for a write is shown beside.
"""

from __future__ import annotations

import asyncio
import statistics
import time

import aiohttp

from tests.bench import cluster, processes
from tests.bench.table import show

NODES = 1000
BINDS, SECONDS, EVENTS = 200, 30, 1000


async def bind(session: aiohttp.ClientSession, port: int, number: int, *, due: float) -> tuple[float, str]:
    """Milliseconds since the bind was due, and its error."""
    await asyncio.sleep(due - time.perf_counter())
    args = {
        "PodName": f"waiting-{number}",
        "PodNamespace": "default",
        "PodUID": f"uid-waiting-{number}",
        "Node": f"gpu-node-{number % NODES:04d}",
    }
    async with session.post(f"http://127.0.0.1:{port}/gpushare-scheduler/bind", json=args) as answer:
        error: str = (await answer.json())["Error"]
    return (time.perf_counter() - due) * 1000, error


async def measure(*, events: int) -> tuple[list[float], list[str], float]:
    """Milliseconds of each bind, the errors, and milliseconds the extender waited for the API server."""
    total = BINDS * SECONDS
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        processes.api_server(nodes=NODES, pods_per_node=cluster.CARDS, waiting=total) as api,
        processes.extender(api) as extender,
        aiohttp.ClientSession(connector=connector) as session,
    ):
        if events:
            await api.change(events=events, seconds=SECONDS + 5)
        first = time.perf_counter() + 0.5
        found = await asyncio.gather(
            *(bind(session, extender.port, number, due=first + number / BINDS) for number in range(total))
        )
        async with session.get(f"http://127.0.0.1:{extender.port}/api-seconds") as answer:
            waited = float(await answer.text())
    return [took for took, _ in found], [error for _, error in found if error], waited * 1000 / total


async def main() -> None:
    rows = []
    for events in (0, EVENTS):
        times, errors, waited = await measure(events=events)
        percentiles = statistics.quantiles(times, n=100)
        rows.append(
            (
                f"{events} events a second",
                errors[0][:40] if errors else "",
                f"{percentiles[49]:.1f}",
                f"{percentiles[98]:.1f}",
                f"{waited:.1f}",
                str(len(errors)),
            )
        )
    show(
        f"{BINDS} binds a second for {SECONDS} s",
        ("beside", "first error", "p50 ms", "p99 ms", "API server, mean ms", "errors"),
        rows,
    )
