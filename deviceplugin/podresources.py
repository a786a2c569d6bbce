"""kubelet's own list of pods and the devices they hold, over its PodResources socket."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import grpc.aio

from deviceplugin.kubeletapi import podresources_v1_pb2 as v1
from deviceplugin.kubeletapi import podresources_v1_pb2_grpc as v1_grpc
from deviceplugin.matching import Listed
from deviceplugin.sockets import missing

_OPTIONS = [
    # kubelet sends up to 16 MiB here (1.36); gRPC receives 4 MiB by default.
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
    # A connection of its own: no backing off from a kubelet that was away a moment ago.
    ("grpc.use_local_subchannel_pool", 1),
]


class KubeletSilent(Exception):  # noqa: N818 — reads as the state it names
    """PodResources is out of reach, or does not answer in time."""


class PodResources(Protocol):
    """Whoever knows the pods that kubelet has admitted or is admitting."""

    async def pods(self, *, resource: str, timeout: float) -> tuple[Listed, ...]:  # noqa: ASYNC109
        """Every active pod with the devices it holds of a resource.

        Raises `KubeletSilent` after `timeout` seconds.
        """


class KubeletPods:
    """The real side: one short connection per question, since kubelet re-creates its socket."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def pods(self, *, resource: str, timeout: float) -> tuple[Listed, ...]:  # noqa: ASYNC109
        """Ask kubelet; see `PodResources`."""
        try:
            async with grpc.aio.insecure_channel(f"unix:{self._socket}", options=_OPTIONS) as channel:
                stub = v1_grpc.PodResourcesListerStub(channel)
                answer = await stub.List(v1.ListPodResourcesRequest(), timeout=timeout)
        except grpc.aio.AioRpcError as error:
            reason = missing(self._socket) or f"{error.code().name}: {error.details()}"
            raise KubeletSilent(reason) from error
        return tuple(
            Listed(namespace=pod.namespace, name=pod.name, held=_held(pod, resource=resource))
            for pod in answer.pod_resources
        )


def _held(pod: v1.PodResources, *, resource: str) -> dict[str, frozenset[str]]:
    held: dict[str, frozenset[str]] = {}
    for container in pod.containers:
        ids = {
            device
            for devices in container.devices
            if devices.resource_name == resource
            for device in devices.device_ids
        }
        if ids:
            held[container.name] = frozenset(ids)
    return held
