"""bind: choose cards, reserve them, and write node and cards in one Binding.

Choosing and reserving happen without an await in between, so two binds can never be promised the same
memory. Nothing is held across the network but the reservation itself, and every way out of a bind either
confirms it, releases it, or hands it to `_settle`, which waits until the API server says what became of a
write whose answer was lost.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from extender.state import ClusterState
from extender.verification import NodeVerifier, pod_path, read_pod, request_until
from extender.wire import BindingArgs
from gpushare.allocation import allocation_annotations
from gpushare.bookings import Booking, PodRef, Standing
from gpushare.demand import Demand, demand_of
from gpushare.errors import GpuShareError
from gpushare.objects import Pod
from gpushare.placement import Policy, policy_of
from kubeapi.backoff import Backoff
from kubeapi.client import KubeApi
from kubeapi.errors import ApiError, ApiRefused, ApiUnreachable

log = logging.getLogger(__name__)

DEADLINE = 3.5
"""Seconds for everything a bind asks of the API server: below the 4 s that lie between an old leader's
stop and the next one's start, and below kube-scheduler's 5 s for an extender call (1.36)."""

WRITE_MAY_LAND = 65.0
"""Seconds after which a write without an answer cannot land any more: kube-apiserver ends requests after
60 s (`--request-timeout`, 1.36)."""


class BindError(GpuShareError):
    """A bind that was refused or failed, as a sentence for the pod's event."""


