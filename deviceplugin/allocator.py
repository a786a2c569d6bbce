"""One call of kubelet's: find the pod, check, answer, remember. Calls are taken one at a time.

kubelet is asked first, since the watch may lag behind it. The pod that it must mean is read from the API
server, since kubelet names no UID and a pod by the same name may have another card; nothing is answered on
the word of the watch alone. Before a call is refused, the node's pods are listed once afresh. Every step has
a deadline, so that a call ends within 5 s whatever is out of reach.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from deviceplugin.answers import check_room, check_slots
from deviceplugin.errors import AllocateError, NoPodError, NoSlotError
from deviceplugin.holdings import bookings_of
from deviceplugin.inventory import Inventory
from deviceplugin.kubeletapi import deviceplugin_v1beta1_pb2 as v1beta1
from deviceplugin.matching import Call, Listed, Match, Memory, match, match_alone, possible
from deviceplugin.metrics import CallTimes
from deviceplugin.modes import Mode
from deviceplugin.podresources import KubeletSilent, PodResources
from deviceplugin.pods import NodePod, NodePods, PodReader, by_key
from deviceplugin.slots import choose_slots
from kubeapi.errors import ApiError

log = logging.getLogger(__name__)

CALL_SECONDS = 4.5
"""For a whole call, waiting for its turn included."""
KUBELET_SECONDS = 1.0
READ_SECONDS = 1.2
"""For one look into the API server; a call takes at most two."""
_MOST_READS = 8
"""Pods that are read one by one; more are cheaper to list."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Snapshot:
    """The API server's pods of this node, as far as they are known."""

    pods: dict[str, NodePod]
    is_fresh: bool = False
    """Whether it is a list that was asked for during this call."""


