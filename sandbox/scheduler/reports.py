"""What users read of a scheduler: the pod's events and its condition PodScheduled."""

from __future__ import annotations

import logging
import uuid
from datetime import UTC, datetime
from typing import Any

from kubeapi.client import KubeApi
from kubeapi.errors import ApiError
from sandbox.scheduler.objects import Pod

log = logging.getLogger(__name__)

_STRATEGIC_PATCH = "application/strategic-merge-patch+json"


class PodReports:
    """Writes them. What cannot be written is logged: scheduling goes on without."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._last: dict[str, str] = {}

    async def not_scheduled(self, pod: Pod, *, reason: str, message: str) -> None:
        """FailedScheduling and PodScheduled=False, once for as long as the sentence stays the same.

        `reason` is the condition's: `Unschedulable`, or `SchedulerError` where something broke (1.36).
        """
        if self._last.get(pod.uid) == message:
            return
        self._last[pod.uid] = message
        log.info("not scheduled pod=%s reason=%r", pod.key, message)
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": reason,
            "message": message,
            "lastProbeTime": None,
            "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        path = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}/status"
        patch = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
        await self._event(pod, kind="Warning", reason="FailedScheduling", action="Scheduling", note=message)
        await self._write("PATCH", path, body=patch, content_type=_STRATEGIC_PATCH)

    async def scheduled(self, pod: Pod, *, node: str) -> None:
        """The event Scheduled; the Binding itself has set the condition."""
        self._last.pop(pod.uid, None)
        note = f"Successfully assigned {pod.key} to {node}"
        await self._event(pod, kind="Normal", reason="Scheduled", action="Binding", note=note)

    async def _event(self, pod: Pod, *, kind: str, reason: str, action: str, note: str) -> None:
        namespace = pod.metadata.namespace
        name = pod.spec.get("schedulerName", "")
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": f"{pod.metadata.name}.{uuid.uuid4().hex[:16]}", "namespace": namespace},
            "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": name,
            "reportingInstance": f"{name}-sandbox",
            "type": kind,
            "reason": reason,
            "action": action,
            "note": note[:1024],  # Kubernetes' limit of a note (1.36)
            "regarding": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": namespace,
                "name": pod.metadata.name,
                "uid": pod.uid,
                "resourceVersion": pod.metadata.resource_version,
            },
        }
        await self._write("POST", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", body=body)

    async def _write(
        self, method: str, path: str, *, body: dict[str, Any], content_type: str = "application/json"
    ) -> None:
        try:
            (await self._api.request(method, path, body=body, content_type=content_type)).checked()
        except ApiError as error:
            log.warning("not reported path=%s reason=%r", path, str(error))
