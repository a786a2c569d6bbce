"""Afterwards: does the pod's annotation name the cards that its containers really have?

What a container sees is what kubelet recorded when it was answered, whatever is written on the pod later. The
extender counts by the annotation. Should the two ever differ (somebody edited the annotation, or took it off)
the annotation is corrected, with an event on the pod. Pods that were answered and bear no mark of it are
marked here too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from deviceplugin.inventory import Inventory
from deviceplugin.marker import AssignedMarker
from deviceplugin.matching import Listed, asks_of
from deviceplugin.modes import Mode
from deviceplugin.podresources import KubeletSilent, PodResources
from deviceplugin.pods import NodePod, NodePods, PodReader, by_key
from deviceplugin.slots import card_of_slot
from gpushare.allocation import allocation_annotations, decode_allocation
from gpushare.bookings import PodRef
from gpushare.cards import Card
from gpushare.demand import Demand, demand_of
from gpushare.errors import AllocationError, DemandError
from gpushare.names import Names
from kubeapi.client import MERGE_PATCH, KubeApi
from kubeapi.errors import ApiError, ApiRefused
from kubeapi.events import ObjectRef, Recorder

log = logging.getLogger(__name__)

MOST_CORRECTIONS = 3
"""Per pod. Whoever undoes a correction more often than that means it; we do not fight."""
SOON_SECONDS = 3.0
"""After an answer: by then kubelet has written its record and reported the pod."""
EVERY_SECONDS = 60.0
_PATIENCE_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """A pod whose annotation does not name a card that one of its containers has."""

    pod: NodePod
    demand: Demand
    cards: tuple[Card, ...] | None
    """By kubelet's record, by position; `None` where no allocation could say so."""
    sentence: str


def difference(
    pod: NodePod,
    *,
    held: Mapping[str, frozenset[str]],
    cards: Sequence[Card],
    names: Names,
    resource: str,
) -> Difference | None:
    """Compare a pod with the slots that kubelet says its containers hold; `None` if there is nothing to say.

    Nothing is said of pods that have ended or are still being admitted, nor of plain init containers, which
    kubelet does not list. A container may hold a slot of any card of its pod, since kubelet passes on the
    slots of init containers: so the pod's cards are compared as a set.
    """
    if pod.is_terminal or not pod.was_admitted or not holds_all(pod, held=held, resource=resource):
        return None
    try:
        demand = demand_of(pod.spec, names)
    except DemandError:
        return None
    if demand is None or not demand.cards:
        return None
    uuids = {card.index: card.uuid for card in cards}
    try:
        allocation = decode_allocation(pod.annotations, node=pod.node_name, demand=demand, names=names)
    except AllocationError as error:
        named: list[str] = []
        said = f"the pod {error}"
    else:
        named = [ref.uuid or uuids.get(ref.index, "") for ref in allocation.cards]
        said = f"the pod's annotations name card {allocation.indices} ({', '.join(named)})"
    groups = [frozenset(map(card_of_slot, slots)) for slots in held.values()]
    seen = frozenset().union(*groups)
    if not seen or seen <= set(named):
        return None
    return Difference(
        pod=pod,
        demand=demand,
        cards=_in_position(groups, named=named, cards=cards, count=len(demand.cards)),
        sentence=f"{said}, and its containers were given {', '.join(sorted(seen))}",
    )


def holds_all(pod: NodePod, *, held: Mapping[str, frozenset[str]], resource: str) -> bool:
    """Whether every container that asks, as far as kubelet lists it, holds its devices."""
    asks = asks_of(pod, resource=resource)
    return bool(asks) and all(held.get(ask.container) for ask in asks if ask.listed)


def _in_position(
    groups: Iterable[frozenset[str]], *, named: Sequence[str], cards: Sequence[Card], count: int
) -> tuple[Card, ...] | None:
    """The pod's cards by position, from the sets that its containers have.

    A container with s slots has the first s cards, so smaller sets come first. Where the sets leave the order
    open it is the annotation's, then the node's. Cards that only an init container had are the annotation's.
    """
    place = {uuid: position for position, uuid in enumerate(named)}
    by_uuid = {card.uuid: card for card in cards}
    chosen: list[str] = []
    for group in sorted(groups, key=len):
        new = [uuid for uuid in by_uuid if uuid in group and uuid not in chosen]
        if len(new) != len(group - set(chosen)):
            return None  # a card that the node no longer has
        chosen += sorted(new, key=lambda uuid: place.get(uuid, len(place)))
    rest = [uuid for uuid in named if uuid in by_uuid and uuid not in chosen]
    chosen += rest[: max(0, count - len(chosen))]
    return tuple(by_uuid[uuid] for uuid in chosen) if len(chosen) == count else None


