"""A node of the sandbox: `Kubelet` put into a cluster.

It keeps its Node object, admits the pods that are bound to it one at a time, reports what became of them, and
ends and removes those that are deleted.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kubeapi.backoff import Backoff
from kubeapi.client import KubeApi
from kubeapi.reflector import Reflector
from sandbox.kubelet import status
from sandbox.kubelet.journal import Journal
from sandbox.kubelet.kubelet import CAPACITY_GRACE, AdmissionRefused, Kubelet
from sandbox.kubelet.nodeobject import NodeObject, NodeRecord
from sandbox.kubelet.pods import Pod, PodObject

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeSettings:
    """What a node is and how fast it does things."""

    name: str
    kubelet_dir: Path
    """Folder for `device-plugins/` and `pod-resources/`; short, since its sockets' paths end at 107 bytes."""
    capacity: Mapping[str, str] = field(
        default_factory=lambda: {"cpu": "32", "memory": "256Gi", "pods": "110"}
    )
    labels: Mapping[str, str] = field(default_factory=lambda: {"gpushare": "true"})
    sync_interval: float = 1.0
    """Seconds after which the node's status is looked at even if nothing happened; kubelet takes 10."""
    stop_seconds: float = 0.0
    """How long the containers of a deleted pod take to end."""
    capacity_grace: float = CAPACITY_GRACE
    """Seconds from a plugin's end until its resource's capacity is zero."""


