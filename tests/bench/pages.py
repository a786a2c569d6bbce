"""filter while nobody reads the page, and while as many pages as there may be open together.

That is what happens when an extender restarts: every browser comes back within seconds, and each has to be
told the whole cluster. kube-scheduler must hardly notice.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import statistics
import time

from extender.ui.stream import MOST_READERS
from tests import build
from tests.bench import cluster, processes
from tests.bench.table import Promise, show

NODES = 1000
SECONDS = 12.0
PAUSE = 0.02
SLOWDOWN_HOLDS = 10.0  # times, of the 99th percentile; each reader on its own made it hundreds


def filter_times(port: int) -> list[float]:
    """Sorted milliseconds of filter calls, asked one after the other for so long."""
    body = json.dumps(
        {"Pod": build.wire(build.pod(memory=1000, slots=1)), "Nodes": None, "NodeNames": cluster.names(NODES)}
    )
    connection = http.client.HTTPConnection("127.0.0.1", port)
    found = []
    until = time.perf_counter() + SECONDS
    while (begun := time.perf_counter()) < until:
        connection.request("POST", "/gpushare-scheduler/filter", body, {"Content-Type": "application/json"})
        assert connection.getresponse().read()
        found.append((time.perf_counter() - begun) * 1000)
        time.sleep(PAUSE)
    connection.close()
    return sorted(found)


async def main() -> None:
    rows: dict[str, tuple[list[float], list[float], float]] = {}
    async with (
        processes.api_server(nodes=NODES, pods_per_node=3 * cluster.CARDS) as api,
        processes.extender(api) as extender,
    ):
        await asyncio.to_thread(filter_times, extender.port)  # warm up
        alone = await asyncio.to_thread(filter_times, extender.port)
        rows["no page"] = alone, [], extender.memory()
        async with processes.readers(extender, pages=MOST_READERS) as opened:
            beside = await asyncio.to_thread(filter_times, extender.port)
            rows[f"{MOST_READERS} pages opening"] = beside, await opened(), extender.memory()
        await asyncio.sleep(2)
        after = await asyncio.to_thread(filter_times, extender.port)
        rows["all closed"] = after, [], extender.memory()
    show(
        f"filter of {NODES:,} nodes × {cluster.CARDS} cards",
        ("beside", "p50 ms", "p90 ms", "p99 ms", "most ms", "all told after s", "resident MiB"),
        [
            (
                beside_what,
                *(f"{times[int(len(times) * part)]:.1f}" for part in (0.5, 0.9, 0.99)),
                f"{times[-1]:.1f}",
                f"{statistics.median(opened_in):.1f}" if opened_in else "",
                f"{memory:.0f}",
            )
            for beside_what, (times, opened_in, memory) in rows.items()
        ],
    )
    ratio = beside[int(len(beside) * 0.99)] / alone[int(len(alone) * 0.99)]
    Promise(
        what=f"filter's p99 with {MOST_READERS} pages opening against without",
        figure=ratio,
        most=SLOWDOWN_HOLDS,
        unit="×",
    ).show()
