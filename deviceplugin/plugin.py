"""The device plugin as a whole: what reads, what decides and what speaks, wired for one node."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path
from types import TracebackType
from typing import Self

from deviceplugin.allocator import Allocator
from deviceplugin.holdings import bookings_of
from deviceplugin.inventory import Inventory
from deviceplugin.marker import AssignedMarker
from deviceplugin.node import NODES, NodePublisher
from deviceplugin.podresources import KubeletPods, PodResources
from deviceplugin.pods import PODS, ApiPods, NodePod, NodePods, PodReader, on_node
from deviceplugin.registration import KubeletLink
from deviceplugin.service import DevicePlugin
from deviceplugin.sockets import check_socket_path
from deviceplugin.sources import CardSource
from gpushare.bookings import Booking
from gpushare.cards import NodeCards
from gpushare.names import Names
from gpushare.objects import Node
from kubeapi.backoff import Backoff
from kubeapi.client import KubeApi
from kubeapi.reflector import Reflector

log = logging.getLogger(__name__)

DEFAULT_SLOTS = 32
"""Slots per card: how many containers may see it."""

_LONGEST_PAUSE = 5.0
"""Seconds between tries of a broken watch: pods of this node are few, and admission waits for them."""


class Plugin:
    """One node's device plugin: `async with Plugin(…)`, or `await plugin.run()`."""

    def __init__(
        self,
        *,
        api: KubeApi,
        source: CardSource,
        node: str,
        kubelet_dir: Path,
        names: Names,
        unit: str = "MiB",
        slots: int = DEFAULT_SLOTS,
        reader: PodReader | None = None,
        kubelet: PodResources | None = None,
    ) -> None:
        """`reader` and `kubelet` replace what reads pods past the watch. Raises `SocketPathError`."""
        pod_resources = kubelet_dir / "pod-resources" / "kubelet.sock"
        check_socket_path(pod_resources)
        self.inventory = Inventory()
        self._source = source
        self._names = names
        self._unit = unit
        self._slots = slots
        self.view = NodePods(changed=self._pods_changed, gone=self._pod_gone)
        self._pods = Reflector(
            api,
            PODS,
            kind=NodePod,
            view=self.view,
            selectors={"fieldSelector": on_node(node)},
            backoff=Backoff(longest=_LONGEST_PAUSE),
        )
        self.publisher = NodePublisher(
            api, node=node, names=names, inventory=self.inventory, bookings=self._bookings
        )
        self._node = Reflector(
            api,
            NODES,
            kind=Node,
            view=self.publisher,
            selectors={"fieldSelector": f"metadata.name={node}"},
            backoff=Backoff(longest=_LONGEST_PAUSE),
        )
        self._marker = AssignedMarker(api, names=names)
        self.allocator = Allocator(
            node=node,
            names=names,
            inventory=self.inventory,
            view=self.view,
            is_synced=self._pods.synced.is_set,
            reader=reader or ApiPods(api, node=node),
            kubelet=kubelet or KubeletPods(pod_resources),
            answered=self._marker.mark,
        )
        self.link = KubeletLink(
            folder=kubelet_dir / "device-plugins", resource=names.slot, service=self._new_service
        )
        self._running: asyncio.Task[None] | None = None

    def problems(self) -> tuple[str, ...]:
        """Why the plugin is not ready; nothing when it is."""
        problems = {
            "cards": None if self.inventory.cards else "not found yet",
            "kubelet": self.link.problem,
            "pods": None if self._pods.synced.is_set() else self._pods.problem,
            "node": self.publisher.problem,
        }
        return tuple(f"{part}: {problem}" for part, problem in problems.items() if problem)

    async def run(self) -> None:
        """Do everything until cancelled; then close the streams and remove the socket."""
        async with asyncio.TaskGroup() as group:
            for part in (
                self._follow_cards(),
                self._pods.run(),
                self._node.run(),
                self.publisher.run(),
                self._marker.run(),
                self._serve_kubelet(),
            ):
                group.create_task(part)

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._running is not None
        self._running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._running

    async def _follow_cards(self) -> None:
        async for cards in self._source.follow():
            self.inventory.set(NodeCards(unit=self._unit, slots=self._slots, cards=cards))
            self.publisher.wake()
            healthy = sum(card.healthy for card in cards)
            log.info("cards found=%d healthy=%d slots=%d", len(cards), healthy, len(cards) * self._slots)

    async def _serve_kubelet(self) -> None:
        """Independent of the API server: containers restart by kubelet's record while it is away."""
        await self.inventory.found.wait()
        await self.link.run()

    def _new_service(self) -> DevicePlugin:
        return DevicePlugin(inventory=self.inventory, allocator=self.allocator)

    def _bookings(self) -> tuple[Booking, ...]:
        return bookings_of(self.view.all(), names=self._names)

    def _pods_changed(self) -> None:
        self.publisher.wake()

    def _pod_gone(self, uid: str) -> None:
        self.allocator.forget(uid)
        self._marker.forget(uid)
