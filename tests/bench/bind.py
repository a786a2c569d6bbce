"""bind's own share: what a bind takes beyond its requests to the API server, timed in the same run.

What the client sees less what the extender waited for; the HTTP round trip, the watch event of the bind and
everything else on the extender's loop counts as its own.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import statistics
import time

from tests.bench import cluster, processes
from tests.bench.table import Promise, show

NODES = 500
BINDS = 400
HOLDS = 2.0  # ms


def bind_all(port: int) -> tuple[list[float], list[float]]:
    """Milliseconds of each bind, and of its requests to the API server."""
    connection = http.client.HTTPConnection("127.0.0.1", port)

    def call(method: str, path: str, body: object = None) -> object:
        connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
        return json.loads(connection.getresponse().read())

    def api_seconds() -> float:
        seconds = call("GET", "/api-seconds")
        assert isinstance(seconds, float)
        return seconds

    names, totals, waits = cluster.names(NODES), [], []
    for number in range(BINDS):
        args = {
            "PodName": f"waiting-{number}",
            "PodNamespace": "default",
            "PodUID": f"uid-waiting-{number}",
            "Node": names[number % NODES],
        }
        waited, begun = api_seconds(), time.perf_counter()
        answer = call("POST", "/gpushare-scheduler/bind", args)
        totals.append((time.perf_counter() - begun) * 1000)
        waits.append((api_seconds() - waited) * 1000)
        assert answer == {"Error": ""}, answer
    connection.close()
    return totals, waits


async def main() -> None:
    async with (
        processes.api_server(nodes=NODES, pods_per_node=cluster.CARDS, waiting=BINDS) as api,
        processes.extender(api) as extender,
    ):
        totals, waits = await asyncio.to_thread(bind_all, extender.port)
    own = [total - wait for total, wait in zip(totals, waits, strict=True)]
    show(
        f"{BINDS} binds, one after the other, each the first on its node (medians)",
        ("bind ms", "API server ms", "own ms", "own / API"),
        [
            (
                f"{statistics.median(totals):.2f}",
                f"{statistics.median(waits):.2f}",
                f"{statistics.median(own):.2f}",
                f"{statistics.median(own) / statistics.median(waits):.2f}",
            )
        ],
    )
    Promise(what="bind's own share", figure=statistics.median(own), most=HOLDS, unit="ms").show()
