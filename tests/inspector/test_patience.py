"""An API server or an extender that hangs: how long it is waited for, and what is said meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from inspector.patience import Patience
from inspector.source import Source
from kubeapi.client import KubeApi
from sandbox.apiserver import Rule
from tests.extender.cluster import Cluster, Scheduler
from tests.inspector.conftest import publish


@pytest.fixture
async def api(cluster: Cluster) -> AsyncIterator[KubeApi]:
    async with await KubeApi.connect(cluster.kubeconfig, user_agent="person") as api:
        yield api


async def test_an_extender_that_hangs_is_waited_for_and_then_done_without(
    cluster: Cluster, scheduler: Scheduler, api: KubeApi
) -> None:
    await cluster.node("n1", cards=[100])
    await publish(cluster, url=scheduler.url)
    cluster.faults.add(Rule(action="hold", path="/proxy/"))
    remarks: list[str] = []
    told: list[str] = []
    source = Source(
        api,
        namespace=None,
        resource=None,
        say=remarks.append,
        patience=Patience(tell=told.append, seconds=0.01),
        seconds=0.3,
    )
    assert [node.name for node in (await source.inspect(())).nodes] == ["n1"]
    assert remarks == [
        "the extender has not answered within 0.3 seconds; "
        "computing from the API server's nodes and pods instead"
    ]
    assert told[0] == f"waiting for the extender's answer through API server {api.host} (at most 0.3 seconds)"


async def test_of_every_wait_is_told_once_and_only_if_it_lasts() -> None:
    told: list[str] = []
    patience = Patience(tell=told.append, seconds=0.01)
    with patience.waiting("nothing"):
        pass
    heard = asyncio.Event()
    for _ in range(2):
        with patience.waiting("rain"):
            asyncio.get_running_loop().call_later(0.02, heard.set)
            await heard.wait()
            heard.clear()
    assert told == ["waiting for rain"]
