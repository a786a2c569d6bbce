"""The gRPC service that kubelet calls. It translates; what is answered is decided elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import NoReturn, TypeVar

import grpc.aio

from deviceplugin.allocator import Allocator
from deviceplugin.errors import AllocateError, NoSlotError, OverfullError
from deviceplugin.inventory import Inventory
from deviceplugin.kubeletapi import deviceplugin_v1beta1_pb2 as v1beta1
from deviceplugin.kubeletapi import deviceplugin_v1beta1_pb2_grpc as v1beta1_grpc
from deviceplugin.modes import Mode

_BETWEEN_CALLS = 0.02
"""Seconds in which kubelet makes its next call for a pod: Allocate follows a preference at once."""

In = TypeVar("In")
Out = TypeVar("Out")


class DevicePlugin(v1beta1_grpc.DevicePluginServicer):
    """The service for one registration; the next one gets its own."""

    def __init__(self, *, inventory: Inventory, allocator: Allocator, mode: Mode) -> None:
        self.watched = asyncio.Event()
        """Set once kubelet has opened the device stream."""
        self.lost = asyncio.Event()
        """Set when kubelet has let go of the device stream: it does not come back by itself."""
        self._inventory = inventory
        self._allocator = allocator
        self._mode = mode
        self._is_closed = False
        self._begun = self._ended = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def quiet(self, *, seconds: float) -> None:
        """Return when no call is under way or about to follow another, or after so many seconds."""
        seen = -1
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while seen != self._begun:
                    seen = self._begun
                    await self._idle.wait()
                    await asyncio.sleep(_BETWEEN_CALLS)

    @contextlib.contextmanager
    def _under_way(self) -> Iterator[None]:
        self._begun += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._ended += 1
            if self._ended == self._begun:
                self._idle.set()

    def close(self) -> None:
        """End the device streams in good order."""
        self._is_closed = True
        self._inventory.wake()

    async def GetDevicePluginOptions(  # noqa: N802
        self,
        request: v1beta1.Empty,
        context: grpc.aio.ServicerContext[v1beta1.Empty, v1beta1.DevicePluginOptions],
    ) -> v1beta1.DevicePluginOptions:
        return options_for(self._mode)

    async def ListAndWatch(  # noqa: N802
        self,
        request: v1beta1.Empty,
        context: grpc.aio.ServicerContext[v1beta1.Empty, v1beta1.ListAndWatchResponse],
    ) -> AsyncIterator[v1beta1.ListAndWatchResponse]:
        """One list at once and one for every change of it: each costs kubelet a walk over all devices."""
        sent: v1beta1.ListAndWatchResponse | None = None
        self.watched.set()
        try:
            while not self._is_closed:
                news = self._inventory.news
                cards = self._inventory.cards
                if cards is not None and (devices := await self._mode.devices(cards)) != sent:
                    sent = devices
                    yield devices
                await news.wait()
        finally:
            if not self._is_closed:
                self.lost.set()

    async def GetPreferredAllocation(  # noqa: N802
        self,
        request: v1beta1.PreferredAllocationRequest,
        context: grpc.aio.ServicerContext[
            v1beta1.PreferredAllocationRequest, v1beta1.PreferredAllocationResponse
        ],
    ) -> v1beta1.PreferredAllocationResponse:
        answer = v1beta1.PreferredAllocationResponse()
        if not self._mode.ids_name_cards:
            return answer  # kubelet does not ask, as the options say; any devices are as good as others
        for asked in request.container_requests:
            try:
                with self._under_way():
                    slots = await self._allocator.prefer(
                        available=asked.available_deviceIDs,
                        must_include=asked.must_include_deviceIDs,
                        size=asked.allocation_size,
                    )
            except AllocateError as error:
                await _refuse(context, error)
            answer.container_responses.add(deviceIDs=slots)
        return answer

    async def Allocate(  # noqa: N802
        self,
        request: v1beta1.AllocateRequest,
        context: grpc.aio.ServicerContext[v1beta1.AllocateRequest, v1beta1.AllocateResponse],
    ) -> v1beta1.AllocateResponse:
        answer = v1beta1.AllocateResponse()
        for asked in request.container_requests:
            try:
                with self._under_way():
                    given = await self._allocator.allocate(asked.devicesIDs)
            except AllocateError as error:
                await _refuse(context, error)
            answer.container_responses.append(given)
        return answer

    async def PreStartContainer(  # noqa: N802
        self,
        request: v1beta1.PreStartContainerRequest,
        context: grpc.aio.ServicerContext[
            v1beta1.PreStartContainerRequest, v1beta1.PreStartContainerResponse
        ],
    ) -> v1beta1.PreStartContainerResponse:
        """Nothing to prepare; kubelet does not call it, as the options say."""
        return v1beta1.PreStartContainerResponse()


def options_for(mode: Mode) -> v1beta1.DevicePluginOptions:
    """What kubelet is told at registration, and again when it asks."""
    return v1beta1.DevicePluginOptions(get_preferred_allocation_available=mode.ids_name_cards)


async def _refuse(context: grpc.aio.ServicerContext[In, Out], error: AllocateError) -> NoReturn:
    is_full = isinstance(error, OverfullError | NoSlotError)
    code = grpc.StatusCode.RESOURCE_EXHAUSTED if is_full else grpc.StatusCode.FAILED_PRECONDITION
    await context.abort(code, str(error))
    raise AssertionError("abort raises")
