"""The part of kubelet that device plugins meet: it knows pods and plugins, and no API server.

Everything runs on one event loop; between two awaits the state is consistent. Nothing here keeps two
admissions apart: that pods are admitted one at a time is up to the caller, so that a test can do otherwise.
"""

import asyncio
import contextlib
import json
import random
from collections.abc import Awaitable, Callable, Collection, Iterable
from pathlib import Path

import grpc.aio

from deviceplugin.kubeletapi import deviceplugin_v1beta1_pb2 as v1beta1
from deviceplugin.kubeletapi import podresources_v1_pb2 as v1
from gpushare.errors import QuantityError
from sandbox.kubelet import servers
from sandbox.kubelet.devices import CHECKPOINT, Allocation, AllocationError, Count, Devices
from sandbox.kubelet.endpoint import PluginEndpoint
from sandbox.kubelet.journal import Call, Journal
from sandbox.kubelet.pods import Container, Pod

CAPACITY_GRACE = 300.0
"""Seconds from a plugin's end until its resource's capacity drops to zero as well (1.36)."""


CONTAINERS = "containers.json"
"""File in kubelet's folder: the running containers of each pod with their environment."""


class AdmissionRefused(Exception):  # noqa: N818
    """A pod was refused: `reason` and the message go into its status, phase Failed."""

    reason = "UnexpectedAdmissionError"

    def __init__(self, cause: Exception) -> None:
        # kubelet's words, 1.36.
        super().__init__(f"Pod was rejected: Allocate failed due to {cause}, which is unexpected")