class Allocator:
    """Answers kubelet's two questions about devices."""

    def __init__(
        self,
        *,
        node: str,
        mode: Mode,
        inventory: Inventory,
        view: NodePods,
        is_synced: Callable[[], bool],
        reader: PodReader,
        kubelet: PodResources,
        answered: Callable[[NodePod], None],
        refused: Callable[[], None] = lambda: None,
        hand_over: Callable[[Match], v1beta1.ContainerAllocateResponse],
        times: CallTimes,
    ) -> None:
        """`is_synced` says whether `view` has seen a whole list; `answered` is told of each pod answered,
        `refused` of each call that was not.

        `hand_over` makes kubelet's response of what was found; it raises `AllocateError` if it cannot.
        """
        self._node = node
        self._mode = mode
        self._inventory = inventory
        self._view = view
        self._is_synced = is_synced
        self._reader = reader
        self._kubelet = kubelet
        self._on_answer = answered
        self._on_refusal = refused
        self._hand_over = hand_over
        self._times = times
        self._turn = asyncio.Lock()
        self._answered: dict[str, dict[str, frozenset[str]]] = {}
        self._refused: set[str] = set()

    async def prefer(
        self, *, available: Sequence[str], must_include: Sequence[str], size: int
    ) -> tuple[str, ...]:
        """Choose slots of the cards of the pod that kubelet asks for; nothing is remembered of it.

        An error fails the pod as one of `allocate` would. An empty preference would not help: kubelet
        would choose slots of any card, and `allocate` refuse them. Raises `AllocateError`.
        """
        async with self._one_call("prefer"):
            found = await self._find(Call(size=size))
            slots = choose_slots(
                found.answer.cards, available=available, must_include=must_include, size=size
            )
            if slots is None:
                cards = ", ".join(f"{card.index} ({card.uuid})" for card in found.answer.cards)
                raise NoSlotError(
                    f"pod {found.pod.key}, container {found.container}: kubelet has no slot left of card "
                    f"{cards}; delete the pod and let the GPU scheduler place a new one",
                    uid=found.pod.metadata.uid,
                )
            log.debug(
                "preferred pod=%s container=%s slots=%s", found.pod.key, found.container, ",".join(slots)
            )
            return slots

    async def allocate(self, ids: Sequence[str]) -> v1beta1.ContainerAllocateResponse:
        """Answer the container that kubelet chose these devices for; raises `AllocateError`."""
        started = time.monotonic()
        async with self._one_call("allocate"):
            found = await self._find(Call(size=len(ids), ids=frozenset(ids)))
            response = self._hand_over(found)
            containers = self._answered.setdefault(found.pod.metadata.uid, {})
            containers[found.container] = frozenset(ids)
            self._on_answer(found.pod)
            log.info(
                "allocated pod=%s container=%s cards=%s uuids=%s ms=%.1f",
                found.pod.key,
                found.container,
                ",".join(str(card.index) for card in found.answer.cards),
                ",".join(card.uuid for card in found.answer.cards),
                (time.monotonic() - started) * 1000,
            )
            return response

    def held(self) -> frozenset[str]:
        """The IDs that live pods were answered for by this process, those of plain init containers too."""
        live = (pod.metadata.uid for pod in self._view.all() if not pod.is_terminal)
        return frozenset().union(*(ids for uid in live for ids in self._answered.get(uid, {}).values()))

    def forget(self, uid: str) -> None:
        """A pod is gone from the node."""
        self._answered.pop(uid, None)
        self._refused.discard(uid)

    @contextlib.asynccontextmanager
    async def _one_call(self, verb: str) -> AsyncIterator[None]:
        """Hold the turn, keep the deadline, log refusals and remember whom they hit."""
        started = time.monotonic()
        try:
            try:
                async with asyncio.timeout(CALL_SECONDS), self._turn:
                    yield
                self._times.observe(verb, started=started)
            except TimeoutError as error:
                raise AllocateError(
                    f"kubelet and the API server gave no answer within {CALL_SECONDS} s; create the pod again"
                ) from error
        except AllocateError as error:
            self._times.observe(verb, started=started, error=error)
            if error.uid:
                self._refused.add(error.uid)
            log.warning("refused call=%s reason=%r", verb, str(error)[:900])
            self._on_refusal()
            raise

    async def _find(self, call: Call) -> Match:
        try:
            listed = await self._kubelet.pods(resource=self._mode.resource, timeout=KUBELET_SECONDS)
        except KubeletSilent as silence:
            log.warning("kubelet is silent reason=%r", str(silence)[:500])
            return self._decide(call, listed=None, snapshot=await self._fresh())
        snapshot = await self._snapshot(listed)
        try:
            return self._decide(call, listed=listed, snapshot=snapshot)
        except AllocateError as refusal:
            if snapshot.is_fresh:
                raise
            try:
                snapshot = await self._fresh()
            except AllocateError as out_of_reach:
                raise refusal from out_of_reach
        return self._decide(call, listed=listed, snapshot=snapshot)

    def _decide(self, call: Call, *, listed: Sequence[Listed] | None, snapshot: _Snapshot) -> Match:
        """Match the call against what is known, and check the match; `listed` is `None` without kubelet."""
        if self._inventory.cards is None:
            raise NoPodError("the cards of this node are not known yet; create the pod again")
        cards, mode = self._inventory.cards.cards, self._mode
        memory = Memory(answered=self._answered, refused=self._refused)
        if listed is None:
            found = match_alone(call, pods=snapshot.pods.values(), memory=memory, cards=cards, mode=mode)
        else:
            found = match(
                call,
                listed=listed,
                pods=snapshot.pods,
                memory=memory,
                cards=cards,
                mode=mode,
            )
        if call.ids is not None:
            if mode.ids_name_cards:
                check_slots(found.answer, ids=call.ids, pod=found.pod, container=found.container)
            # Pods that were refused hold nothing, though their failure may not show yet.
            refused = self._refused - {found.pod.metadata.uid}
            live = [pod for pod in snapshot.pods.values() if pod.metadata.uid not in refused]
            bookings = bookings_of(live, names=mode.names)
            check_room(found.pod, container=found.container, answer=found.answer, bookings=bookings)
        return found

    async def _snapshot(self, listed: Sequence[Listed]) -> _Snapshot:
        """What is known of the node's pods, with those that may be meant read just now."""
        pods = by_key(self._view.all())
        meant = {pod.key: pod for pod in possible(listed, pods=pods, mode=self._mode)}
        if not self._is_synced() or len(meant) > _MOST_READS:
            return await self._fresh()
        try:
            read = await asyncio.gather(
                *(
                    self._reader.read(namespace=pod.namespace, name=pod.name, timeout=READ_SECONDS)
                    for pod in meant.values()
                )
            )
        except ApiError as error:
            raise _unknown(", ".join(meant), error) from error
        for key, pod in zip(meant, read, strict=True):
            if pod is None or pod.node_name != self._node:
                pods.pop(key, None)
            else:
                pods[key] = pod
        return _Snapshot(pods=pods)

    async def _fresh(self) -> _Snapshot:
        try:
            return _Snapshot(pods=by_key(await self._reader.list(timeout=READ_SECONDS)), is_fresh=True)
        except ApiError as error:
            raise _unknown("the pods of this node", error) from error


def _unknown(what: str, error: ApiError) -> NoPodError:
    return NoPodError(
        f"{what} cannot be read, so that nobody can tell which card was given: {error}; create the pod "
        "again once the API server is reachable"
    )
