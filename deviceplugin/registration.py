"""The life with kubelet: serve, register, notice when kubelet has forgotten us, start over.

kubelet removes every plugin's socket when it starts, and never dials again once a device stream has ended.
So a registration lasts until our socket is gone, kubelet's is another one, or the stream is lost. Then, in
this order: the old stream is closed, the old socket removed, a new one opened, and kubelet told. Where
kubelet is absent, we wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path

import grpc.aio
import watchfiles

from deviceplugin.errors import SocketPathError
from deviceplugin.kubeletapi import deviceplugin_v1beta1_pb2 as v1beta1
from deviceplugin.kubeletapi import deviceplugin_v1beta1_pb2_grpc as v1beta1_grpc
from deviceplugin.service import OPTIONS, DevicePlugin
from kubeapi.backoff import Backoff

log = logging.getLogger(__name__)

VERSION = "v1beta1"
"""The one version of the device plugin API (1.36)."""
KUBELET_SOCKET = "kubelet.sock"

_LONGEST_SOCKET_PATH = 107  # bytes that Linux has room for in a unix socket's address, less the closing zero
_REGISTER_SECONDS = 10.0  # kubelet dials our socket before it answers, for up to 10 s itself (1.36)
_GRACE_SECONDS = 0.5  # for calls under way when a registration ends
_CHECK_SECONDS = 1.0  # between looks at the sockets, should the file watch miss something
_DEBOUNCE_MS = 300
_CHANNEL_OPTIONS = [("grpc.use_local_subchannel_pool", 1)]  # no backing off from the kubelet before this one
# gRPC's own limit is 4 MiB a message, and kubelet may send more IDs than that.
_SERVER_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]

_Identity = tuple[int, int]


def check_socket_path(path: Path) -> None:
    """Raise `SocketPathError` if no unix socket can have this path."""
    length = len(os.fsencode(path))
    if length > _LONGEST_SOCKET_PATH:
        raise SocketPathError(
            f"{path} has {length} bytes and a unix socket's path can have {_LONGEST_SOCKET_PATH}: "
            "choose a shorter --kubelet-dir"
        )


class KubeletLink:
    """Keeps one resource registered with kubelet."""

    def __init__(
        self,
        *,
        folder: Path,
        resource: str,
        service: Callable[[], DevicePlugin],
        backoff: Backoff | None = None,
    ) -> None:
        """`folder` holds the sockets, `service` makes one for each registration. Raises `SocketPathError`."""
        self.registered = asyncio.Event()
        """Set while kubelet knows us."""
        self.endpoint = f"{resource.replace('/', '_')}.sock"
        self._folder = folder
        self._resource = resource
        self._socket = folder / self.endpoint
        self._kubelet = folder / KUBELET_SOCKET
        self._service = service
        self._backoff = backoff or Backoff(first=0.1, longest=2.0)
        self._nudge = asyncio.Event()
        check_socket_path(self._socket)
        check_socket_path(self._kubelet)

    async def run(self) -> None:
        """Register, and again whenever that is needed, until cancelled; then leave nothing behind."""
        watch = asyncio.create_task(self._watch_folder())
        complaint = ""
        try:
            while True:
                try:
                    await self._one_registration()
                    complaint = ""
                except (OSError, RuntimeError) as error:  # RuntimeError: how gRPC says that it cannot bind
                    if str(error) != complaint:
                        log.warning("cannot serve socket=%s reason=%r", self._socket, str(error))
                    complaint = str(error)
                await self._pause(self._backoff.next())
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    async def _one_registration(self) -> None:
        """Serve and stay registered until something calls for a new registration."""
        service = self._service()
        server = grpc.aio.server(options=_SERVER_OPTIONS)
        v1beta1_grpc.add_DevicePluginServicer_to_server(service, server)
        # gRPC replaces the socket of a process that was killed, and removes its own when it stops.
        server.add_insecure_port(f"unix:{self._socket}")
        await server.start()
        own = _identity(self._socket)
        try:
            kubelet = await self._register(own=own)
            if kubelet is not None:
                self.registered.set()
                self._backoff.reset()
                await self._until_lost(own=own, kubelet=kubelet, service=service)
        finally:
            self.registered.clear()
            service.close()
            await server.stop(_GRACE_SECONDS)

    async def _register(self, *, own: _Identity | None) -> _Identity | None:
        """Tell kubelet, as soon as it is there; `None` when our own socket has gone meanwhile."""
        complaint = ""
        while own is not None and _identity(self._socket) == own:
            try:
                kubelet = await self._tell()
            except (OSError, grpc.aio.AioRpcError) as error:
                reason = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)
                if reason != complaint:
                    log.warning("not registered, waiting for kubelet reason=%r", str(reason)[:500])
                complaint = str(reason)
                await self._pause(self._backoff.next())
            else:
                log.info("registered resource=%s endpoint=%s", self._resource, self.endpoint)
                return kubelet
        return None

    async def _tell(self) -> _Identity:
        """Register once and return the kubelet socket's identity; raises OSError and AioRpcError."""
        status = self._kubelet.stat()
        async with grpc.aio.insecure_channel(f"unix:{self._kubelet}", options=_CHANNEL_OPTIONS) as channel:
            await v1beta1_grpc.RegistrationStub(channel).Register(
                v1beta1.RegisterRequest(
                    version=VERSION,
                    endpoint=self.endpoint,
                    resource_name=self._resource,
                    options=OPTIONS,
                ),
                timeout=_REGISTER_SECONDS,
            )
        return status.st_ino, status.st_mtime_ns

    async def _until_lost(self, *, own: _Identity | None, kubelet: _Identity, service: DevicePlugin) -> None:
        lost = asyncio.create_task(service.lost.wait())
        lost.add_done_callback(lambda _: self._nudge.set())
        try:
            while True:
                if _identity(self._socket) != own:
                    reason = "own socket is gone"
                elif _identity(self._kubelet) != kubelet:
                    reason = "kubelet's socket is another one"
                elif service.lost.is_set():
                    reason = "kubelet has closed the device stream"
                else:
                    await self._pause(_CHECK_SECONDS)
                    continue
                log.warning("registration lost reason=%r", reason)
                return
        finally:
            lost.cancel()

    async def _pause(self, seconds: float) -> None:
        """Wait, at most until something happens to the sockets."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):  # wait_for of 3.11 can swallow a cancellation
                await self._nudge.wait()
        self._nudge.clear()

    async def _watch_folder(self) -> None:
        while True:
            with contextlib.suppress(FileNotFoundError):
                async for _ in watchfiles.awatch(
                    self._folder, watch_filter=None, debounce=_DEBOUNCE_MS, recursive=False
                ):
                    self._nudge.set()
            await asyncio.sleep(_CHECK_SECONDS)


def _identity(path: Path) -> _Identity | None:
    """Tells a file from another that was later made in its place; inode numbers are used again."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
