"""Several extenders that compete for a lease, on a clock that a test moves on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import httpx

from extender.app import create_app
from extender.core import Extender
from extender.leaderlabel import LeaderLabel
from extender.listeners import http_server
from gpushare.placement import Policy
from kubeapi.client import KubeApi
from kubeapi.leases import Elector, LeaseTiming
from kubeapi.listen import open_socket
from tests.build import NAMES
from tests.extender.cluster import Cluster, Scheduler
from tests.waiting import until

TIMING = LeaseTiming(retry=0.1)


class Clock:
    """Every replica's clock. It stands still unless a test moves it on."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Replica(Scheduler):
    """One of several extenders that compete for the lease."""

    elector: Elector

    async def readiness(self) -> tuple[int, str]:
        answer = await self.http.get(f"{self.url}/readyz")
        return answer.status_code, answer.text

    async def leading(self) -> None:
        await until(lambda: self.elector.term is not None, what=f"{self.elector.identity} leads")

    async def succeeding(self, clock: Clock) -> None:
        """Let time pass until this replica has taken over: it counts from when it saw the last renewal."""

        def leads() -> bool:
            clock.now += 1.0
            return self.elector.term is not None

        await until(leads, what=f"{self.elector.identity} leads")


@contextlib.asynccontextmanager
async def replica(
    cluster: Cluster, name: str, clock: Clock, *, label: str = "", again: float = 0.1
) -> AsyncIterator[Replica]:
    """A replica; faults name its watches and binds by `name`, its lease and label by `name/leader-election`.

    With `label`, its pod is the one of its name in the namespace default; `again` is `LeaderLabel`'s.
    """
    listener = open_socket("127.0.0.1:0")
    async with (
        httpx.AsyncClient(timeout=30) as http,
        await KubeApi.connect(cluster.kubeconfig, user_agent=name) as api,
        await KubeApi.connect(cluster.kubeconfig, user_agent=f"{name}/leader-election") as lease_api,
    ):
        elector = Elector(
            lease_api, name="gpushare", namespace="kube-system", identity=name, timing=TIMING, clock=clock
        )
        worn = (
            LeaderLabel(lease_api, key=label, pod=name, namespace="default", again=again) if label else None
        )
        extender = Extender(api, names=NAMES, unit="MiB", policy=Policy.BINPACK, elector=elector, label=worn)
        server = http_server(create_app(extender))
        async with extender.running():
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            try:
                found = Replica(extender, url=f"http://127.0.0.1:{listener.getsockname()[1]}", http=http)
                found.elector = elector
                yield found
            finally:
                server.stop()
                await serving


@contextlib.asynccontextmanager
async def pair(cluster: Cluster, clock: Clock) -> AsyncIterator[tuple[Replica, Replica]]:
    """A leader and a standby that knows it, with n1 [8192] known to both."""
    await cluster.node("n1", cards=[8192])
    async with replica(cluster, "first", clock) as first:
        await first.leading()
        async with replica(cluster, "second", clock) as second:
            await until(lambda: second.elector.holder == "first", what="the standby has seen the lease")
            for each in (first, second):
                await each.seen_nodes("n1")
            yield first, second
