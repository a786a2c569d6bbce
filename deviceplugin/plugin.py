"""The device plugin as a whole: what reads, what decides and what speaks, wired for one node."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from deviceplugin.allocator import KUBELET_SECONDS, Allocator
from deviceplugin.errors import ListTooLargeError
from deviceplugin.handover import DEFAULT_HANDOVER, Handover
from deviceplugin.holdings import bookings_of
from deviceplugin.inventory import Inventory
from deviceplugin.kubeletapi import deviceplugin_v1beta1_pb2 as v1beta1
from deviceplugin.leftovers import Leftovers
from deviceplugin.marker import AssignedMarker
from deviceplugin.matching import Match
from deviceplugin.metrics import CallTimes, Snapshot, render
from deviceplugin.modes import DEFAULT_MOST_DEVICES, DEFAULT_SLOTS, Mode, Slots, Units
from deviceplugin.node import NODES, NodePublisher
from deviceplugin.podresources import KubeletPods, KubeletSilent, PodResources
from deviceplugin.pods import PODS, ApiPods, NodePod, NodePods, PodReader, on_node
from deviceplugin.probes import serving
from deviceplugin.reconciler import Reconciler
from deviceplugin.registration import KubeletLink
from deviceplugin.rivals import Rivals
from deviceplugin.service import DevicePlugin, options_for
from deviceplugin.sockets import check_socket_path
from deviceplugin.sources import CardSource
from gpushare.bookings import Booking
from gpushare.cards import Card, NodeCards
from gpushare.names import Names
from gpushare.objects import Node
from kubeapi.backoff import Backoff
from kubeapi.client import KubeApi
from kubeapi.events import EventRecorder
from kubeapi.reflector import Reflector

log = logging.getLogger(__name__)

COMPONENT = "gpushare-device-plugin"
"""Whom events come from."""

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
        mode: Literal["slots", "units"] = "slots",
        slots: int = DEFAULT_SLOTS,
        most_devices: int = DEFAULT_MOST_DEVICES,
        handover: Handover = DEFAULT_HANDOVER,
        listener: socket.socket | None = None,
        reader: PodReader | None = None,
        kubelet: PodResources | None = None,
    ) -> None:
        """`slots` per card are for slots mode; on `listener` metrics and probes are served.

        `reader` and `kubelet` replace what reads pods past the watch. Raises `SocketPathError`.
        """
        pod_resources = kubelet_dir / "pod-resources" / "kubelet.sock"
        check_socket_path(pod_resources)
        self.inventory = Inventory()
        self.events = EventRecorder(api, component=COMPONENT, host=node)
        self._listener = listener
        self._times = CallTimes(node=node)
        self._source = source
        self._node_name = node
        self._names = names
        self._unit = unit
        self._handover = handover
        self._kubelet = kubelet or KubeletPods(pod_resources)
        self._mode: Mode = (
            Slots(names=names, slots=slots, most_devices=most_devices)
            if mode == "slots"
            else Units(names=names, most_devices=most_devices, bookings=self._bookings, held=self._held)
        )
        self.view = NodePods(changed=self._pods_changed, gone=self._pod_gone)
        self._pods = Reflector(
            api,
            PODS,
            kind=NodePod,
            view=self.view,
            selectors={"fieldSelector": on_node(node)},
            backoff=Backoff(longest=_LONGEST_PAUSE),
        )
        self.rivals = Rivals(events=self.events)
        self._leftovers = (
            Leftovers(
                self._kubelet,
                resource=names.memory,
                node=node,
                events=self.events,
                changed=self._announce,
            )
            if mode == "slots"
            else None
        )
        self._found: tuple[Card, ...] | None = None
        self.publisher = NodePublisher(
            api,
            node=node,
            names=names,
            inventory=self.inventory,
            capacity=self._capacity,
            seen=self.rivals.look,
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
        reader = reader or ApiPods(api, node=node)
        self.reconciler = Reconciler(
            api,
            names=names,
            mode=self._mode,
            inventory=self.inventory,
            view=self.view,
            reader=reader,
            kubelet=self._kubelet,
            marker=self._marker,
            events=self.events,
        )
        self.allocator = Allocator(
            node=node,
            mode=self._mode,
            inventory=self.inventory,
            view=self.view,
            is_synced=self._pods.synced.is_set,
            reader=reader,
            kubelet=self._kubelet,
            answered=self._answered,
            refused=self.reconciler.called,
            hand_over=self._hand_over,
            times=self._times,
        )
        self.link = KubeletLink(
            folder=kubelet_dir / "device-plugins",
            resource=self._mode.resource,
            service=self._new_service,
            options=options_for(self._mode),
        )
        self._running: asyncio.Task[None] | None = None

    def problems(self) -> tuple[str, ...]:
        """Why the plugin is not ready; nothing when it is."""
        return tuple(f"{part}: {problem}" for part, problem in self._parts().items() if problem)

    def _parts(self) -> dict[str, str | None]:
        return {
            "cards": None if self.inventory.cards else self._source.problem or "not found yet",
            "kubelet": self.link.problem,
            "pods": None if self._pods.synced.is_set() else self._pods.problem,
            "node": self.publisher.problem,
        }

    async def metrics(self) -> bytes:
        """The page for Prometheus; what kubelet holds is asked of it now."""
        try:
            listed = await self._kubelet.pods(resource=self._mode.resource, timeout=KUBELET_SECONDS)
        except KubeletSilent:
            listed = None
        now = Snapshot(
            node=self._node_name,
            cards=self.inventory.cards,
            bookings=self._bookings(),
            listed=listed,
            ids_name_cards=self._mode.ids_name_cards,
            counts=self._source.counts,
            health_changes=self.inventory.health_changes,
            problems=self._parts(),
            registrations=self.link.registrations,
            corrections=self.reconciler.corrections,
            differing=len(self.reconciler.differing),
            rivals=self.rivals.seen,
        )
        return render(now, calls=self._times)

    async def run(self) -> None:
        """Do everything until cancelled; then close the streams and remove the socket.

        Raises `ListTooLargeError` if the cards it finds first are too many for the mode.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for part in (
                    self._follow_cards(),
                    self._follow_leftovers(),
                    self._pods.run(),
                    self._node.run(),
                    self.publisher.run(),
                    self._marker.run(),
                    self.reconciler.run(),
                    self.events.run(),
                    self._serve_kubelet(),
                    self._serve_probes(),
                ):
                    group.create_task(part)
        except ExceptionGroup as group_error:
            refused = group_error.subgroup(ListTooLargeError)
            raise group_error if refused is None else refused.exceptions[0] from None

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
            found = NodeCards(unit=self._unit, slots=self._mode.slots, cards=cards)
            try:
                self._mode.check(found)
            except ListTooLargeError as error:
                if self.inventory.cards is None:
                    raise
                log.warning("cards ignored, they stay as they were reason=%r", str(error))
                continue
            if self._found is None and self._leftovers is not None:
                await self._leftovers.look()  # before kubelet and the cluster are told of room
            self._found = cards
            self._announce()
            healthy = sum(card.healthy for card in cards)
            log.info("cards found=%d healthy=%d resource=%s", len(cards), healthy, self._mode.resource)
            if not cards:
                log.warning(
                    "no card is shared reason='none was found, or all are excluded or within --reserve'"
                )

    def _announce(self) -> None:
        """Have kubelet and the cluster told of the cards as they are now."""
        if self._found is not None:
            cards = self._leftovers.apply(self._found) if self._leftovers is not None else self._found
            self.inventory.set(NodeCards(unit=self._unit, slots=self._mode.slots, cards=cards))
            self.publisher.wake()

    async def _follow_leftovers(self) -> None:
        if self._leftovers is not None:
            await self._leftovers.run()

    async def _serve_kubelet(self) -> None:
        """Independent of the API server: containers restart by kubelet's record while it is away."""
        await self.inventory.found.wait()
        await self.link.run()

    async def _serve_probes(self) -> None:
        if self._listener is not None:
            async with serving(self._listener, metrics=self.metrics, problems=self.problems):
                await asyncio.Event().wait()

    def _new_service(self) -> DevicePlugin:
        return DevicePlugin(inventory=self.inventory, allocator=self.allocator, mode=self._mode)

    def _hand_over(self, found: Match) -> v1beta1.ContainerAllocateResponse:
        return self._handover.response(
            found.answer,
            pod=found.pod,
            container=found.container,
            device_nodes=self._source.device_nodes,
        )

    def _capacity(self, cards: NodeCards) -> dict[str, int]:
        return self._mode.capacity(cards, bookings=self._bookings())

    def _bookings(self) -> tuple[Booking, ...]:
        return bookings_of(self.view.all(), names=self._names)

    async def _held(self) -> frozenset[str]:
        """The devices that kubelet has handed out, as far as it or our own memory tells."""
        held = self.allocator.held()
        try:
            listed = await self._kubelet.pods(resource=self._mode.resource, timeout=KUBELET_SECONDS)
        except KubeletSilent as silence:
            log.warning("kubelet is silent reason=%r", str(silence)[:500])
            return held
        return held.union(*(ids for pod in listed for ids in pod.held.values()))

    def _answered(self, pod: NodePod) -> None:
        self._marker.mark(pod)
        self.reconciler.called()

    def _pods_changed(self) -> None:
        self.publisher.wake()
        cards = self.inventory.cards
        if cards is not None and not all(card.healthy for card in cards.cards):
            self.inventory.wake()  # what is booked on a bad card decides how many units are reported

    def _pod_gone(self, uid: str) -> None:
        self.allocator.forget(uid)
        self._marker.forget(uid)
        self.reconciler.forget(uid)
        if self._leftovers is not None:
            self._leftovers.wake()