class Reconciler:
    """Compares and corrects: a few seconds after the start and after every call, and once a minute."""

    def __init__(
        self,
        api: KubeApi,
        *,
        names: Names,
        mode: Mode,
        inventory: Inventory,
        view: NodePods,
        reader: PodReader,
        kubelet: PodResources,
        marker: AssignedMarker,
        events: Recorder,
        soon: float = SOON_SECONDS,
        every: float = EVERY_SECONDS,
    ) -> None:
        """Cards are compared only in a mode whose device IDs name them."""
        self.corrections = 0
        """How many annotations were corrected."""
        self.differing: frozenset[str] = frozenset()
        """The pods, by namespace and name, that differ and were left so."""
        self._api = api
        self._names = names
        self._mode = mode
        self._inventory = inventory
        self._view = view
        self._reader = reader
        self._kubelet = kubelet
        self._marker = marker
        self._events = events
        self._soon = soon
        self._every = every
        self._called = asyncio.Event()
        self._called.set()
        self._corrected: Counter[str] = Counter()

    def called(self) -> None:
        """A container was answered, or refused, perhaps for an annotation that is wrong: look soon."""
        self._called.set()

    def forget(self, uid: str) -> None:
        """A pod is gone from the node."""
        self._corrected.pop(uid, None)

    async def run(self) -> None:
        """Look again and again until cancelled; what fails is left for the next time."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every):
                    await self._called.wait()
            await asyncio.sleep(self._soon)
            self._called.clear()
            try:
                await self.look()
            except (KubeletSilent, ApiError) as error:
                log.warning("not compared with kubelet's record reason=%r", str(error)[:500])

    async def look(self) -> None:
        """Compare once, and correct. Raises `KubeletSilent` and `ApiError`."""
        # The pods first: one that is admitted by now is the one that kubelet lists, or is gone from the API.
        pods = by_key(self._view.all())
        listed = await self._kubelet.pods(resource=self._mode.resource, timeout=_PATIENCE_SECONDS)
        left: set[str] = set()
        for pod, held in _pairs(pods, listed=listed):
            if (
                pod.was_admitted
                and not pod.is_terminal
                and holds_all(pod, held=held, resource=self._mode.resource)
            ):
                self._mark(pod)
            found = self._compare(pod, held=held)
            if found is not None and not await self._settle(found, held=held):
                left.add(pod.key)
        self.differing = frozenset(left)

    def _mark(self, pod: NodePod) -> None:
        if pod.annotations.get(self._names.assigned) != "true":
            self._marker.mark(pod)

    def _compare(self, pod: NodePod, *, held: Mapping[str, frozenset[str]]) -> Difference | None:
        if not self._mode.ids_name_cards or self._inventory.cards is None:
            return None
        return difference(
            pod,
            held=held,
            cards=self._inventory.cards.cards,
            names=self._names,
            resource=self._mode.resource,
        )

    async def _settle(self, found: Difference, *, held: Mapping[str, frozenset[str]]) -> bool:
        """Correct what the API server still shows to differ; says whether the pod is in order now."""
        meta = found.pod.metadata
        pod = await self._reader.read(namespace=meta.namespace, name=meta.name, timeout=_PATIENCE_SECONDS)
        if pod is None or pod.metadata.uid != meta.uid:
            return True  # gone
        still = self._compare(pod, held=held)
        if still is None:
            return True
        times = self._corrected[meta.uid]
        if still.cards is None or times >= MOST_CORRECTIONS:
            if pod.key not in self.differing:
                self._tell(still, reason="CardsDiffer", outcome="cannot be corrected; delete the pod")
            return False
        try:
            await self._write(still, cards=still.cards)
        except ApiRefused as refusal:
            log.warning("not corrected pod=%s reason=%r", pod.key, str(refusal)[:500])
            return refusal.status == 404
        self._corrected[meta.uid] += 1
        self.corrections += 1
        self._tell(still, reason="CardsCorrected", outcome="the annotations were corrected")
        return True

    async def _write(self, found: Difference, *, cards: Sequence[Card]) -> None:
        names, meta = self._names, found.pod.metadata
        written = allocation_annotations(
            node=found.pod.node_name, cards=cards, demand=found.demand, now_ns=time.time_ns(), names=names
        )
        # When the scheduler chose, and whether kubelet was answered, are as they were.
        for name in (names.assume_time, names.assigned):
            del written[name]
        guards = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        path = f"/api/v1/namespaces/{meta.namespace}/pods/{meta.name}"
        body = {"metadata": guards | {"annotations": written}}
        (await self._api.request("PATCH", path, body=body, content_type=MERGE_PATCH)).checked()

    def _tell(self, found: Difference, *, reason: str, outcome: str) -> None:
        sentence = f"{found.sentence}: {outcome}"
        log.warning("cards differ pod=%s reason=%r", found.pod.key, sentence[:900])
        about = ObjectRef.of_pod(PodRef.of(found.pod))
        self._events.record(about, reason=reason, message=sentence)


def _pairs(
    pods: Mapping[str, NodePod], *, listed: Iterable[Listed]
) -> list[tuple[NodePod, Mapping[str, frozenset[str]]]]:
    """Pods and what they hold, but those whose name kubelet lists twice: a successor came before the end."""
    all_listed = tuple(listed)
    times = Counter(each.key for each in all_listed)
    return [(pods[each.key], each.held) for each in all_listed if times[each.key] == 1 and each.key in pods]
