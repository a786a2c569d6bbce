"""Marks pods as answered: the annotation that turns `true`, written behind kubelet's back.

An answer never waits for it. It tells a later process, and people, which pods kubelet was answered for.
"""

from __future__ import annotations

import asyncio
import logging

from gpushare.bookings import PodRef
from gpushare.names import Names
from gpushare.objects import Pod
from kubeapi.backoff import Backoff
from kubeapi.client import MERGE_PATCH, KubeApi
from kubeapi.errors import ApiError, ApiRefused

log = logging.getLogger(__name__)


class AssignedMarker:
    """Writes the mark once per pod; what fails is tried again until the pod is gone.

    A refusal is final until the pod is to be marked again.
    """

    def __init__(self, api: KubeApi, *, names: Names, backoff: Backoff | None = None) -> None:
        self._api = api
        self._names = names
        self._backoff = backoff or Backoff()
        self._marked: set[str] = set()
        self._waiting: asyncio.Queue[PodRef] = asyncio.Queue()

    def mark(self, pod: Pod) -> None:
        """Have a pod marked soon; returns at once."""
        if pod.metadata.uid not in self._marked:
            self._marked.add(pod.metadata.uid)
            self._waiting.put_nowait(PodRef.of(pod))

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        self._marked.discard(uid)

    async def run(self) -> None:
        """Write marks until cancelled."""
        while True:
            pod = await self._waiting.get()
            try:
                await self._write(pod)
            except ApiRefused as refusal:
                if refusal.status == 429 or refusal.status >= 500:
                    await self._later(pod, reason=str(refusal))
                elif refusal.status != 404:  # a pod that is gone needs no mark
                    self._marked.discard(pod.uid)
                    log.warning("not marked pod=%s reason=%r", pod, str(refusal)[:500])
            except ApiError as error:
                await self._later(pod, reason=str(error))
            else:
                self._backoff.reset()

    async def _write(self, pod: PodRef) -> None:
        # With the UID in it the API server refuses the patch for a successor by the same name.
        patch = {"metadata": {"uid": pod.uid, "annotations": {self._names.assigned: "true"}}}
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        answer = await self._api.request("PATCH", path, body=patch, content_type=MERGE_PATCH)
        answer.checked()

    async def _later(self, pod: PodRef, *, reason: str) -> None:
        delay = self._backoff.next()
        log.warning("mark delayed pod=%s retry_in=%.1fs reason=%r", pod, delay, reason[:500])
        self._waiting.put_nowait(pod)
        await asyncio.sleep(delay)
