"""A device plugin of a few lines, for the tests of the kubelet stand-in."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path

import grpc.aio

from deviceplugin.kubeletapi import deviceplugin_v1beta1_pb2 as v1beta1
from deviceplugin.kubeletapi import deviceplugin_v1beta1_pb2_grpc as v1beta1_grpc

RESOURCE = "test.example/unit"


class FakePlugin(v1beta1_grpc.DevicePluginServicer):
    """Announces IDs, answers Allocate with an environment that names them, and notes what it was asked."""

    def __init__(
        self,
        *,
        folder: Path,
        ids: Iterable[str],
        resource: str = RESOURCE,
        endpoint: str = "fake.sock",
        prefers: Callable[[v1beta1.ContainerPreferredAllocationRequest], list[str]] | None = None,
    ) -> None:
        self.folder = folder
        self.resource = resource
        self.endpoint = endpoint
        self.prefers = prefers
        self.allocate_with: Callable[[list[str]], Awaitable[None]] | None = None
        self.preferred_requests: list[v1beta1.ContainerPreferredAllocationRequest] = []
        self._devices = dict.fromkeys(ids, "Healthy")
        self._changed = asyncio.Condition()
        self._is_ended = False
        self.stream_closed = asyncio.Event()
        self._server: grpc.aio.Server | None = None

    async def serve(self) -> None:
        """Open the plugin's own socket."""
        self._is_ended = False
        self._server = grpc.aio.server()
        v1beta1_grpc.add_DevicePluginServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self.folder / self.endpoint}")
        await self._server.start()

    async def register(self, *, version: str = "v1beta1") -> None:
        """Tell kubelet."""
        async with grpc.aio.insecure_channel(f"unix:{self.folder / 'kubelet.sock'}") as channel:
            await v1beta1_grpc.RegistrationStub(channel).Register(
                v1beta1.RegisterRequest(version=version, endpoint=self.endpoint, resource_name=self.resource)
            )

    async def announce(self, changes: dict[str, str]) -> None:
        """Change devices' health, or add devices, and send the new list."""
        async with self._changed:
            self._devices |= changes
            self._changed.notify_all()

    async def end_stream(self) -> None:
        """End ListAndWatch, as a plugin does that goes away in order."""
        async with self._changed:
            self._is_ended = True
            self._changed.notify_all()

    async def stop(self) -> None:
        """Die."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    async def GetDevicePluginOptions(
        self,
        request: v1beta1.Empty,
        context: grpc.aio.ServicerContext[v1beta1.Empty, v1beta1.DevicePluginOptions],
    ) -> v1beta1.DevicePluginOptions:
        return v1beta1.DevicePluginOptions(get_preferred_allocation_available=self.prefers is not None)

    async def ListAndWatch(
        self,
        request: v1beta1.Empty,
        context: grpc.aio.ServicerContext[v1beta1.Empty, v1beta1.ListAndWatchResponse],
    ) -> AsyncIterator[v1beta1.ListAndWatchResponse]:
        self.stream_closed.clear()
        try:
            while not self._is_ended:
                sent = dict(self._devices)
                yield v1beta1.ListAndWatchResponse(
                    devices=[v1beta1.Device(ID=device, health=state) for device, state in sent.items()]
                )
                async with self._changed:
                    while not self._is_ended and self._devices == sent:
                        await self._changed.wait()
        finally:
            self.stream_closed.set()

    async def GetPreferredAllocation(
        self,
        request: v1beta1.PreferredAllocationRequest,
        context: grpc.aio.ServicerContext[
            v1beta1.PreferredAllocationRequest, v1beta1.PreferredAllocationResponse
        ],
    ) -> v1beta1.PreferredAllocationResponse:
        assert self.prefers is not None
        [asked] = request.container_requests
        self.preferred_requests.append(asked)
        return v1beta1.PreferredAllocationResponse(
            container_responses=[v1beta1.ContainerPreferredAllocationResponse(deviceIDs=self.prefers(asked))]
        )

    async def Allocate(
        self,
        request: v1beta1.AllocateRequest,
        context: grpc.aio.ServicerContext[v1beta1.AllocateRequest, v1beta1.AllocateResponse],
    ) -> v1beta1.AllocateResponse:
        [asked] = request.container_requests
        ids = list(asked.devicesIDs)
        if self.allocate_with is not None:
            try:
                await self.allocate_with(ids)
            except LookupError as error:
                await context.abort(grpc.StatusCode.NOT_FOUND, str(error.args[0]))
        envs = {"UNITS": str(len(ids)), "FIRST": min(ids), "OWN": "plugin"}
        return v1beta1.AllocateResponse(container_responses=[v1beta1.ContainerAllocateResponse(envs=envs)])
