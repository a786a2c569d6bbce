"""Start-up at 5,000 nodes and 50,000 bound pods: seconds until ready, and peak memory.

Beside it, how long the same API server takes to hand out the same pages to a client that throws them away:
what no extender can be faster than.
"""

from __future__ import annotations

import time

import aiohttp
import msgspec

from tests.bench import processes
from tests.bench.table import Promise, show

NODES, PODS_PER_NODE = 5000, 10
SECONDS_HOLD, MEMORY_HOLDS = 8.0, 200.0
PAGE = 500


class _Meta(msgspec.Struct):
    continue_: str | None = msgspec.field(default=None, name="continue")


class _Page(msgspec.Struct):
    metadata: _Meta


async def hand_out(url: str) -> tuple[float, float]:
    """Seconds for all pages of nodes and pods, and their size in MB."""
    begun, size = time.perf_counter(), 0
    async with aiohttp.ClientSession() as session:
        for plural in ("nodes", "pods"):
            query = {"limit": str(PAGE)}
            while True:
                async with session.get(f"{url}/api/v1/{plural}", params=query) as answer:
                    body = await answer.read()
                size += len(body)
                page = msgspec.json.decode(body, type=_Page)
                if not page.metadata.continue_:
                    break
                query["continue"] = page.metadata.continue_
    return time.perf_counter() - begun, size / 1e6


async def main() -> None:
    async with processes.api_server(nodes=NODES, pods_per_node=PODS_PER_NODE) as api:
        bare, size = await hand_out(api.url)
        async with processes.extender(api) as extender:
            ready, memory = extender.ready_after, extender.peak_memory()
    show(
        f"start-up: {NODES:,} nodes, {NODES * PODS_PER_NODE:,} pods, {size:.0f} MB of JSON",
        ("pages alone s", "ready s", "ratio", "peak MiB"),
        [(f"{bare:.1f}", f"{ready:.1f}", f"{ready / bare:.2f}", f"{memory:.0f}")],
    )
    Promise(what="ready", figure=ready, most=SECONDS_HOLD, unit="s").show()
    Promise(what="peak memory", figure=memory, most=MEMORY_HOLDS, unit="MiB").show()
