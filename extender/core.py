"""The extender as a whole: state, watches and binder, started and stopped together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Mapping
from typing import Any

from extender.admission import Additions
from extender.audit import EVERY, Audit
from extender.binder import Binder
from extender.events import ExtenderEvents
from extender.fragmentation import FragmentationWatch
from extender.leaderlabel import LeaderLabel
from extender.metrics import RequestMetrics
from extender.nodetexts import NodeTexts
from extender.secondlook import SecondLook
from extender.state import ClusterState
from extender.verification import LIVE_PODS, DoubtfulPods, NodeVerifier
from gpushare.errors import GpuShareError
from gpushare.ledger import Ledger
from gpushare.names import Names
from gpushare.nominations import Nominations
from gpushare.objects import Node, Pod
from gpushare.placement import Policy
from kubeapi.client import KubeApi
from kubeapi.events import EventRecorder
from kubeapi.leases import Elector
from kubeapi.reflector import Reflector

log = logging.getLogger(__name__)


class NotReadyError(GpuShareError):
    """Another replica leads, or the watches have not synced: nothing is answered from an empty ledger."""


class Extender:
    """Answers from `ledger`, binds with `binder`: once both watches have synced, while `elector` leads."""

    def __init__(
        self,
        api: KubeApi,
        *,
        names: Names,
        unit: str,
        policy: Policy,
        reserve: int = 0,
        elector: Elector | None = None,
        label: LeaderLabel | None = None,
        audit_every: float = EVERY,
        additions: Additions | None = None,
    ) -> None:
        """`reserve` units of every card are never given out; `audit_every` is in seconds.

        With `label` the leader is found by it, and a replica that stands by is ready.
        `additions` are what admission gives to pods that lack it: slots, if nothing else is said.
        """
        self.names = names
        self.additions = additions or Additions()
        self.ledger = Ledger(names=names, unit=unit, reserve=reserve)
        self.texts = NodeTexts()
        self._elector = elector
        self._label = label
        self._draining = False
        self._state = state = ClusterState(self.ledger)
        self._nodes = Reflector(api, "/api/v1/nodes", kind=Node, view=state.nodes)
        self._pods = Reflector(
            api, "/api/v1/pods", kind=Pod, view=state.pods, selectors={"fieldSelector": LIVE_PODS}
        )
        self._verifier = NodeVerifier(api, ledger=self.ledger, view_version=lambda: self._pods.version)
        self.second_look = SecondLook(versions=lambda: (self._nodes.version, self._pods.version))
        self._doubtful = DoubtfulPods(api, ledger=self.ledger)
        state.doubtful = self._doubtful.ask
        self.binder = Binder(
            api=api,
            state=state,
            verifier=self._verifier,
            policy=policy,
            term=lambda: elector.term if elector else 0,
        )
        self.metrics = RequestMetrics()
        self._recorder = EventRecorder(api, component="gpushare-extender", host=socket.gethostname())
        self.events = ExtenderEvents(self._recorder, ledger=self.ledger, is_active=lambda: self.is_active)
        self.fragmentation = FragmentationWatch(
            self.ledger, waiting=state.waiting, is_active=lambda: self.is_active
        )
        self.audit = Audit(
            api,
            ledger=self.ledger,
            view_version=lambda: self._pods.version,
            is_binding=self.binder.is_binding,
            is_active=lambda: self.is_active,
            every=audit_every,
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
    def nominations(self) -> Nominations:
        """Waiting pods that nodes are being cleared for."""
        return self._state.nominations

    @property
    def relists(self) -> int:
        """How many whole lists of pods have been applied."""
        return self._pods.lists

    @property
    def policy(self) -> Policy:
        """For pods that ask for none."""
        return self.binder.policy

    def use_policy(self, policy: Policy) -> None:
        """From the next request on."""
        self.binder.policy = policy

    def drain(self) -> None:
        """Report not ready from now on, and go on answering."""
        self._draining = True

    @property
    def unready(self) -> str | None:
        """Why nothing new should be sent here, `None` when it may.

        Where a Service finds the leader by its label, nothing is sent to others: so they are ready.
        """
        if self._draining:
            return "shutting down"
        if self._label is None:
            return self.problem
        if self.unsynced or self._not_leading is None:
            return self.unsynced or self._label.problem(leads=True)
        problem = self._label.problem(leads=False)
        return problem and f"{self._not_leading}; {problem}"

    @property
    def problem(self) -> str | None:
        """Why no verb is answered, `None` when they are."""
        return self._not_leading or self.unsynced

    @property
    def _not_leading(self) -> str | None:
        return self._elector.problem if self._elector else None

    @property
    def unsynced(self) -> str | None:
        """Which watch has not synced yet, `None` once both have."""
        for reflector in (self._nodes, self._pods):
            if not reflector.synced.is_set():
                return f"{reflector.path} not synced: {reflector.problem}"
        return None

    def check_ready(self) -> None:
        """Raise `NotReadyError` unless the verbs may be answered."""
        if problem := self._not_leading:
            raise NotReadyError(problem)
        if problem := self.unsynced:
            raise NotReadyError(f"GPU scheduler extender is not ready: {problem}")

    async def synced(self) -> None:
        """Wait until both watches have synced."""
        await self._nodes.synced.wait()
        await self._pods.synced.wait()

    def became_active(self) -> None:
        """This replica has just begun to bind; another may have until now."""
        self._verifier.became_active()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Extender]:
        """Watch, and compete to lead, while the context is open; on the way out binds in flight end first."""
        watches = [asyncio.create_task(reflector.run()) for reflector in (self._nodes, self._pods)]
        beside = [self._recorder.run(), self.events.watch_nodes(), self.audit.run(), self.fragmentation.run()]
        watches += [asyncio.create_task(each) for each in beside]
        for watch in watches:
            watch.add_done_callback(_log_fault)
        election = asyncio.create_task(self._compete())
        labelling = asyncio.create_task(self._keep_label())
        for task in (election, labelling):
            task.add_done_callback(_log_fault)
        try:
            yield self
        finally:
            await self.binder.close()
            election.cancel()
            labelling.cancel()
            await asyncio.gather(election, labelling, return_exceptions=True)
            if self._label is not None:  # before another can lead
                await self._label.take_off()
            # Where a write may still land, the lease is left to run out instead of being handed on at once.
            if self._elector is not None and not self.binder.unsettled:
                await self._elector.release()
            await self._doubtful.close()
            for watch in watches:
                watch.cancel()
            await asyncio.gather(*watches, return_exceptions=True)

    async def _compete(self) -> None:
        """Compete once there is something to answer from: a leader that cannot answer helps nobody."""
        if self._elector is not None:
            await self.synced()
            await self._elector.run(elected=self.became_active)

    async def _keep_label(self) -> None:
        """Let the pod's label say whether this replica leads and will go on."""
        if self._label is not None:
            await self._label.keep(leads=lambda: not self._draining and self._not_leading is None)


def _log_fault(task: asyncio.Task[None]) -> None:
    """What runs beside the verbs ends by being cancelled and in no other way."""
    if not task.cancelled() and task.exception() is not None:
        log.error("task ended task=%s", task.get_coro(), exc_info=task.exception())
