"""Objects and requests that the tests of the API server share."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"


def pod(name: str = "p", *, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A pod of one container."""
    container = {"name": "main", "image": "registry.example/app:1"}
    manifest: dict[str, Any] = {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}
    if labels:
        manifest["metadata"]["labels"] = labels
    return manifest


def asking(name: str = "p", **resources: Any) -> dict[str, Any]:
    """A pod whose container has these resources."""
    container = {"name": "main", "image": "registry.example/app:1", "resources": resources}
    return {"metadata": {"name": name}, "spec": {"containers": [container]}}


def binding(name: str, node: str, **metadata: Any) -> dict[str, Any]:
    """The body of a bind."""
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, **metadata}, "target": target}


async def create(client: httpx.AsyncClient, path: str, manifest: dict[str, Any]) -> dict[str, Any]:
    """POST that has to succeed."""
    response = await client.post(path, json=manifest)
    assert response.status_code == 201, response.text
    created: dict[str, Any] = response.json()
    return created


async def patch(
    client: httpx.AsyncClient, path: str, change: Any, *, media_type: str = MERGE
) -> httpx.Response:
    """PATCH with a content type."""
    return await client.patch(path, content=json.dumps(change), headers={"Content-Type": media_type})


async def set_phase(client: httpx.AsyncClient, name: str, phase: str) -> dict[str, Any]:
    """What a kubelet does."""
    response = await patch(client, f"{PODS}/{name}/status", {"status": {"phase": phase}})
    assert response.status_code == 200, response.text
    changed: dict[str, Any] = response.json()
    return changed


async def bind(client: httpx.AsyncClient, name: str, node: str = "n1", **metadata: Any) -> httpx.Response:
    """What a scheduler does."""
    return await client.post(f"{PODS}/{name}/binding", json=binding(name, node, **metadata))


class Events:
    """The events of an open watch."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.aiter_lines()

    async def next(self) -> tuple[str, dict[str, Any]]:
        """Type and object of the next event."""
        event = json.loads(await anext(self._lines))
        return event["type"], event["object"]

    async def names(self, count: int) -> list[tuple[str, str]]:
        """Types and names of the next events."""
        found = []
        for _ in range(count):
            kind, shown = await self.next()
            found.append((kind, shown["metadata"]["name"]))
        return found

    async def rest(self) -> list[tuple[str, dict[str, Any]]]:
        """Everything until the watch ends."""
        return [(event["type"], event["object"]) async for line in self._lines if (event := json.loads(line))]


@asynccontextmanager
async def watch(client: httpx.AsyncClient, path: str, **query: Any) -> AsyncIterator[Events]:
    """Open a watch; ``client_name`` sets the header that faults go by."""
    headers = {"X-Sandbox-Client": query.pop("client_name", "")}
    async with client.stream("GET", path, params={"watch": "1", **query}, headers=headers) as response:
        assert response.status_code == 200, await response.aread()
        yield Events(response)