class Binder:
    """Carries out binds. One per process; it lives on the ledger's event loop."""

    def __init__(
        self,
        *,
        api: KubeApi,
        state: ClusterState,
        verifier: NodeVerifier,
        policy: Policy,
        term: Callable[[], int | None] = lambda: 0,
        deadline: float = DEADLINE,
        write_may_land: float = WRITE_MAY_LAND,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._api = api
        self._state = state
        self._verifier = verifier
        self.policy = policy
        """For pods that ask for none."""
        self._term = term  # of leadership: a number that changes with every loss of it, None without it
        self._deadline = deadline
        self._write_may_land = write_may_land
        self._clock_ns = clock_ns
        self.conflicts = 0
        """How often the API server has answered 409."""
        self.retries = 0
        """How many writes have been tried again."""
        self._in_flight: dict[str, tuple[str, asyncio.Task[None]]] = {}
        self._settling: dict[str, asyncio.Task[None]] = {}

    async def bind(self, args: BindingArgs) -> None:
        """Bind a pod to a node and cards of it; binding it there again is a success that writes nothing.

        Raises `BindError` or another `GpuShareError`; the pod then holds nothing, unless the API server
        did not answer and the write may still land.
        """
        node, task = self._in_flight.get(args.pod_uid, (args.node, None))
        if node != args.node:
            raise BindError(f"pod {args.pod_namespace}/{args.pod_name} is being bound to node {node}")
        if task is None:
            task = asyncio.create_task(self._bind(args))
            self._in_flight[args.pod_uid] = (args.node, task)
            task.add_done_callback(lambda done: self._ended(args.pod_uid, done))
        await asyncio.shield(task)  # the bind goes on should this caller go away

    @property
    def unsettled(self) -> int:
        """Binds whose write was not answered and may still land."""
        return len(self._settling)

    def is_binding(self, uid: str) -> bool:
        """Whether a pod's reservation is still to be confirmed or given up."""
        return uid in self._in_flight or uid in self._settling

    async def close(self) -> None:
        """Let binds in flight end; stop waiting for lost answers."""
        await asyncio.gather(*(task for _, task in self._in_flight.values()), return_exceptions=True)
        for task in self._settling.values():
            task.cancel()
        await asyncio.gather(*self._settling.values(), return_exceptions=True)

    def _ended(self, uid: str, task: asyncio.Task[None]) -> None:
        del self._in_flight[uid]
        if not task.cancelled():
            task.exception()  # whoever asked may be gone: the failure is logged where it is answered

    async def _bind(self, args: BindingArgs) -> None:
        term, until = self._term(), time.monotonic() + self._deadline
        await self._verifier.verify(args.node, timeout=self._deadline)
        pod = self._state.waiting.get(args.pod_uid) or await self._read(args, until=until)
        if pod is None or pod.metadata.uid != args.pod_uid:
            raise BindError(f"pod {args.pod_namespace}/{args.pod_name} with UID {args.pod_uid} is gone")
        if (pod.metadata.namespace, pod.metadata.name) != (args.pod_namespace, args.pod_name):
            raise BindError(
                f"pod {args.pod_namespace}/{args.pod_name} is not the one of UID {args.pod_uid}: {pod.key} is"
            )
        demand = demand_of(pod.spec, self._state.names)
        if demand is None:
            raise BindError(
                f"pod {pod.key} asks for no {self._state.names.memory}: not for this extender to bind"
            )
        held = self._state.ledger.booking(args.pod_uid)
        on = held.node if held else pod.node_name
        if on and on != args.node:
            raise BindError(f"pod {pod.key} is on node {on} already: it cannot be bound to {args.node}")
        if pod.node_name or (held and held.standing is not Standing.RESERVED):
            return  # bound there already
        booking = held or self._reserve(pod, demand=demand, node=args.node)
        annotations = self._annotations(booking) if booking else {}
        await self._write(args, annotations=annotations, term=term, until=until)
        log.info(
            "bound pod=%s uid=%s node=%s cards=%s units=%s",
            pod.key,
            args.pod_uid,
            args.node,
            booking.allocation.indices if booking else "none",
            "+".join(str(share.memory) for share in demand.cards) or 0,
        )

    def _reserve(self, pod: Pod, *, demand: Demand, node: str) -> Booking | None:
        """Hold cards of `node` for the pod; `None` for a pod that needs no card."""
        if not demand.cards:
            return None
        ref = PodRef.of(pod)
        policy = policy_of(pod.annotations, names=self._state.names, default=self.policy)
        ahead = self._state.nominations.ahead(ref, among={node}, default=self.policy)
        return self._state.ledger.reserve_cards(
            ref, demand=demand, node=node, policy=policy, ahead=ahead.get(node, ())
        )

    def _annotations(self, booking: Booking) -> dict[str, str]:
        cards = [view.card for view in self._state.ledger.view(booking.node).cards]
        chosen = [card for ref in booking.allocation.cards for card in cards if ref.names_card(card)]
        if len(chosen) != len(booking.allocation.cards):
            raise BindError(f"a card reserved for pod {booking.pod} has gone from node {booking.node}")
        return allocation_annotations(
            node=booking.node,
            cards=chosen,
            demand=booking.demand,
            now_ns=self._clock_ns(),
            names=self._state.names,
        )

    async def _write(
        self, args: BindingArgs, *, annotations: dict[str, str], term: int | None, until: float
    ) -> None:
        """Write the Binding, trying again while there is time; leaves the reservation as the truth is."""
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": args.pod_name, "uid": args.pod_uid, "annotations": annotations},
            "target": {"apiVersion": "v1", "kind": "Node", "name": args.node},
        }
        path = f"{pod_path(_ref(args))}/binding"
        backoff = Backoff(first=0.1, longest=1.0)
        may_land = False  # whether a try without an answer may still be under way at the API server
        while True:
            wait = backoff.next()
            try:
                self._check_term(term)
                (await request_until(self._api, "POST", path, until=until, body=binding)).checked()
            except BindError as lost:
                problem: GpuShareError = lost
                final = True
            except ApiRefused as refusal:
                problem = refusal
                self.conflicts += refusal.status == 409
                may_land |= refusal.status == 504
                wait = max(wait, refusal.retry_after or 0.0)
                final = refusal.status not in _TRIED_AGAIN
            except ApiUnreachable as silence:
                problem, may_land, final = silence, True, False
            else:
                self._state.ledger.confirm(args.pod_uid)
                return
            if final or time.monotonic() + wait >= until:
                await self._resolve(args, problem, until=until + _LAST_READ, may_land=may_land)
                return
            self.retries += 1
            log.info("retry bind pod=%s/%s reason=%r", args.pod_namespace, args.pod_name, str(problem))
            await asyncio.sleep(wait)

    def _check_term(self, term: int | None) -> None:
        """Refuse a write that was decided on in another term: another replica may have bound since."""
        if term is None or self._term() != term:
            raise BindError("not the leader any more")

    async def _resolve(
        self, args: BindingArgs, problem: GpuShareError, *, until: float, may_land: bool
    ) -> None:
        """Find out by reading the pod what became of a bind that did not succeed; never guess."""
        try:
            pod = await self._read(args, until=until)
        except ApiError as silence:
            self._settle_later(args)
            raise BindError(f"outcome unknown, cards stay reserved until it is: {problem}") from silence
        if self._adopt(args, pod):
            return
        live = pod is not None and pod.metadata.uid == args.pod_uid
        if may_land and pod is not None and live and not pod.node_name:
            self._settle_later(args)
            raise BindError(f"outcome unknown, cards stay reserved until it is: {problem}") from problem
        self._state.ledger.release(args.pod_uid)
        if pod is not None and live and pod.node_name:
            raise BindError(f"pod {pod.key} is bound to node {pod.node_name} already") from problem
        raise BindError(str(problem)) from problem

    def _adopt(self, args: BindingArgs, pod: Pod | None) -> bool:
        """Take over the API server's view of a bound pod; say whether that is where it was to be bound.

        Only while the reservation is there: where the watch has ended it meanwhile, the pod has gone and
        this view of it is old.
        """
        if pod is None or pod.metadata.uid != args.pod_uid or not pod.node_name:
            return False
        booking = self._state.ledger.booking(args.pod_uid)
        if booking is not None and booking.standing is Standing.RESERVED:
            self._state.ledger.read_ahead(pod)
        return pod.node_name == args.node

    def _settle_later(self, args: BindingArgs) -> None:
        earlier = self._settling.pop(args.pod_uid, None)
        if earlier is not None:
            earlier.cancel()
        self._settling[args.pod_uid] = asyncio.create_task(self._settle(args))

    async def _settle(self, args: BindingArgs) -> None:
        """Keep the reservation until the write has shown itself or can no longer land."""
        give_up = time.monotonic() + self._write_may_land
        backoff = Backoff(first=0.5, longest=5.0)
        while self._is_reserved(args.pod_uid):
            await asyncio.sleep(backoff.next())
            late = time.monotonic() > give_up
            try:
                pod = await self._read(args, until=time.monotonic() + self._deadline)
            except ApiError:
                continue  # as long as nobody can tell, the cards stay reserved
            if args.pod_uid in self._in_flight or self._adopt(args, pod):
                continue
            if late or pod is None or pod.metadata.uid != args.pod_uid or pod.node_name:
                self._state.ledger.release(args.pod_uid)
        del self._settling[args.pod_uid]
        log.info("settled pod=%s/%s uid=%s", args.pod_namespace, args.pod_name, args.pod_uid)

    def _is_reserved(self, uid: str) -> bool:
        booking = self._state.ledger.booking(uid)
        return booking is not None and booking.standing is Standing.RESERVED

    async def _read(self, args: BindingArgs, *, until: float) -> Pod | None:
        return await read_pod(self._api, _ref(args), until=until)


_TRIED_AGAIN = frozenset({429, 500, 502, 503, 504})
_LAST_READ = 0.4  # seconds beyond the deadline for finding out what became of the write


def _ref(args: BindingArgs) -> PodRef:
    return PodRef(uid=args.pod_uid, namespace=args.pod_namespace, name=args.pod_name)
