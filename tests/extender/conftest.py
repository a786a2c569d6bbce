from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from sandbox.apiserver import ApiServer
from tests.extender.cluster import Cluster, Scheduler


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with ApiServer() as api, httpx.AsyncClient(timeout=30) as http:
        yield Cluster(api, folder=tmp_path, http=http)


@pytest.fixture
async def scheduler(cluster: Cluster) -> AsyncIterator[Scheduler]:
    async with cluster.extender() as scheduler:
        yield scheduler
