from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from sandbox.apiserver import ApiServer
from tests.extender.cluster import Cluster, Scheduler
from tests.inspector.front import Front, serving
from tests.kubeapi.scripted import kubeconfig


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with ApiServer() as api, httpx.AsyncClient(timeout=30) as http:
        yield Cluster(api, folder=tmp_path, http=http)


@pytest.fixture
async def scheduler(cluster: Cluster) -> AsyncIterator[Scheduler]:
    async with cluster.extender() as scheduler:
        yield scheduler


@pytest.fixture
async def front(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Front]:
    """The API server that the person's kubeconfig names."""
    async with serving(cluster.api.url) as front:
        path = kubeconfig(tmp_path / "person", server=front.url, token="t")
        monkeypatch.setenv("KUBECONFIG", str(path))
        yield front


@pytest.fixture
def reachable(front: Front, scheduler: Scheduler) -> Front:
    """The same, with the extender behind its Service."""
    front.services["gpushare-system", "gpushare-scheduler:view"] = scheduler.url
    return front
