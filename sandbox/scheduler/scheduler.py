"""The loop of the stand-in: one pod after the other is given a node, bound in the background, tried again.

A pod is assumed on its node from the moment it is chosen, so that the next one sees the room taken while the
bind is still under way. Everything runs on one event loop.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kubeapi.backoff import Backoff
from kubeapi.client import KubeApi
from kubeapi.errors import ApiError
from kubeapi.reflector import Reflector
from sandbox.scheduler.extender import ExtenderClient, ExtenderError
from sandbox.scheduler.fit import refusal_text, why_not
from sandbox.scheduler.objects import Collection, Node, Pod
from sandbox.scheduler.reports import PodReports

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class SchedulerSettings:
    """Whose pods, and how soon they are tried again."""

    scheduler_names: tuple[str, ...] = ("default-scheduler", "gpushare-scheduler")
    first_backoff: float = 1.0
    """Seconds after the first failure (`podInitialBackoffSeconds`, 1.36)."""
    longest_backoff: float = 10.0
    """Where doubling ends (`podMaxBackoffSeconds`, 1.36)."""


@dataclass(kw_only=True, slots=True)
class _Waiting:
    """A pod that has no node yet."""

    pod: Pod
    arrival: int
    attempts: int = 0
    not_before: float = 0.0

    @property
    def rank(self) -> tuple[int, str, int]:
        return -self.pod.priority, self.pod.metadata.creation_timestamp or "", self.arrival


class _Unschedulable(Exception):  # noqa: N818
    """No node takes the pod; the sentence is kube-scheduler's."""


