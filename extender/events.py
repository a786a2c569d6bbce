"""What the extender tells people where they look first: events on pods and on nodes.

A refused bind is told on the pod. A node that shuts for every new pod is told on the node, naming the pod or
the fault that shuts it, and so is its reopening; nodes are looked over every few seconds, so that what closes
and opens in between is no news.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from extender.slices import in_slices
from extender.wire import BindingArgs
from gpushare.bookings import PodRef
from gpushare.errors import GpuShareError
from gpushare.ledger import Ledger
from gpushare.refusals import Reason
from kubeapi.events import ObjectRef, Recorder

BIND_REFUSED = "GPUBindRefused"
"""Warning, on a pod: why it was not bound."""
NODE_CLOSED = "GPUNodeClosed"
"""Warning, on a node: it takes no GPU pods, and why."""
NODE_REOPENED = "GPUNodeReopened"
"""Normal, on a node: what shut it is gone."""

CLOSING = frozenset({Reason.CLOSED, Reason.UNREADABLE_CARDS, Reason.UNIT_MISMATCH})
"""Why a node that shares cards, or should, shuts for every new pod."""

LOOK = 5.0
"""Seconds from one look at all nodes to the next."""


class ExtenderEvents:
    """Tells a recorder what happened."""

    def __init__(self, recorder: Recorder, *, ledger: Ledger, is_active: Callable[[], bool]) -> None:
        """Of several replicas only the active one tells of nodes."""
        self._recorder = recorder
        self._ledger = ledger
        self._is_active = is_active
        self._closed: dict[str, str] = {}

    def bind_refused(self, args: BindingArgs, error: GpuShareError) -> None:
        """A bind was answered with an error."""
        pod = PodRef(uid=args.pod_uid, namespace=args.pod_namespace, name=args.pod_name)
        self._recorder.record(ObjectRef.of_pod(pod), reason=BIND_REFUSED, message=str(error))

    async def watch_nodes(self) -> None:
        """Look at the nodes every few seconds until cancelled."""
        while True:
            await asyncio.sleep(LOOK)
            await self.look()

    async def look(self) -> None:
        """Tell which nodes have closed or reopened since the last look."""
        if not self._is_active():
            self._closed.clear()
            return
        names = self._ledger.known_nodes()
        async for name in in_slices(names):
            self._compare(name)
        for gone in self._closed.keys() - set(names):
            del self._closed[gone]

    def _compare(self, name: str) -> None:
        view = self._ledger.view(name)
        if not view.known:
            return  # gone during this look
        problem = view.problem
        told = self._closed.get(name)
        if problem is not None and problem.reason in CLOSING:
            text = problem.explain()
            if text != told:
                self._closed[name] = text
                self._recorder.record(ObjectRef.of_node(name), reason=NODE_CLOSED, message=text)
        elif told is not None:
            del self._closed[name]
            self._recorder.record(
                ObjectRef.of_node(name),
                reason=NODE_REOPENED,
                message="node takes GPU pods again",
                severity="Normal",
            )
