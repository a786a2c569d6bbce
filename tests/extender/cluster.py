"""A cluster for the extender's tests: the sandbox's API server and extenders on real sockets.

The tests speak to the extender as kube-scheduler does (HTTP) and to the API server as users do; what is
booked they read from `inspect`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec

from extender.app import create_app
from extender.core import Extender
from extender.listeners import http_server
from gpushare.cards import Card
from gpushare.objects import Container, Pod
from gpushare.placement import Policy
from kubeapi.client import KubeApi
from kubeapi.listen import open_socket
from sandbox.apiserver import ApiServer
from tests import build
from tests.build import NAMES
from tests.waiting import until

PREFIX = "/gpushare-scheduler"
PODS = "/api/v1/namespaces/default/pods"


def manifest(pod: Pod) -> dict[str, Any]:
    """What a user would apply to get this pod."""

    def containers(group: Sequence[Container] | None) -> list[dict[str, Any]]:
        return [
            {
                "name": container.name,
                "image": "registry.example/app:1",
                "resources": {"limits": dict(container.limits)},
            }
            | ({"restartPolicy": container.restart_policy} if container.restart_policy else {})
            for container in group or ()
        ]

    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": pod.metadata.name, "annotations": dict(pod.annotations)},
        "spec": {
            "initContainers": containers(pod.spec.init_containers),
            "containers": containers(pod.spec.containers),
        }
        | ({"nodeName": pod.node_name} if pod.node_name else {}),
    }


class Scheduler:
    """kube-scheduler's side of one extender."""

    def __init__(self, extender: Extender, *, url: str, http: httpx.AsyncClient) -> None:
        self.extender = extender
        self.url = url
        self.http = http

    async def post(self, path: str, body: object) -> httpx.Response:
        """POST a body as it is (bytes) or as JSON."""
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return await self.http.post(f"{self.url}{path}", content=content)

    async def filter(self, pod: Mapping[str, Any], *, nodes: Sequence[str]) -> dict[str, Any]:
        """filter by names, as with `nodeCacheCapable: true`."""
        args = {"Pod": pod, "Nodes": None, "NodeNames": list(nodes)}
        answer = await self.post(f"{PREFIX}/filter", args)
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()
        return result

    async def prioritize(self, pod: Mapping[str, Any], *, nodes: Sequence[str]) -> dict[str, int]:
        """Scores by node."""
        args = {"Pod": pod, "Nodes": None, "NodeNames": list(nodes)}
        answer = await self.post(f"{PREFIX}/prioritize", args)
        return {item["Host"]: item["Score"] for item in answer.json()}

    async def bind(self, pod: Mapping[str, Any], *, node: str) -> str:
        """bind; the answer's `Error`, empty for success."""
        meta = pod["metadata"]
        args = {
            "PodName": meta["name"],
            "PodNamespace": meta["namespace"],
            "PodUID": meta["uid"],
            "Node": node,
        }
        answer = await self.post(f"{PREFIX}/bind", args)
        assert answer.status_code == 200, answer.text
        error: str = answer.json()["Error"]
        return error

    async def inspect(self, node: str) -> dict[str, Any]:
        """One node as `inspect` shows it."""
        answer = await self.http.get(f"{self.url}{PREFIX}/inspect/{node}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()["nodes"][0]
        return found

    async def free(self, node: str) -> list[int]:
        """Units left per card."""
        return [card["freeGPU"] for card in (await self.inspect(node))["devs"]]

    async def fits(self, pod: Mapping[str, Any], *, node: str) -> bool:
        """Whether filter lets the pod on the node."""
        names: list[str] = (await self.filter(pod, nodes=[node]))["NodeNames"]
        return names == [node]

    async def seen(self, uid: str, *, standing: str = "seen") -> None:
        """Wait until the pod's booking has this standing."""
        ledger = self.extender.ledger

        def reached() -> bool:
            booking = ledger.booking(uid)
            return booking is not None and booking.standing.value == standing

        await until(reached, what=f"booking of {uid} is {standing}")

    async def released(self, uid: str) -> None:
        """Wait until the pod holds nothing."""
        await until(lambda: self.extender.ledger.booking(uid) is None, what=f"{uid} is released")

    async def seen_nodes(self, *nodes: str) -> None:
        """Wait until the extender knows these nodes."""
        known = self.extender.ledger.known_nodes
        await until(lambda: set(nodes) <= set(known()), what=f"{nodes} are seen")

    async def shut(self, node: str) -> None:
        """Wait until the node takes nobody."""
        await until(lambda: self.extender.ledger.view(node).problem, what=f"{node} is closed")


class Cluster:
    """The API server and what users do to it."""

    def __init__(self, api: ApiServer, *, folder: Path, http: httpx.AsyncClient) -> None:
        self.api = api
        self.faults = api.faults
        self.kubeconfig = api.kubeconfig(folder / "kubeconfig")
        self._http = http

    @contextlib.asynccontextmanager
    async def extender(
        self,
        *,
        policy: Policy = Policy.BINPACK,
        unit: str = "MiB",
        synced: bool = True,
        client: str = "gpushare-extender",
    ) -> AsyncIterator[Scheduler]:
        """An extender serving on a free port; `client` is its User-Agent, which faults can name."""
        listener = open_socket("127.0.0.1:0")
        async with await KubeApi.connect(self.kubeconfig, user_agent=client) as api:
            extender = Extender(api, names=NAMES, unit=unit, policy=policy)
            async with extender.running():
                server = http_server(create_app(extender))
                serving = asyncio.create_task(server.serve(sockets=[listener]))
                url = f"http://127.0.0.1:{listener.getsockname()[1]}"
                if synced:
                    await asyncio.wait_for(extender.synced(), 10)
                try:
                    yield Scheduler(extender, url=url, http=self._http)
                finally:
                    server.stop()
                    await serving

    async def request(self, method: str, path: str, body: object = None, **options: Any) -> dict[str, Any]:
        """A user's request to the API server; fails on a refusal."""
        content = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": options.pop("content_type", "application/json")}
        answer = await self._http.request(
            method, f"{self.api.url}{path}", content=content, headers=headers, **options
        )
        assert answer.status_code < 300, answer.text
        result: dict[str, Any] = answer.json()
        return result

    async def node(self, name: str, *, cards: Sequence[int | Card], **options: Any) -> None:
        """Create a node, or give it other cards."""
        node = build.node(name, cards=cards, **options)
        status = {"capacity": dict(node.capacity) | {"cpu": "8", "memory": "64Gi", "pods": "110"}}
        metadata = {"name": name, "annotations": dict(node.annotations)}
        exists = any(found["metadata"]["name"] == name for found in self.api.objects("nodes"))
        if exists:
            patch = {"metadata": {"annotations": dict(node.annotations)}}
            await self.patch(f"/api/v1/nodes/{name}", patch)
            await self.patch(f"/api/v1/nodes/{name}/status", {"status": status})
        else:
            body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}
            await self.request("POST", "/api/v1/nodes", body)

    async def patch(self, path: str, body: object) -> dict[str, Any]:
        """A merge patch."""
        return await self.request("PATCH", path, body, content_type="application/merge-patch+json")

    async def pod(
        self, name: str, memory: int | str | None = None, *, slots: int | str | None = None, **options: Any
    ) -> dict[str, Any]:
        """Create a pod of one container (or of `containers` and `init`, see `build.pod`)."""
        return await self.create(build.pod(name, memory=memory, slots=slots, **options))

    async def create(self, pod: Pod) -> dict[str, Any]:
        """Create a pod as a user would: the API server gives it its UID and canonical quantities."""
        return await self.request("POST", PODS, manifest(pod))

    async def live(self, name: str) -> dict[str, Any]:
        """A pod as the API server has it."""
        return await self.request("GET", f"{PODS}/{name}")

    async def card_of(self, name: str) -> str | None:
        """The card index written on a pod."""
        annotations = (await self.live(name))["metadata"].get("annotations", {})
        index: str | None = annotations.get(NAMES.index)
        return index

    async def phase(self, name: str, phase: str) -> None:
        """Let a pod's containers end, say."""
        await self.patch(f"{PODS}/{name}/status", {"status": {"phase": phase}})

    async def delete(self, name: str, *, grace: int = 0) -> None:
        """Delete a pod; with `grace` it stays, marked, until its kubelet lets go."""
        await self.request("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": grace})


async def known(scheduler: Scheduler, *nodes: str) -> None:
    """Wait until the extender has seen these nodes."""
    await until(lambda: set(nodes) <= set(scheduler.extender.ledger.known_nodes()), what=f"{nodes} seen")
