"""The extender as a whole: state, watches and binder, started and stopped together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Mapping
from typing import Any

from extender.audit import Audit
from extender.binder import Binder
from extender.events import ExtenderEvents
from extender.metrics import RequestMetrics
from extender.state import ClusterState
from extender.verification import LIVE_PODS, DoubtfulPods, NodeVerifier
from gpushare.errors import GpuShareError
from gpushare.ledger import Ledger
from gpushare.names import Names
from gpushare.objects import Node, Pod
from gpushare.placement import Policy
from kubeapi.client import KubeApi
from kubeapi.events import EventRecorder
from kubeapi.reflector import Reflector

log = logging.getLogger(__name__)


class NotReadyError(GpuShareError):
    """The watches have not synced: nothing may be answered from an empty ledger."""


class Extender:
    """Answers from `ledger`, binds with `binder`; ready once both watches have synced."""

    def __init__(self, api: KubeApi, *, names: Names, unit: str, policy: Policy) -> None:
        self.names = names
        self.policy = policy
        self.ledger = Ledger(names=names, unit=unit)
        self._state = state = ClusterState(self.ledger)
        self._nodes = Reflector(api, "/api/v1/nodes", kind=Node, view=state.nodes)
        self._pods = Reflector(
            api, "/api/v1/pods", kind=Pod, view=state.pods, selectors={"fieldSelector": LIVE_PODS}
        )
        self._verifier = NodeVerifier(api, ledger=self.ledger, view_version=lambda: self._pods.version)
        self._doubtful = DoubtfulPods(api, ledger=self.ledger)
        state.doubtful = self._doubtful.ask
        self.binder = Binder(api=api, state=state, verifier=self._verifier, policy=policy)
        self.metrics = RequestMetrics()
        self._recorder = EventRecorder(api, component="gpushare-extender", host=socket.gethostname())
        self.events = ExtenderEvents(self._recorder, ledger=self.ledger, is_active=lambda: self.is_active)
        self.audit = Audit(
            api,
            ledger=self.ledger,
            view_version=lambda: self._pods.version,
            is_binding=self.binder.is_binding,
            is_active=lambda: self.is_active,
        )

    @property
    def reflectors(self) -> tuple[Reflector[Any], ...]:
        """Both watches."""
        return self._nodes, self._pods

    @property
    def is_active(self) -> bool:
        """Whether this replica speaks for the cluster: it is ready, and no other one leads."""
        return self.problem is None

    @property
    def waiting(self) -> Mapping[str, Pod]:
        """Unbound pods that ask for the memory resource, by UID."""
        return self._state.waiting

    @property
    def relists(self) -> int:
        """How many whole lists of pods have been applied."""
        return self._pods.lists

    @property
    def problem(self) -> str | None:
        """Why the extender is not ready, `None` when it is."""
        for reflector in (self._nodes, self._pods):
            if not reflector.synced.is_set():
                return f"{reflector.path} not synced: {reflector.problem}"
        return None

    def check_ready(self) -> None:
        """Raise `NotReadyError` until both watches have synced."""
        if self.problem:
            raise NotReadyError(f"GPU scheduler extender is not ready: {self.problem}")

    async def synced(self) -> None:
        """Wait until ready."""
        await self._nodes.synced.wait()
        await self._pods.synced.wait()

    def became_active(self) -> None:
        """This replica has just begun to bind; another may have until now."""
        self._verifier.became_active()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Extender]:
        """Watch while the context is open; on the way out let binds in flight end first."""
        watches = [asyncio.create_task(reflector.run()) for reflector in (self._nodes, self._pods)]
        beside = [self._recorder.run(), self.events.watch_nodes(), self.audit.run()]
        watches += [asyncio.create_task(each) for each in beside]
        for watch in watches:
            watch.add_done_callback(_log_fault)
        try:
            yield self
        finally:
            await self.binder.close()
            await self._doubtful.close()
            for watch in watches:
                watch.cancel()
            await asyncio.gather(*watches, return_exceptions=True)


def _log_fault(task: asyncio.Task[None]) -> None:
    """What runs beside the verbs ends by being cancelled and in no other way."""
    if not task.cancelled() and task.exception() is not None:
        log.error("task ended task=%s", task.get_coro(), exc_info=task.exception())
