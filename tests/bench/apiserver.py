"""The API server of a measurement, in a process of its own.

usage: python -m tests.bench.apiserver NODES PODS_PER_NODE WAITING_PODS
Prints its URL when everything is loaded. A line `EVENTS SECONDS` on its input makes that many changes of
bound pods a second for so long.
"""

from __future__ import annotations

import asyncio
import itertools
import sys

import uvloop

from sandbox.apiserver import ApiServer
from sandbox.apiserver.kinds import kind_of
from tests.bench import cluster

WAITING_MEMORY = 6000
TICK = 0.01


async def main(nodes: int, per_node: int, waiting: int) -> None:
    async with ApiServer() as api:
        api.load("nodes", cluster.nodes(nodes))
        api.load("pods", cluster.bound_pods(nodes, per_node=per_node))
        api.load("pods", cluster.waiting_pods(waiting, memory=WAITING_MEMORY))
        print(api.url, flush=True)
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        changing: set[asyncio.Task[None]] = set()
        while line := await reader.readline():
            events, seconds = (float(word) for word in line.split())
            changing.add(asyncio.create_task(change(api, events=events, seconds=seconds)))


async def change(api: ApiServer, *, events: float, seconds: float) -> None:
    """Write bound pods anew, as their kubelets do, at an even pace."""
    kind, store = kind_of("pods"), api.store
    keys = [(record.namespace, record.name) for record in store.records(kind) if "waiting" not in record.name]
    turn = itertools.cycle(keys)
    clock = asyncio.get_running_loop().time
    begun, made = clock(), 0
    while clock() - begun < seconds:
        while made < events * (clock() - begun):
            namespace, name = next(turn)
            record = store.get(kind, namespace=namespace, name=name)
            if record is not None:
                manifest = record.manifest()
                manifest["status"]["podIP"] = f"10.1.{made // 250 % 250}.{made % 250}"
                store.put(kind, manifest, previous=record)
            made += 1
        await asyncio.sleep(TICK)


if __name__ == "__main__":
    uvloop.run(main(*(int(word) for word in sys.argv[1:])))
