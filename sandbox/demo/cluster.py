"""The demo's cluster: API server, extender and nodes, each a process, over real sockets.

The demo's own process plays the rest of the control plane: the scheduler and the Deployment controller.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import aiohttp
import yaml

from gpushare.names import Names
from kubeapi.client import KubeApi
from kubeapi.errors import ApiError
from sandbox.demo.board import Board
from sandbox.demo.processes import DemoError, Processes
from sandbox.demo.screen import Screen
from sandbox.kubelet.kubelet import CONTAINERS
from sandbox.scheduler import ExtenderClient, ExtenderSettings, Scheduler, SchedulerSettings

START_SECONDS = 25.0
"""For the first programs to come up; a busy machine with two cores needs a quarter of it."""
STEP_SECONDS = 30.0
_LOOK_SECONDS = 0.05
_NAMESPACE, _SERVICE, _PORT = "gpushare-system", "gpushare-scheduler", "view"  # the chart's
_COLLECTIONS = {
    "Pod": "/api/v1/namespaces/{}/pods",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "Namespace": "/api/v1/namespaces",
    "Service": "/api/v1/namespaces/{}/services",
    "EndpointSlice": "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
}

Environments = Mapping[tuple[str, str], Mapping[str, Mapping[str, str]]]
"""(namespace, pod) → container → the environment it was started with."""


class Cluster:
    """The cluster. An async context manager: leaving it ends what runs in the demo's own process."""

    def __init__(self, *, folder: Path, processes: Processes, screen: Screen) -> None:
        self.names = Names.of()
        self._folder = folder
        self._processes = processes
        self._screen = screen
        self._api_port, self._extender_port = _free_ports(2)
        self.kubeconfig = folder / "kubeconfig"
        self._inspect = f"http://127.0.0.1:{self._extender_port}/gpushare-scheduler/inspect"
        self.page = f"http://127.0.0.1:{self._extender_port}/ui/"
        self._open = contextlib.AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self._api: KubeApi
        self._http: aiohttp.ClientSession
        self.board: Board

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._open.aclose()

    def check(self) -> None:
        """Raise `DemoError` if a part of the cluster has ended."""
        self._processes.check()
        for task in self._tasks:
            if task.done():
                raise DemoError(f"a part of the demo's own process has ended: {task.exception()!r}")

    # Start.

    async def start(self) -> None:
        """Start API server and extender, and watch."""
        self.kubeconfig.write_text(_kubeconfig(f"http://127.0.0.1:{self._api_port}"))
        self._processes.start(
            "api",
            "gpushare-sandbox",
            "api",
            f"--listen=127.0.0.1:{self._api_port}",
            f"--mutating-webhook=http://127.0.0.1:{self._extender_port}/admission/mutate",
        )
        self._processes.start(
            "extender",
            "gpushare-extender",
            f"--kubeconfig={self.kubeconfig}",
            f"--listen=127.0.0.1:{self._extender_port}",
            "--ui",
        )
        self._api = await self._open.enter_async_context(
            await KubeApi.connect(self.kubeconfig, user_agent="gpushare-sandbox-demo")
        )
        self.board = Board(
            self._api,
            names=self.names,
            changed=lambda: self._screen.show(self.board),
            alive=self.check,
        )
        self._http = await self._open.enter_async_context(aiohttp.ClientSession())
        self._tasks += [asyncio.create_task(watch.run()) for watch in self.board.watches()]
        await self.board.until(
            lambda: all(watch.synced.is_set() for watch in self.board.watches()),
            what="the API server answers",
            seconds=START_SECONDS,
        )
        for manifest in _service_manifests(port=self._extender_port):
            await self._create(manifest)

    def add_node(self, name: str, *, cards: Sequence[int]) -> None:
        """Start a node's kubelet and device plugin."""
        kubelet = self._folder / name
        kubelet.mkdir()
        file = self._folder / f"{name}.yaml"
        listed = [
            {"uuid": f"GPU-{name}-{index}", "memory": memory, "model": "Tesla V100-PCIE-16GB"}
            for index, memory in enumerate(cards)
        ]
        file.write_text(yaml.safe_dump({"cards": listed}))
        where = (f"--kubeconfig={self.kubeconfig}", f"--node-name={name}", f"--kubelet-dir={kubelet}")
        self._processes.start(f"kubelet-{name}", "gpushare-sandbox", "node", *where)
        self._processes.start(f"plugin-{name}", "gpushare-device-plugin", f"--cards={file}", *where)

    async def nodes_ready(self, names: Sequence[str]) -> None:
        """Wait until these nodes announce their cards and the extender has seen them."""

        def ready() -> bool:
            return set(names) <= {node.name for node in self.board.nodes() if node.is_ready}

        await self.board.until(ready, what=f"{' '.join(names)} announce cards", seconds=START_SECONDS)
        async with asyncio.timeout(STEP_SECONDS):
            while not set(names) <= (await self.inspect()).keys():
                self.check()
                await asyncio.sleep(_LOOK_SECONDS)

    async def schedule(self) -> None:
        """Start the scheduler."""
        url = self._inspect.removesuffix("/inspect")
        client = await self._open.enter_async_context(ExtenderClient(ExtenderSettings(url=url)))
        settings = SchedulerSettings(first_backoff=0.2, longest_backoff=1.0)
        scheduler = Scheduler(api=self._api, extender=client, settings=settings)
        self._tasks.append(asyncio.create_task(scheduler.run()))

    # What users and controllers do.

    async def apply(self, manifest: Mapping[str, Any]) -> list[str]:
        """Create an object, and what its controller would; answers the names of the pods."""
        created = await self._create(manifest)
        if manifest["kind"] == "Pod":
            return [created["metadata"]["name"]]
        pods = []
        for _ in range(created["spec"].get("replicas", 1)):
            pod = await self._create(_replica(created))
            pods.append(pod["metadata"]["name"])
        return pods

    async def _create(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        collection = _COLLECTIONS.get(manifest["kind"])
        if collection is None:
            raise DemoError(f"the demo cannot create a {manifest['kind']}")
        path = collection.format(manifest["metadata"].get("namespace", "default"))
        try:
            answer = (await self._api.request("POST", path, body=manifest)).checked()
        except ApiError as error:
            name = manifest["metadata"].get("name") or manifest["metadata"].get("generateName")
            raise DemoError(f"{manifest['kind']} {name} cannot be created: {error}") from error
        created: dict[str, Any] = answer.json()
        return created

    async def running(self, pods: Sequence[str]) -> None:
        """Wait until these pods run; raises `DemoError` for one that never will."""

        def all_run() -> bool:
            known = {pod.name: pod for pod in self.board.pods()}
            failed = [pod.key for pod in known.values() if pod.phase == "Failed"]
            if failed:
                raise DemoError(f"kubelet did not admit {' '.join(failed)}")
            return all(name in known and known[name].is_running for name in pods)

        await self.board.until(all_run, what=f"{' '.join(pods)} running", seconds=STEP_SECONDS)

    async def refused(self, pod: str) -> None:
        """Wait until the scheduler has said why a pod has no node."""

        def said() -> bool:
            found = self.board.pod(pod)
            return found is not None and bool(found.refusal)

        await self.board.until(said, what=f"{pod} is refused", seconds=STEP_SECONDS)

    # What is looked at in the end.

    async def inspect(self) -> Mapping[str, Mapping[int, int]]:
        """What the extender has booked: node → card → units. Empty while it does not answer."""
        try:
            async with self._http.get(self._inspect) as answer:
                inspection = await answer.json()
        except (aiohttp.ClientError, OSError):
            return {}
        return {
            node["name"]: {card["id"]: card["usedGPU"] for card in node["devs"]}
            for node in inspection["nodes"]
        }

    def environments(self) -> Environments:
        """What the containers were started with, as every kubelet recorded it."""
        found: dict[tuple[str, str], Mapping[str, Mapping[str, str]]] = {}
        for file in self._folder.glob(f"*/{CONTAINERS}"):
            for pod in json.loads(file.read_text()):
                found[pod["namespace"], pod["pod"]] = pod["containers"]
        return found


def _replica(deployment: Mapping[str, Any]) -> dict[str, Any]:
    """The pod that the controllers would make of a Deployment's template."""
    metadata = deployment["metadata"]
    owner = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }
    template = deployment["spec"]["template"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **template.get("metadata", {}),
            "namespace": metadata["namespace"],
            "generateName": f"{metadata['name']}-",
            "ownerReferences": [owner],
        },
        "spec": template["spec"],
    }


def _service_manifests(*, port: int) -> list[dict[str, Any]]:
    """What leads from the API server to the extender's port, as the chart and its controllers make it."""
    labels = {"app.kubernetes.io/name": "gpushare", "app.kubernetes.io/component": "scheduler"}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": _SERVICE, "namespace": _NAMESPACE, "labels": labels},
            "spec": {"ports": [{"name": _PORT, "port": port}]},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": f"{_SERVICE}-1",
                "namespace": _NAMESPACE,
                "labels": {"kubernetes.io/service-name": _SERVICE},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["127.0.0.1"]}],
            "ports": [{"name": _PORT, "port": port}],
        },
    ]


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now; all are held until all are known, so that they differ."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


def _kubeconfig(server: str) -> str:
    """Written before the API server is up, so that its clients can start beside it."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "demo", "cluster": {"server": server}}],
        "users": [{"name": "demo", "user": {}}],
        "contexts": [{"name": "demo", "context": {"cluster": "demo", "user": "demo"}}],
        "current-context": "demo",
    }
    return json.dumps(config)
