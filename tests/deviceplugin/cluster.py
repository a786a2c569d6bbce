"""A node with the plugin on it, in one process: API server and kubelet stand-ins over real sockets."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc.aio
import yaml

from deviceplugin.kubeletapi import deviceplugin_v1beta1_pb2 as v1beta1
from deviceplugin.kubeletapi import deviceplugin_v1beta1_pb2_grpc as v1beta1_grpc
from deviceplugin.plugin import Plugin
from deviceplugin.simulated import SimulatedCards
from deviceplugin.sources import CardSource
from gpushare.cards import Card
from kubeapi.client import KubeApi
from sandbox.apiserver import ApiServer
from sandbox.kubelet import Node, NodeSettings
from sandbox.kubelet.devices import Allocation
from tests.deviceplugin.pods import NAMES, NODE, C, binding_annotations, manifest

AGENT = "plugin-under-test"


class Cluster:
    """One API server, one node, and plugins started and stopped at will."""

    def __init__(self, *, server: ApiServer, api: KubeApi, node: Node, folder: Path) -> None:
        self.server = server
        self.api = api
        self.node = node
        self.folder = folder
        self.cards_file = folder / "cards" / "cards.yaml"
        self.cards: tuple[Card, ...] = ()

    def write_cards(self, *cards: Mapping[str, Any]) -> None:
        """Set the node's simulated cards; a running plugin follows."""
        self.cards_file.parent.mkdir(exist_ok=True)
        self.cards_file.write_text(yaml.safe_dump({"cards": list(cards)}))
        self.cards = SimulatedCards(self.cards_file)._cards

    @contextlib.asynccontextmanager
    async def plugin(
        self, *, ready: bool = True, slots: int = 4, source: CardSource | None = None, **options: Any
    ) -> AsyncIterator[Plugin]:
        """Run a plugin, with API connections of its own, and wait until it is ready.

        Its cards are the simulated ones unless there is another source; `options` are its own.
        """
        config = self.server.kubeconfig(self.folder / "kubeconfig")
        async with (
            await KubeApi.connect(config, user_agent=AGENT) as api,
            Plugin(
                api=api,
                source=source or SimulatedCards(self.cards_file),
                node=NODE,
                kubelet_dir=self.folder,
                names=NAMES,
                slots=slots,
                **options,
            ) as plugin,
        ):
            if ready:
                await until(lambda: not plugin.problems(), what=plugin.problems)
                assert plugin.inventory.cards is not None
                cards = plugin.inventory.cards.cards
                if options.get("mode") == "units":
                    units = sum(card.memory for card in cards)
                    await until(lambda: self.units_known()[0] == units, what=self.units_known)
                else:
                    listed = sum(card.healthy for card in cards) * slots
                    await until(lambda: self.slots_known() == listed, what=self.slots_known)
            yield plugin

    def slots_known(self) -> int:
        """How many slots kubelet counts."""
        count = self.node.kubelet.counts().get(NAMES.slot)
        return count.allocatable if count else 0

    def units_known(self) -> tuple[int, int]:
        """How many units of memory kubelet counts in units mode, and how many of them are healthy."""
        count = self.node.kubelet.counts().get(NAMES.memory)
        return (count.capacity, count.allocatable) if count else (0, 0)

    def recorded(self, name: str, container: str = "main", *, resource: str = NAMES.slot) -> Allocation:
        """What kubelet wrote down of a container: its devices and the plugin's response."""
        allocation = self.node.kubelet.devices.allocation(
            pod_uid=self.pod(name)["metadata"]["uid"], container=container, resource=resource
        )
        assert allocation is not None
        return allocation

    async def create(self, name: str, *containers: C) -> dict[str, Any]:
        """Create an unbound pod."""
        answer = await self.api.request(
            "POST", "/api/v1/namespaces/default/pods", body=manifest(name, *containers)
        )
        pod: dict[str, Any] = answer.checked().json()
        return pod

    async def bind(
        self, pod: Mapping[str, Any], *indices: int, annotations: Mapping[str, str] | None = None
    ) -> None:
        """Bind a pod to cards of the node, as the extender does; with no card, past the scheduler."""
        if annotations is None:
            cards = [self.cards[index] for index in indices]
            annotations = binding_annotations(pod, cards=cards) if cards else {}
        name = pod["metadata"]["name"]
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "annotations": dict(annotations)},
            "target": {"kind": "Node", "name": NODE},
        }
        path = f"/api/v1/namespaces/default/pods/{name}/binding"
        (await self.api.request("POST", path, body=body)).checked()

    async def run(self, name: str, *containers: C, cards: Sequence[int]) -> dict[str, dict[str, str]]:
        """Create and bind a pod and return the environment of its containers, once it runs."""
        await self.bind(await self.create(name, *containers), *cards)
        return await self.environment(name)

    async def environment(self, name: str) -> dict[str, dict[str, str]]:
        """What a pod's containers were started with, as soon as they are."""
        await self.node.journal.wait_for(lambda: self.key(name) in self.node.containers)
        return {name: dict(env) for name, env in self.node.containers[self.key(name)].items()}

    async def refusal(self, name: str) -> str:
        """Why a pod failed at admission, as its status says."""
        await until(lambda: self.pod(name)["status"].get("phase") == "Failed", what=lambda: self.pod(name))
        return str(self.pod(name)["status"]["message"])

    def key(self, name: str) -> tuple[str, str]:
        return "default", name

    def pod(self, name: str) -> dict[str, Any]:
        """A pod as the API has it."""
        return next(pod for pod in self.server.objects("pods") if pod["metadata"]["name"] == name)

    def annotation(self, name: str, key: str) -> str | None:
        """A pod's annotation as the API has it."""
        value = self.pod(name)["metadata"].get("annotations", {}).get(key)
        return None if value is None else str(value)

    def node_object(self) -> dict[str, Any]:
        """The node as the API has it."""
        return next(node for node in self.server.objects("nodes") if node["metadata"]["name"] == NODE)

    async def delete(self, name: str) -> None:
        """Delete a pod without grace."""
        path = f"/api/v1/namespaces/default/pods/{name}"
        (await self.api.request("DELETE", path, body={"gracePeriodSeconds": 0})).checked()

    async def allocate(self, *ids: str, resource: str = NAMES.slot) -> dict[str, str]:
        """Call Allocate by hand; raises AioRpcError."""
        socket = self.folder / "device-plugins" / f"{resource.replace('/', '_')}.sock"
        async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
            request = v1beta1.AllocateRequest(
                container_requests=[v1beta1.ContainerAllocateRequest(devicesIDs=ids)]
            )
            answer = await v1beta1_grpc.DevicePluginStub(channel).Allocate(request)
            return dict(answer.container_responses[0].envs)


async def until(predicate: Callable[[], bool], *, what: Callable[[], object], deadline: float = 8.0) -> None:
    """Return as soon as the predicate holds, which nobody announces; TimeoutError says how things stand."""
    try:
        async with asyncio.timeout(deadline):
            while not predicate():  # noqa: ASYNC110 — what is waited for has no event
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise TimeoutError(f"not within {deadline} s: {what()}") from None


@contextlib.asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    """A cluster with one node of two cards; no plugin runs yet."""
    async with ApiServer() as server:
        config = server.kubeconfig(folder / "test.kubeconfig")
        async with await KubeApi.connect(config, user_agent="test") as api:
            node = Node(api=api, settings=NodeSettings(name=NODE, kubelet_dir=folder))
            await node.start()
            await node.ready()
            it = Cluster(server=server, api=api, node=node, folder=folder)
            it.write_cards({"uuid": "GPU-0", "memory": 16000}, {"uuid": "GPU-1", "memory": 8000})
            try:
                yield it
            finally:
                await node.stop()