class Scheduler:
    """Binds the pods of its scheduler names for as long as `run` runs."""

    def __init__(
        self,
        *,
        api: KubeApi,
        extender: ExtenderClient | None = None,
        settings: SchedulerSettings | None = None,
    ) -> None:
        """Without an extender every pod is placed by the nodes' totals alone. `extender` must be open."""
        self._api = api
        self._extender = extender
        self._settings = settings or SchedulerSettings()
        self._reports = PodReports(api)
        self._pods: Collection[Pod] = Collection(self._pod_changed)
        self._nodes: Collection[Node] = Collection(self._node_changed)
        self._waiting: dict[str, _Waiting] = {}
        self._assumed: dict[str, tuple[Pod, str]] = {}
        self._binds: set[asyncio.Task[None]] = set()
        self._arrivals = itertools.count()
        self._moves = 0  # how often something happened that may make room
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Watch and schedule until cancelled."""
        backoffs = [Backoff(first=0.05, longest=1.0) for _ in range(2)]
        nodes = Reflector(self._api, "/api/v1/nodes", kind=Node, view=self._nodes, backoff=backoffs[0])
        pods = Reflector(self._api, "/api/v1/pods", kind=Pod, view=self._pods, backoff=backoffs[1])
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(nodes.run())
                group.create_task(pods.run())
                await nodes.synced.wait()
                await pods.synced.wait()
                log.info(
                    "scheduling names=%s nodes=%d", self._settings.scheduler_names, len(self._nodes.objects)
                )
                group.create_task(self._schedule_waiting())
        finally:
            for bind in self._binds:
                bind.cancel()
            await asyncio.gather(*self._binds, return_exceptions=True)

    # What the watches tell.

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        pod = after or before
        assert pod is not None
        if after is None or after.node_name or after.is_terminal:
            was_assumed = self._assumed.pop(pod.uid, None) is not None
            self._waiting.pop(pod.uid, None)
            had_room = was_assumed or (before is not None and before.is_bound)
            if had_room and (after is None or after.is_terminal):
                self._move_all()
        elif not self._is_ours(after):
            self._waiting.pop(pod.uid, None)
        elif pod.uid not in self._assumed:
            entry = self._waiting.get(pod.uid)
            if entry is None:
                self._waiting[pod.uid] = _Waiting(pod=after, arrival=next(self._arrivals))
            else:
                entry.pod = after
        self._wake.set()

    def _is_ours(self, pod: Pod) -> bool:
        return (
            pod.spec.get("schedulerName") in self._settings.scheduler_names
            and not pod.spec.get("schedulingGates")
            and pod.metadata.deletion_timestamp is None
        )

    def _node_changed(self, before: Node | None, after: Node | None) -> None:
        if after is None or before is None or _matters(before) != _matters(after):
            self._move_all()

    def _move_all(self) -> None:
        """Something may have made room: nobody waits any longer."""
        self._moves += 1
        for entry in self._waiting.values():
            entry.not_before = 0.0
        self._wake.set()

    # The loop.

    async def _schedule_waiting(self) -> None:
        while True:
            self._wake.clear()
            now = time.monotonic()
            ready = [entry for entry in self._waiting.values() if entry.not_before <= now]
            if ready:
                await self._schedule(min(ready, key=lambda entry: entry.rank))
                continue
            soonest = min((entry.not_before for entry in self._waiting.values()), default=None)
            try:
                async with asyncio.timeout(None if soonest is None else soonest - now):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _schedule(self, entry: _Waiting) -> None:
        pod, moves = entry.pod, self._moves
        try:
            node = await self._choose(pod)
        except (_Unschedulable, ExtenderError) as error:
            reason = "Unschedulable" if isinstance(error, _Unschedulable) else "SchedulerError"
            self._back_off(entry, at_once=self._moves != moves)
            await self._reports.not_scheduled(pod, reason=reason, message=str(error))
            return
        if self._waiting.pop(pod.uid, None) is None:
            return  # gone while it was looked at
        self._assumed[pod.uid] = pod, node.name
        bind = asyncio.create_task(self._bind(entry, node=node.name))
        self._binds.add(bind)
        bind.add_done_callback(self._binds.discard)

    def _back_off(self, entry: _Waiting, *, at_once: bool) -> None:
        entry.attempts += 1
        delay = self._settings.first_backoff * 2 ** min(entry.attempts - 1, 10)
        delay = 0.0 if at_once else min(delay, self._settings.longest_backoff)
        entry.not_before = time.monotonic() + delay

    async def _choose(self, pod: Pod) -> Node:
        """The node for a pod; raises `_Unschedulable`, or `ExtenderError` for a failed filter."""
        nodes = sorted(self._nodes.objects.values(), key=lambda node: node.name)
        residents = self._residents()
        reasons: dict[str, Sequence[str]] = {
            node.name: why_not(pod, node=node, residents=residents.get(node.name, ())) for node in nodes
        }
        feasible: Sequence[Node] = [node for node in nodes if not reasons[node.name]]
        extender = self._extender_for(pod)
        if feasible and extender:
            filtered = await extender.filter(pod, feasible)
            reasons |= {name: [reason] for name, reason in filtered.reasons.items()}
            feasible = filtered.nodes
        if not feasible:
            raise _Unschedulable(refusal_text(nodes=len(nodes), reasons=reasons.values()))
        if len(feasible) == 1:
            return feasible[0]
        scores: dict[str, int] = {}
        if extender:
            try:
                scores |= await extender.prioritize(pod, feasible)
            except ExtenderError as error:  # kube-scheduler goes on without these scores (1.36)
                log.warning("prioritize pod=%s error=%r", pod.key, str(error))
        return max(feasible, key=lambda node: (scores.get(node.name, 0), random.random()))

    def _extender_for(self, pod: Pod) -> ExtenderClient | None:
        return self._extender if self._extender and self._extender.is_interested(pod) else None

    def _residents(self) -> Mapping[str, Sequence[Pod]]:
        """The pods that take room, by node: those that are bound, and those assumed to be soon."""
        bound = ((pod, pod.node_name) for pod in self._pods.objects.values() if pod.is_bound)
        residents: dict[str, list[Pod]] = {}
        for pod, node in itertools.chain(bound, self._assumed.values()):
            residents.setdefault(node, []).append(pod)
        return residents

    async def _bind(self, entry: _Waiting, *, node: str) -> None:
        pod = entry.pod
        try:
            if extender := self._extender_for(pod):
                await extender.bind(pod, node=node)
            else:
                await self._write_binding(pod, node=node)
        except (ExtenderError, ApiError) as error:
            if self._assumed.pop(pod.uid, None) is None:
                return  # bound for all that, or gone
            self._move_all()  # what it was assumed to hold is free again, for the others
            latest = self._pods.objects.get(pod.uid)
            if latest is not None and self._is_ours(latest):
                entry.pod = latest
                self._back_off(entry, at_once=False)
                self._waiting[pod.uid] = entry
            await self._reports.not_scheduled(pod, reason="SchedulerError", message=str(error))
        else:
            log.info("bound pod=%s node=%s", pod.key, node)
            await self._reports.scheduled(pod, node=node)

    async def _write_binding(self, pod: Pod, *, node: str) -> None:
        path = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}/binding"
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"namespace": pod.metadata.namespace, "name": pod.metadata.name, "uid": pod.uid},
            "target": {"kind": "Node", "name": node},
        }
        (await self._api.request("POST", path, body=body)).checked()


def _matters(node: Node) -> tuple[object, ...]:
    """What of a node decides who fits: heartbeats do not."""
    return node.spec, node.labels, node.allocatable, node.metadata.annotations