class Kubelet:
    """kubelet's device manager and pod list over real sockets below one folder."""

    def __init__(self, *, folder: Path, capacity_grace: float = CAPACITY_GRACE, seed: int = 0) -> None:
        """`seed` decides which of several equal devices are taken: Go's maps have no order either."""
        self._folder = folder
        self.plugin_folder = folder / "device-plugins"
        self.registration_socket = self.plugin_folder / "kubelet.sock"
        self.pod_resources_socket = folder / "pod-resources" / "kubelet.sock"
        self.journal = Journal()
        self.devices = Devices()
        self.containers: dict[tuple[str, str], dict[str, dict[str, str]]] = {}
        """(namespace, pod) → container → the environment it was started with."""
        self.before_allocate: Callable[[Call], Awaitable[None]] | None = None
        """Awaited before every Allocate: a test can hold one (`Hold`)."""
        self.pods: dict[str, Pod] = {}
        """The active pods by UID, in the order in which they were added."""
        self._running: dict[str, Pod] = {}
        self._endpoints: dict[str, PluginEndpoint] = {}
        self._expiries: dict[str, asyncio.TimerHandle] = {}
        self._servers: list[grpc.aio.Server] = []
        self._capacity_grace = capacity_grace
        self._random = random.Random(seed)

    # Life.

    async def start(self) -> None:
        """Wipe the plugins' sockets, read the checkpoint, serve; raises `SocketPathError`."""
        for socket in (self.registration_socket, self.pod_resources_socket):
            servers.check_socket_path(socket)
            socket.parent.mkdir(parents=True, exist_ok=True)
        for path in self.plugin_folder.iterdir():
            if path.is_socket():
                path.unlink()
        self.devices = Devices.load(self.plugin_folder / CHECKPOINT)
        for resource in self.devices.resources():
            self._expire_later(resource)
        self._servers = [
            await servers.serve_pod_resources(socket=self.pod_resources_socket, pods=self),
            await servers.serve_registration(socket=self.registration_socket, registry=self),
        ]

    async def stop(self) -> None:
        """Hang up on plugins and clients. Containers go on running, and the checkpoint stays."""
        for timer in self._expiries.values():
            timer.cancel()
        self._expiries.clear()
        for server in self._servers:
            await server.stop(None)
        self._servers.clear()
        for endpoint in list(self._endpoints.values()):
            await endpoint.close()
        self._endpoints.clear()
        self.pods.clear()
        for socket in (self.registration_socket, self.pod_resources_socket):
            socket.unlink(missing_ok=True)

    def reboot(self) -> None:
        """Between `stop` and `start`: the machine goes down, so no container runs any more."""
        self._running.clear()
        self.containers.clear()
        self._show_containers()

    # Plugins.

    async def register(self, *, resource: str, endpoint: str) -> None:
        """Connect to a plugin's socket; it replaces whoever registered the resource before."""
        self.journal.record(Call(method="Register", resource=resource))
        plugin = PluginEndpoint(resource=resource, socket=self.plugin_folder / endpoint, journal=self.journal)
        await plugin.connect()
        replaced = self._endpoints.get(resource)
        self._endpoints[resource] = plugin
        if timer := self._expiries.pop(resource, None):
            timer.cancel()
        if replaced is not None:
            await replaced.close()
        plugin.watch(on_devices=self._announced, on_end=self._ended)

    def _announced(self, plugin: PluginEndpoint, listed: v1beta1.ListAndWatchResponse) -> None:
        self.devices.announce(resource=plugin.resource, devices=listed.devices)
        self._save()

    def _ended(self, plugin: PluginEndpoint) -> None:
        del self._endpoints[plugin.resource]
        self.devices.disconnect(plugin.resource)
        self._expire_later(plugin.resource)

    def _expire_later(self, resource: str) -> None:
        def expire() -> None:
            self.devices.remove(resource)
            self.journal.notify()

        self._expiries[resource] = asyncio.get_running_loop().call_later(self._capacity_grace, expire)

    def counts(self) -> dict[str, Count]:
        """The plugins' resources for the node's status."""
        return self.devices.counts()

    # Pods.

    async def admit(self, pod: Pod) -> None:
        """Add a pod, get its containers' devices, start them; raises `AdmissionRefused`.

        A pod whose containers run already (kubelet came back) is only added. One that is known from the
        checkpoint gets its recorded answers without an Allocate, if its devices are healthy.
        """
        self.pods[pod.uid] = pod
        self.journal.notify()
        if pod.uid in self._running:
            return
        reusable: dict[str, set[str]] = {}
        try:
            for container in pod.containers:
                await self._allocate(pod=pod, container=container, reusable=reusable)
        except (AllocationError, QuantityError) as error:
            self.devices.recompute()
            self.forget(pod)
            raise AdmissionRefused(error) from error
        self.containers[pod.namespace, pod.name] = {
            container.name: self._environment(pod=pod, container=container) for container in pod.containers
        }
        self._running[pod.uid] = pod
        self._show_containers()
        self.journal.notify()

    async def restart_containers(self, pod: Pod) -> None:
        """Start an admitted pod's containers anew from the recorded answers; raises `AdmissionRefused`."""
        self._stop_containers(pod.uid)
        await self.admit(pod)

    def forget(self, pod: Pod) -> None:
        """A pod ended, was refused or is gone: its devices are free and it leaves the list."""
        self.pods.pop(pod.uid, None)
        self._stop_containers(pod.uid)
        self._free([pod.uid])

    def retain(self, uids: Collection[str]) -> None:
        """Every pod is known now: whatever is left of others, from before a restart, ends."""
        for uid in [uid for uid in self._running if uid not in uids]:
            self._stop_containers(uid)
        self._free(self.devices.holders() - set(uids))

    def _free(self, uids: Iterable[str]) -> None:
        if self.devices.free(uids):
            self.devices.recompute()
            self._save()
        self.journal.notify()

    def _stop_containers(self, uid: str) -> None:
        pod = self._running.pop(uid, None)
        if pod is not None:
            self.containers.pop((pod.namespace, pod.name), None)
            self._show_containers()

    def is_running(self, pod: Pod) -> bool:
        """Whether the pod's containers were started and have not ended."""
        return pod.uid in self._running

    def _environment(self, *, pod: Pod, container: Container) -> dict[str, str]:
        env: dict[str, str] = {}
        for held in self.devices.allocations(pod_uid=pod.uid, container=container.name):
            env.update(held.answer.envs)
        # kubelet appends the plugin's variables before the pod's own, and the last one wins.
        return env | dict(container.env)

    async def _allocate(self, *, pod: Pod, container: Container, reusable: dict[str, set[str]]) -> None:
        for resource in container.limits:
            if not self.devices.is_plugin_resource(resource):
                continue
            free_later = reusable.setdefault(resource, set())
            await self._allocate_resource(
                pod=pod, container=container, resource=resource, reusable=free_later
            )
            held = self.devices.allocation(pod_uid=pod.uid, container=container.name, resource=resource)
            if held is None:
                continue
            # What a plain init container held is free for every later container; the others keep theirs.
            if container.kind == "init":
                free_later |= held.device_ids
            else:
                free_later -= held.device_ids

    async def _allocate_resource(
        self, *, pod: Pod, container: Container, resource: str, reusable: set[str]
    ) -> None:
        size = container.units(resource)
        if size == 0:
            return
        if not self.devices.require(
            pod_uid=pod.uid, container=container.name, resource=resource, needed=size
        ):
            return
        chosen = self._some(reusable, count=size)
        if len(chosen) < size:
            available = self.devices.available(resource=resource, needed=size - len(chosen))
            call = Call(
                method="GetPreferredAllocation",
                resource=resource,
                pod=pod.key,
                container=container.name,
                size=size,
            )
            preferred = await self._preferred(call=call, available=available, chosen=chosen)
            # An answer counts as far as it is possible, and the rest is filled up.
            chosen |= self._some(preferred & available, count=size - len(chosen))
            chosen |= self._some(available - chosen, count=size - len(chosen))
        self.devices.mark(resource=resource, device_ids=chosen)
        ids = self._shuffled(chosen)
        call = Call(
            method="Allocate",
            resource=resource,
            pod=pod.key,
            container=container.name,
            device_ids=ids,
            size=size,
        )
        if self.before_allocate is not None:
            await self.before_allocate(call)
        self.journal.record(call)
        answer = await self._endpoint(resource).allocate(ids)
        self.devices.commit(
            Allocation(
                pod_uid=pod.uid,
                container=container.name,
                resource=resource,
                device_ids=frozenset(ids),
                answer=answer,
            )
        )
        self._save()

    async def _preferred(self, *, call: Call, available: set[str], chosen: set[str]) -> frozenset[str]:
        endpoint = self._endpoint(call.resource)
        if not endpoint.options.get_preferred_allocation_available:
            return frozenset()
        must_include = self._shuffled(chosen)
        self.journal.record(
            Call(
                method=call.method,
                resource=call.resource,
                pod=call.pod,
                container=call.container,
                must_include=must_include,
                size=call.size,
            )
        )
        return await endpoint.preferred(
            available=self._shuffled(available | chosen), must_include=must_include, size=call.size
        )

    def _endpoint(self, resource: str) -> PluginEndpoint:
        endpoint = self._endpoints.get(resource)
        if endpoint is None:
            raise AllocationError(f"unknown Device Plugin {resource}")
        return endpoint

    def _some(self, ids: Iterable[str], *, count: int) -> set[str]:
        return set(self._shuffled(ids)[:count])

    def _shuffled(self, ids: Iterable[str]) -> tuple[str, ...]:
        ordered = sorted(ids)
        self._random.shuffle(ordered)
        return tuple(ordered)

    def _save(self) -> None:
        # A stopped kubelet's folder may be gone already.
        with contextlib.suppress(FileNotFoundError):
            self.devices.save(self.plugin_folder / CHECKPOINT)

    def _show_containers(self) -> None:
        """Write what runs, for whoever looks from another process."""
        shown = [
            {"namespace": namespace, "pod": pod, "containers": containers}
            for (namespace, pod), containers in self.containers.items()
        ]
        draft = self._folder / f"{CONTAINERS}.new"
        draft.write_text(json.dumps(shown, indent=2))
        draft.replace(self._folder / CONTAINERS)

    # PodResources.

    def pod_resources(self) -> list[v1.PodResources]:
        """Every active pod with what its sidecars and app containers hold; one entry per device ID."""
        self.journal.record(Call(method="List"))
        self.devices.recompute()
        return [
            v1.PodResources(
                name=pod.name,
                namespace=pod.namespace,
                containers=[
                    v1.ContainerResources(
                        name=container.name,
                        devices=[
                            self._device(resource=held.resource, device=device)
                            for held in self.devices.allocations(pod_uid=pod.uid, container=container.name)
                            for device in sorted(held.device_ids)
                        ],
                    )
                    for container in pod.containers
                    if container.kind != "init"
                ],
            )
            for pod in self.pods.values()
        ]

    def allocatable_devices(self) -> list[v1.ContainerDevices]:
        """Every healthy device, one entry per ID."""
        return [
            self._device(resource=resource, device=device)
            for resource in self.devices.resources()
            for device in sorted(self.devices.healthy(resource))
        ]

    def _device(self, *, resource: str, device: str) -> v1.ContainerDevices:
        nodes = [v1.NUMANode(ID=node) for node in self.devices.numa(resource=resource, device=device)]
        topology = v1.TopologyInfo(nodes=nodes) if nodes else None
        return v1.ContainerDevices(resource_name=resource, device_ids=[device], topology=topology)
