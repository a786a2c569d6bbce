"""The two gRPC servers that kubelet runs on its node: Registration and PodResources."""

import re
from pathlib import Path
from typing import Protocol

import grpc.aio

from deviceplugin.kubeletapi import deviceplugin_v1beta1_pb2 as v1beta1
from deviceplugin.kubeletapi import deviceplugin_v1beta1_pb2_grpc as v1beta1_grpc
from deviceplugin.kubeletapi import podresources_v1_pb2 as v1
from deviceplugin.kubeletapi import podresources_v1_pb2_grpc as v1_grpc

VERSION = "v1beta1"
"""The one version of the device plugin API (1.36)."""
LONGEST_SOCKET_PATH = 107
"""Bytes that Linux has room for in a unix socket's address, less the closing zero."""

# An extended resource as kubelet sees it (1.36): a domain, not Kubernetes' own, then a name.
_RESOURCE = re.compile(
    r"(?P<domain>[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?)/[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?", re.ASCII
)


class SocketPathError(ValueError):
    """A socket's path is too long for a unix socket."""


class PluginRegistry(Protocol):
    """What the Registration service needs of kubelet."""

    async def register(self, *, resource: str, endpoint: str) -> None:
        """Connect to a plugin; raises TimeoutError or AioRpcError."""


class PodLister(Protocol):
    """What the PodResources service needs of kubelet."""

    def pod_resources(self) -> list[v1.PodResources]:
        """Every active pod with its devices."""

    def allocatable_devices(self) -> list[v1.ContainerDevices]:
        """Every healthy device."""


def check_socket_path(path: Path) -> None:
    """Raise `SocketPathError` if a socket cannot have this path."""
    length = len(bytes(path))
    if length > LONGEST_SOCKET_PATH:
        raise SocketPathError(
            f"{path} has {length} bytes; a unix socket's path can have {LONGEST_SOCKET_PATH}: "
            "choose a shorter folder"
        )


def is_extended_resource(name: str) -> bool:
    """Whether kubelet lets a plugin register this name."""
    match = _RESOURCE.fullmatch(name)
    return match is not None and not f".{match['domain']}".endswith(".kubernetes.io")


async def serve_registration(*, socket: Path, registry: PluginRegistry) -> grpc.aio.Server:
    """Serve Registration on a socket."""
    server = grpc.aio.server()
    v1beta1_grpc.add_RegistrationServicer_to_server(_Registration(registry), server)
    return await _start(server=server, socket=socket)


async def serve_pod_resources(*, socket: Path, pods: PodLister) -> grpc.aio.Server:
    """Serve PodResourcesLister on a socket."""
    server = grpc.aio.server()
    v1_grpc.add_PodResourcesListerServicer_to_server(_PodResources(pods), server)
    return await _start(server=server, socket=socket)


async def _start(*, server: grpc.aio.Server, socket: Path) -> grpc.aio.Server:
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    return server


class _Registration(v1beta1_grpc.RegistrationServicer):
    def __init__(self, registry: PluginRegistry) -> None:
        self._registry = registry

    async def Register(  # noqa: N802
        self,
        request: v1beta1.RegisterRequest,
        context: grpc.aio.ServicerContext[v1beta1.RegisterRequest, v1beta1.Empty],
    ) -> v1beta1.Empty:
        # kubelet returns plain Go errors here, which reach the plugin with the code Unknown.
        if request.version != VERSION:
            await context.abort(
                grpc.StatusCode.UNKNOWN,
                f'requested API version "{request.version}" is not supported by kubelet. '
                f'Supported version is ["{VERSION}"]',
            )
        if not is_extended_resource(request.resource_name):
            await context.abort(
                grpc.StatusCode.UNKNOWN, f'the ResourceName "{request.resource_name}" is invalid'
            )
        try:
            await self._registry.register(resource=request.resource_name, endpoint=request.endpoint)
        except (TimeoutError, grpc.aio.AioRpcError) as error:
            await context.abort(grpc.StatusCode.UNKNOWN, f"failed to dial device plugin: {error}")
        return v1beta1.Empty()


class _PodResources(v1_grpc.PodResourcesListerServicer):
    def __init__(self, pods: PodLister) -> None:
        self._pods = pods

    async def List(  # noqa: N802
        self,
        request: v1.ListPodResourcesRequest,
        context: grpc.aio.ServicerContext[v1.ListPodResourcesRequest, v1.ListPodResourcesResponse],
    ) -> v1.ListPodResourcesResponse:
        return v1.ListPodResourcesResponse(pod_resources=self._pods.pod_resources())

    async def GetAllocatableResources(  # noqa: N802
        self,
        request: v1.AllocatableResourcesRequest,
        context: grpc.aio.ServicerContext[v1.AllocatableResourcesRequest, v1.AllocatableResourcesResponse],
    ) -> v1.AllocatableResourcesResponse:
        return v1.AllocatableResourcesResponse(devices=self._pods.allocatable_devices())

    async def Get(  # noqa: N802
        self,
        request: v1.GetPodResourcesRequest,
        context: grpc.aio.ServicerContext[v1.GetPodResourcesRequest, v1.GetPodResourcesResponse],
    ) -> v1.GetPodResourcesResponse:
        for pod in self._pods.pod_resources():
            if (pod.namespace, pod.name) == (request.pod_namespace, request.pod_name):
                return v1.GetPodResourcesResponse(pod_resources=pod)
        # What kubelet returns is a plain Go error: code Unknown.
        await context.abort(
            grpc.StatusCode.UNKNOWN, f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
        )
        raise AssertionError("abort raises")
