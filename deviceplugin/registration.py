"""The life with kubelet: serve, register, notice when kubelet has forgotten us, start over.

kubelet removes every plugin's socket when it starts, and never dials again once a device stream has ended.
So a registration lasts until our socket is gone, kubelet's is another one, or the stream is lost. Then, in
this order: the old stream is closed, the old socket removed, a new one opened, and kubelet told. Where
kubelet is absent, we wait.

Two processes may serve one node: an update that starts the new pod before it ends the old one, or a mistake.
They must not fight. The one that came last serves; the other closes its stream and stands by until that one
is gone. Against a plugin that does not know this rule, losing a registration soon after it was made makes the
next one wait, up to half a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
from collections.abc import Callable
from pathlib import Path

import grpc.aio
import watchfiles

from deviceplugin.kubeletapi import deviceplugin_v1beta1_pb2 as v1beta1
from deviceplugin.kubeletapi import deviceplugin_v1beta1_pb2_grpc as v1beta1_grpc
from deviceplugin.service import DevicePlugin
from deviceplugin.sockets import (
    Identity,
    Peer,
    check_socket_path,
    folder_missing,
    identity,
    listen,
    missing,
    remove,
)
from kubeapi.backoff import Backoff

log = logging.getLogger(__name__)

VERSION = "v1beta1"
"""The one version of the device plugin API (1.36)."""
KUBELET_SOCKET = "kubelet.sock"

STEADY_SECONDS = 10.0
"""A registration that is lost earlier than this was taken away by somebody."""
_LONGEST_REST = 30.0  # between registrations that keep being taken away
_REGISTER_SECONDS = 10.0  # kubelet dials our socket before it answers, for up to 10 s itself (1.36)
# For kubelet to open the stream after it was told of us, which it does at once. It never does if it noticed
# the end of an earlier stream in between, and says nothing.
_WATCH_SECONDS = 2.0
_GRACE_SECONDS = 0.5  # for calls under way when a registration ends
# For the streams after that. More would be lost time: gRPC waits for whoever has only connected (see `Peer`),
# and until the next registration kubelet refuses every pod.
_END_SECONDS = 0.05
_YIELD_SECONDS = 3.0  # for the process before us to hang up; one that does not know the rule never does
_ABSENT_SECONDS = 1.0  # without a socket until the other counts as gone: it may just be registering anew
_CHECK_SECONDS = 1.0  # between looks at the sockets, should the file watch miss something
# kubelet drops the latest registration when it notices the end of an earlier one's stream (1.36), so that
# it needs a moment for that before it is told of a new one.
_SETTLE_SECONDS = 0.02
_DEBOUNCE_MS = 300
_CHANNEL_OPTIONS = [("grpc.use_local_subchannel_pool", 1)]  # no backing off from the kubelet before this one
# gRPC's own limit is 4 MiB a message, and kubelet may send more IDs than that.
_SERVER_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class Loss(enum.Enum):
    """What ended a registration."""

    SOCKET_GONE = "own socket is gone"
    REPLACED = "another process has taken the socket"
    KUBELET_RESTARTED = "kubelet's socket is another one"
    STREAM_CLOSED = "kubelet has closed the device stream"
    NEVER_WATCHED = "kubelet has not asked for the devices"


class KubeletLink:
    """Keeps one resource registered with kubelet."""

    def __init__(
        self,
        *,
        folder: Path,
        resource: str,
        service: Callable[[], DevicePlugin],
        options: v1beta1.DevicePluginOptions | None = None,
        backoff: Backoff | None = None,
        rest: Backoff | None = None,
    ) -> None:
        """`folder` holds the sockets, `service` makes one for each registration. Raises `SocketPathError`.

        `backoff` is for what fails, `rest` for registrations that are taken away soon after they were made.
        """
        self.registered = asyncio.Event()
        """Set while kubelet knows us."""
        self.registrations = 0
        """How many times kubelet was told of us."""
        self.is_standing_by = False
        """Whether another process on this node serves in our place."""
        self.endpoint = f"{resource.replace('/', '_')}.sock"
        self._folder = folder
        self._resource = resource
        self._socket = folder / self.endpoint
        self._kubelet = folder / KUBELET_SOCKET
        self._service = service
        self._options = options or v1beta1.DevicePluginOptions()
        self._backoff = backoff or Backoff(first=0.1, longest=2.0)
        self._rest = rest or Backoff(first=0.1, longest=_LONGEST_REST)
        self._nudge = asyncio.Event()
        check_socket_path(self._socket)
        check_socket_path(self._kubelet)

    @property
    def problem(self) -> str | None:
        """Why kubelet does not know us, `None` while it does."""
        if self.registered.is_set():
            return None
        return "standing by for a newer process on this node" if self.is_standing_by else "not registered"

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
                    reason = folder_missing(self._socket) or str(error)
                    if reason != complaint:
                        log.warning("cannot serve socket=%s reason=%r", self._socket, reason)
                    complaint = reason
                    await self._pause(self._backoff.next())
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    async def _one_registration(self) -> None:
        """Serve and stay registered until something calls for a new registration, and until it may begin."""
        clock = asyncio.get_running_loop().time
        predecessor = await Peer.at(self._socket)
        service = self._service()
        server = grpc.aio.server(options=_SERVER_OPTIONS)
        v1beta1_grpc.add_DevicePluginServicer_to_server(service, server)
        own: Identity | None = None
        begun = None
        try:
            own = await listen(server, self._socket)
            await self._let_go(predecessor)
            kubelet = await self._register(own=own)
            if kubelet is not None:
                begun = clock()
                loss = await self._until_lost(own=own, kubelet=kubelet, service=service)
            else:
                loss = self._loss(own=own, kubelet=identity(self._kubelet)) or Loss.SOCKET_GONE
        finally:
            if predecessor is not None:
                predecessor.close()
            self.registered.clear()
            # With the stream kubelet drops the connection, and whatever pod it is admitting.
            await service.quiet(seconds=_GRACE_SECONDS)
            service.close()
            await server.stop(_END_SECONDS)
            remove(self._socket, own=own)
        await self._after(loss, lasted=None if begun is None else clock() - begun)

    async def _after(self, loss: Loss, *, lasted: float | None) -> None:
        """Wait as long as is wise before the next registration; `lasted` is `None` if this one failed."""
        if lasted is not None:
            log.warning("registration lost after=%.1fs reason=%r", lasted, loss.value)
            if lasted > STEADY_SECONDS:
                self._rest.reset()
        if loss is Loss.REPLACED:
            await self._stand_by()
        elif loss is not Loss.KUBELET_RESTARTED and lasted is not None and lasted <= STEADY_SECONDS:
            await self._take_a_rest()

    async def _let_go(self, predecessor: Peer | None) -> None:
        """Let the process that served before us notice us and close its stream, before we register."""
        if predecessor is not None:
            log.info("taking over socket=%s from another process", self._socket)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_YIELD_SECONDS):
                    await predecessor.gone()
        if predecessor is not None or self.registrations:
            await asyncio.sleep(_SETTLE_SECONDS)

    async def _stand_by(self) -> None:
        """Wait until whoever took our socket is gone: hung up, and without a socket for a while."""
        log.warning(
            "standing by reason='a newer process serves %s on this node; if this is no update, "
            "is the device plugin installed twice?'",
            self._resource,
        )
        self.is_standing_by = True
        try:
            while (peer := await self._somebody()) is not None:
                await peer.gone()
        finally:
            self.is_standing_by = False
        log.info("serving again reason='the other process is gone'")

    async def _somebody(self) -> Peer | None:
        """Whoever serves our socket, or does so within a moment."""
        clock = asyncio.get_running_loop().time
        end = clock() + _ABSENT_SECONDS
        while (peer := await Peer.at(self._socket)) is None and clock() < end:
            await self._pause(_SETTLE_SECONDS)
        return peer

    async def _take_a_rest(self) -> None:
        """Wait before registering again, unless kubelet restarts or another plugin's socket goes away."""
        seconds = self._rest.next()
        log.warning(
            "registering again in=%.1fs reason='the last registration was taken away at once: "
            "another device plugin for %s on this node?'",
            seconds,
            self._resource,
        )
        clock = asyncio.get_running_loop().time
        end = clock() + seconds
        others = self._others()
        while (left := end - clock()) > 0 and others <= self._others():
            await self._pause(min(left, _CHECK_SECONDS))

    def _others(self) -> set[tuple[str, Identity]]:
        """The sockets in the folder but ours, kubelet's among them."""
        try:
            paths = [path for path in self._folder.iterdir() if path.is_socket() and path != self._socket]
        except OSError:
            return set()
        return {(path.name, found) for path in paths if (found := identity(path)) is not None}

    async def _register(self, *, own: Identity | None) -> Identity | None:
        """Tell kubelet, as soon as it is there; `None` when our own socket has gone meanwhile."""
        complaint = ""
        while own is not None and identity(self._socket) == own:
            try:
                kubelet = await self._tell()
            except (OSError, grpc.aio.AioRpcError) as error:
                said = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)
                reason = missing(self._kubelet) or str(said)
                if reason != complaint:
                    log.warning("not registered, waiting for kubelet reason=%r", reason[:500])
                complaint = reason
                await self._pause(self._backoff.next())
            else:
                self.registrations += 1
                log.info("registered resource=%s endpoint=%s", self._resource, self.endpoint)
                return kubelet
        return None

    async def _tell(self) -> Identity:
        """Register once and return the kubelet socket's identity; raises OSError and AioRpcError."""
        status = self._kubelet.stat()
        async with grpc.aio.insecure_channel(f"unix:{self._kubelet}", options=_CHANNEL_OPTIONS) as channel:
            await v1beta1_grpc.RegistrationStub(channel).Register(
                v1beta1.RegisterRequest(
                    version=VERSION,
                    endpoint=self.endpoint,
                    resource_name=self._resource,
                    options=self._options,
                ),
                timeout=_REGISTER_SECONDS,
            )
        return status.st_ino, status.st_mtime_ns

    async def _until_lost(self, *, own: Identity | None, kubelet: Identity, service: DevicePlugin) -> Loss:
        clock = asyncio.get_running_loop().time
        begun = clock()
        steps = [asyncio.create_task(event.wait()) for event in (service.watched, service.lost)]
        for step in steps:
            step.add_done_callback(lambda _: self._nudge.set())
        try:
            while (loss := self._loss(own=own, kubelet=kubelet)) is None:
                if service.lost.is_set():
                    return Loss.STREAM_CLOSED
                if service.watched.is_set():
                    self.registered.set()
                    self._backoff.reset()
                elif clock() - begun > _WATCH_SECONDS:
                    return Loss.NEVER_WATCHED
                await self._pause(_CHECK_SECONDS)
            return loss
        finally:
            for step in steps:
                step.cancel()

    def _loss(self, *, own: Identity | None, kubelet: Identity | None) -> Loss | None:
        """What the sockets say of a registration."""
        now = identity(self._socket)
        if now is not None and now != own:
            return Loss.REPLACED
        if identity(self._kubelet) != kubelet:
            return Loss.KUBELET_RESTARTED
        return Loss.SOCKET_GONE if now is None else None

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
