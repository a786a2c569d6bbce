from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import MappingProxyType

import httpx
import pytest

from sandbox.apiserver import ApiServer
from tests.extender.cluster import Cluster, Scheduler
from tests.inspector.front import Front, serving
from tests.kubeapi.scripted import kubeconfig

PORT = {"name": "view", "port": 39998}


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
async def reachable(cluster: Cluster, front: Front, scheduler: Scheduler) -> Front:
    """The same, with the extender behind its Service."""
    await publish(cluster, url=scheduler.url)
    return front


async def publish(
    cluster: Cluster,
    *,
    url: str | None,
    namespace: str = "gpushare-system",
    name: str = "gpushare-scheduler",
    labels: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Create the extender's Service as the chart does, and its endpoint where there is a `url`."""
    await cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    service = {"metadata": {"name": name, "labels": dict(labels)}, "spec": {"ports": [PORT]}}
    await cluster.request("POST", f"/api/v1/namespaces/{namespace}/services", service)
    if url is not None:
        where = httpx.URL(url)
        endpoint = {
            "metadata": {"name": f"{name}-1", "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [where.host]}],
            "ports": [PORT | {"port": where.port}],
        }
        path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        await cluster.request("POST", path, endpoint)
