"""kubelet's client of one device plugin: options, the device stream, preferred allocation, Allocate."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TypeVar

import grpc.aio

from deviceplugin.kubeletapi import deviceplugin_v1beta1_pb2 as v1beta1
from deviceplugin.kubeletapi import deviceplugin_v1beta1_pb2_grpc as v1beta1_grpc
from sandbox.kubelet.devices import AllocationError
from sandbox.kubelet.journal import Call, Journal

RECEIVE_LIMIT = 4 * 1024 * 1024
"""Bytes per message: grpc-go's default, which kubelet does not change (1.36)."""
DIAL_SECONDS = 10.0
"""How long kubelet waits for the plugin's socket inside Register (1.36)."""

_CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", RECEIVE_LIMIT),
    # Each registration is a connection of its own, as in Go; a shared one would inherit the old backoff.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
]


_Answer = TypeVar("_Answer")


def go_error(error: grpc.aio.AioRpcError) -> str:
    """The text that Go's gRPC makes of an error, which is what kubelet quotes."""
    words = error.code().name.split("_")
    code = "Canceled" if words == ["CANCELLED"] else "".join(word.capitalize() for word in words)
    return f"rpc error: code = {code} desc = {error.details()}"


async def _answer(call: Awaitable[_Answer]) -> _Answer:
    """A call's answer; raises `AllocationError` with Go's text."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise AllocationError(go_error(error)) from error
    except asyncio.CancelledError:
        # grpc.aio cancels the calls of a channel that is closed; that is not the end of the task which asked.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise AllocationError(
            "rpc error: code = Canceled desc = grpc: the client connection is closing"
        ) from None


class PluginEndpoint:
    """The connection to one registered plugin, from `connect` to `close` or the end of its stream."""

    def __init__(self, *, resource: str, socket: Path, journal: Journal) -> None:
        self.resource = resource
        self.options = v1beta1.DevicePluginOptions()
        self._journal = journal
        self._channel = grpc.aio.insecure_channel(f"unix:{socket}", options=_CHANNEL_OPTIONS)
        self._stub = v1beta1_grpc.DevicePluginStub(self._channel)
        self._stream: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        """Dial and ask for the options, which kubelet (1.36) takes from here and not from Register.

        Raises TimeoutError and AioRpcError.
        """
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                await self._channel.channel_ready()
                self._journal.record(Call(method="GetDevicePluginOptions", resource=self.resource))
                self.options = await self._stub.GetDevicePluginOptions(v1beta1.Empty())
        except BaseException:
            await self._channel.close(None)
            raise

    def watch(
        self,
        *,
        on_devices: Callable[["PluginEndpoint", v1beta1.ListAndWatchResponse], None],
        on_end: Callable[["PluginEndpoint"], None],
    ) -> None:
        """Follow the device stream in the background; `on_end` is called once if it ends by itself."""
        self._stream = asyncio.create_task(self._follow(on_devices=on_devices, on_end=on_end))

    async def _follow(
        self,
        *,
        on_devices: Callable[["PluginEndpoint", v1beta1.ListAndWatchResponse], None],
        on_end: Callable[["PluginEndpoint"], None],
    ) -> None:
        self._journal.record(Call(method="ListAndWatch", resource=self.resource))
        reason = ""
        try:
            async for listed in self._stub.ListAndWatch(v1beta1.Empty()):
                on_devices(self, listed)
                self._journal.record(Call(method="Devices", resource=self.resource, size=len(listed.devices)))
        except grpc.aio.AioRpcError as error:
            reason = go_error(error)
        on_end(self)
        self._journal.record(Call(method="StreamEnded", resource=self.resource, error=reason))
        await self._channel.close(None)

    async def preferred(
        self, *, available: Iterable[str], must_include: Iterable[str], size: int
    ) -> frozenset[str]:
        """The plugin's choice, as it came; raises `AllocationError`."""
        request = v1beta1.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must_include, allocation_size=size
        )
        try:
            answer = await _answer(
                self._stub.GetPreferredAllocation(
                    v1beta1.PreferredAllocationRequest(container_requests=[request])
                )
            )
        except AllocationError as error:
            raise AllocationError(
                f"device plugin GetPreferredAllocation rpc failed with err: {error}"
            ) from error
        return frozenset(answer.container_responses[0].deviceIDs if answer.container_responses else ())

    async def allocate(self, device_ids: Iterable[str]) -> v1beta1.ContainerAllocateResponse:
        """Ask for one container's devices; raises `AllocationError`. No deadline, as in kubelet."""
        request = v1beta1.ContainerAllocateRequest(devicesIDs=device_ids)
        answer = await _answer(self._stub.Allocate(v1beta1.AllocateRequest(container_requests=[request])))
        if not answer.container_responses:
            raise AllocationError(f"no containers return in allocation response {answer}")
        return answer.container_responses[0]

    async def close(self) -> None:
        """Hang up; `on_end` is not called."""
        if self._stream is not None:
            self._stream.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._stream
        await self._channel.close(None)