class Node:
    """One node: `start`, then whatever is bound to it runs. Also the view that its pods' watch feeds."""

    def __init__(self, *, api: KubeApi, settings: NodeSettings) -> None:
        self.settings = settings
        self.kubelet = Kubelet(folder=settings.kubelet_dir, capacity_grace=settings.capacity_grace)
        self.stop_seconds = settings.stop_seconds
        """May be changed at any time; counts for pods that are deleted from then on."""
        self._api = api
        self._tasks: list[asyncio.Task[None]] = []
        self._is_held = False
        self._forget_everything()

    def _forget_everything(self) -> None:
        self._known: dict[str, Pod] = {}
        self._taken: set[str] = set()
        self._waiting: list[Pod] = []
        self._ending: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._listed: dict[str, Pod] | None = None
        self._wake = asyncio.Event()
        self._reports = status.PodReports(self._api)
        self._record = NodeRecord(
            api=self._api,
            name=self.settings.name,
            labels=self.settings.labels,
            capacity=self.settings.capacity,
            counts=self.kubelet.counts,
            sync_interval=self.settings.sync_interval,
        )
        self._pods: Reflector[PodObject] = Reflector(
            self._api,
            "/api/v1/pods",
            kind=PodObject,
            view=self,
            selectors={"fieldSelector": f"spec.nodeName={self.settings.name}"},
            backoff=Backoff(first=0.05, longest=1.0),
        )

    @property
    def containers(self) -> Mapping[tuple[str, str], Mapping[str, Mapping[str, str]]]:
        """(namespace, pod) → container → the environment it was started with."""
        return self.kubelet.containers

    @property
    def journal(self) -> Journal:
        """Every call between kubelet and its plugins, in order."""
        return self.kubelet.journal

    # Life.

    async def start(self) -> None:
        """Serve the sockets, and begin to register and to follow the API; see `ready`."""
        await self.kubelet.start()
        nodes: Reflector[NodeObject] = Reflector(
            self._api,
            "/api/v1/nodes",
            kind=NodeObject,
            view=self._record,
            selectors={"fieldSelector": f"metadata.name={self.settings.name}"},
            backoff=Backoff(first=0.05, longest=1.0),
        )
        steps = (
            nodes.run(),
            self._pods.run(),
            self._reports.run(),
            self._record.run(),
            self._follow_plugins(),
            self._admit_waiting(),
        )
        self._tasks = [asyncio.create_task(step) for step in steps]

    async def ready(self) -> None:
        """Return once the Node object is registered and the pods bound so far have been seen."""
        await self._record.registered.wait()
        await self._pods.synced.wait()

    async def stop(self) -> None:
        """Stop kubelet; containers go on running. Raises what a part of the node died of, if one did."""
        for task in self._tasks:
            task.cancel()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        for timer in self._timers.values():
            timer.cancel()
        await self.kubelet.stop()
        self._forget_everything()
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def restart(self, *, reboot: bool = False) -> None:
        """Stop and start kubelet; with `reboot` the whole machine, so that every container starts anew."""
        await self.stop()
        if reboot:
            self.kubelet.reboot()
        await self.start()

    async def reregister(self, *, recreate: bool = False) -> None:
        """Zero the node's extended resources and drop its annotations, or delete and make the object anew."""
        await self._record.reregister(recreate=recreate)

    async def _follow_plugins(self) -> None:
        while True:
            await self.journal.changed()
            self._record.changed()

    # The view that the pods' watch feeds.

    def begin(self) -> None:
        """A list begins."""
        self._listed = {}

    def put(self, obj: PodObject) -> None:
        """A pod as it is now."""
        pod = obj.pod()
        if self._listed is not None:
            self._listed[pod.uid] = pod
        else:
            self._changed([pod])

    def end(self) -> None:
        """The list is whole: what is not on it is gone."""
        listed, self._listed = self._listed or {}, None
        for uid in [uid for uid in self._known if uid not in listed]:
            self._gone(uid)
        self.kubelet.retain(listed)
        self._changed(list(listed.values()))

    def drop(self, obj: PodObject) -> None:
        """A pod is gone."""
        self._gone(obj.metadata.uid)

    def _changed(self, batch: Sequence[Pod]) -> None:
        for pod in batch:
            self._known[pod.uid] = pod
            if pod.is_terminal:
                self.kubelet.forget(pod)
                if pod.is_deleting:
                    self._reports.remove(pod)
            elif pod.is_deleting:
                self._end_later(pod)
            elif pod.uid not in self._taken:
                self._taken.add(pod.uid)
                self._waiting.append(pod)
        # kubelet sorts what arrives together by creation time (1.36).
        fresh = {pod.uid for pod in batch}
        earlier = [pod for pod in self._waiting if pod.uid not in fresh]
        together = [pod for pod in self._waiting if pod.uid in fresh]
        self._waiting = earlier + sorted(together, key=lambda pod: pod.created)
        self._wake.set()
        self.journal.notify()

    def _gone(self, uid: str) -> None:
        pod = self._known.pop(uid, None)
        if pod is not None:
            self._taken.discard(uid)
            self._ending.discard(uid)
            self._waiting = [waiting for waiting in self._waiting if waiting.uid != uid]
            self.kubelet.forget(pod)

    # Admission.

    def hold_admission(self) -> None:
        """Admit nobody until `release_admission`, but those asked for with `admit`."""
        self._is_held = True

    def release_admission(self) -> None:
        """Admit those who wait, in their order."""
        self._is_held = False
        self._wake.set()

    async def admit(self, *, namespace: str = "default", name: str, deadline: float = 5.0) -> None:
        """Admit one held pod now, once it has arrived; two of these at a time run concurrently.

        Returns when the pod has been started or refused. Raises TimeoutError if it does not arrive.
        """
        key = f"{namespace}/{name}"
        await self.journal.wait_for(lambda: any(pod.key == key for pod in self._waiting), deadline=deadline)
        pod = next(pod for pod in self._waiting if pod.key == key)
        self._waiting.remove(pod)
        await self._admit(pod)

    async def _admit_waiting(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting and not self._is_held:
                await self._admit(self._waiting.pop(0))

    async def _admit(self, pod: Pod) -> None:
        try:
            await self.kubelet.admit(pod)
        except AdmissionRefused as error:
            log.info("pod refused pod=%s reason=%r", pod.key, str(error))
            self._reports.report(pod, status=status.refused(reason=error.reason, message=str(error)))
            return
        log.info("pod started pod=%s", pod.key)
        self._reports.report(pod, status=status.running(pod))
        if pod.uid not in self._known:
            self.kubelet.forget(pod)
        elif pod.run_seconds is not None:
            self._later(pod, seconds=pod.run_seconds)

    async def restart_pod(self, *, namespace: str = "default", name: str) -> None:
        """Start a running pod's containers anew from the recorded answers; it fails if that is refused."""
        pod = self._running(namespace=namespace, name=name)
        try:
            await self.kubelet.restart_containers(pod)
        except AdmissionRefused as error:
            self._reports.report(pod, status=status.refused(reason=error.reason, message=str(error)))

    # The end of pods.

    def finish(self, *, namespace: str = "default", name: str, phase: str = "Succeeded") -> None:
        """A running pod's containers end now, `Succeeded` or `Failed`; raises KeyError if it does not run."""
        self._end(self._running(namespace=namespace, name=name), phase=phase)

    def is_ending(self, *, namespace: str = "default", name: str) -> bool:
        """Whether a pod has been told to end and its containers still run."""
        return any(
            pod.uid in self._ending for pod in self.kubelet.pods.values() if pod.key == f"{namespace}/{name}"
        )

    def _running(self, *, namespace: str, name: str) -> Pod:
        for pod in self.kubelet.pods.values():
            if (pod.namespace, pod.name) == (namespace, name) and self.kubelet.is_running(pod):
                return pod
        raise KeyError(f"no running pod {namespace}/{name} on {self.settings.name}")

    def _end_later(self, pod: Pod) -> None:
        if self.kubelet.is_running(pod):
            if pod.uid not in self._ending:
                self._ending.add(pod.uid)
                self._later(pod, seconds=self.stop_seconds)
        elif pod.uid in self.kubelet.pods:
            pass  # Its admission is under way; the status that follows it brings the pod here again.
        else:
            self._waiting = [waiting for waiting in self._waiting if waiting.uid != pod.uid]
            self._reports.remove(pod)

    def _later(self, pod: Pod, *, seconds: float) -> None:
        if earlier := self._timers.pop(pod.uid, None):
            earlier.cancel()
        if seconds <= 0:
            self._end(pod, phase="Succeeded")
        else:
            loop = asyncio.get_running_loop()
            self._timers[pod.uid] = loop.call_later(seconds, lambda: self._end(pod, phase="Succeeded"))

    def _end(self, pod: Pod, *, phase: str) -> None:
        self._timers.pop(pod.uid, None)
        if self.kubelet.is_running(pod):
            self.kubelet.forget(pod)
            self._reports.report(pod, status=status.ended(pod, phase=phase))
