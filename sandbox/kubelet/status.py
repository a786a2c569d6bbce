"""What a node reports about its pods, and the task that writes it to the API."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kubeapi.backoff import Backoff
from kubeapi.client import KubeApi
from kubeapi.errors import ApiUnreachable
from sandbox.kubelet.pods import Container, Pod

log = logging.getLogger(__name__)

STRATEGIC_PATCH = "application/strategic-merge-patch+json"


def now() -> str:
    """The time as the API writes it: whole seconds, UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def refused(*, reason: str, message: str) -> dict[str, Any]:
    """The status of a pod that was not admitted."""
    return {"phase": "Failed", "reason": reason, "message": message, "startTime": now()}


def running(pod: Pod) -> dict[str, Any]:
    """The status of a pod whose containers were started: init containers have ended, the others run."""
    at = now()
    return {
        "phase": "Running",
        "startTime": at,
        "conditions": _conditions(at=at, is_ready=True),
        **_containers(
            pod,
            init={"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": at, "finishedAt": at}},
            other={"running": {"startedAt": at}},
            is_ready=True,
        ),
    }


def ended(pod: Pod, *, phase: str) -> dict[str, Any]:
    """The status of a pod whose containers have all ended, `Succeeded` or `Failed`."""
    at = now()
    is_good = phase == "Succeeded"
    state = {
        "terminated": {
            "exitCode": 0 if is_good else 1,
            "reason": "Completed" if is_good else "Error",
            "finishedAt": at,
        }
    }
    return {
        "phase": phase,
        "conditions": _conditions(at=at, is_ready=False),
        **_containers(pod, init=state, other=state, is_ready=False),
    }


def _conditions(*, at: str, is_ready: bool) -> list[dict[str, str]]:
    states = {"Initialized": True, "ContainersReady": is_ready, "Ready": is_ready}
    return [{"type": kind, "status": str(state), "lastTransitionTime": at} for kind, state in states.items()]


def _containers(
    pod: Pod, *, init: Mapping[str, Any], other: Mapping[str, Any], is_ready: bool
) -> dict[str, list[dict[str, Any]]]:
    def status(container: Container) -> dict[str, Any]:
        return {
            "name": container.name,
            "image": container.image,
            "imageID": "",
            "ready": is_ready or container.kind == "init",
            "restartCount": 0,
            "state": init if container.kind == "init" else other,
        }

    apps = [status(container) for container in pod.containers if container.kind == "app"]
    inits = [status(container) for container in pod.containers if container.kind != "app"]
    return {"containerStatuses": apps} | ({"initContainerStatuses": inits} if inits else {})


@dataclass(frozen=True, kw_only=True, slots=True)
class _Report:
    pod: Pod
    status: Mapping[str, Any] | None
    """None removes the pod."""


class PodReports:
    """Writes the newest status of each pod, for as long as it takes, and removes what has ended for good."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._reports: dict[str, _Report] = {}
        self._wake = asyncio.Event()

    def report(self, pod: Pod, *, status: Mapping[str, Any]) -> None:
        """Have a status written, instead of an earlier one that is still to be written."""
        self._put(_Report(pod=pod, status=status))

    def remove(self, pod: Pod) -> None:
        """Have a pod removed from the API: it is to be deleted, and nothing of it runs."""
        self._put(_Report(pod=pod, status=None))

    def _put(self, report: _Report) -> None:
        self._reports[report.pod.uid] = report
        self._wake.set()

    async def run(self) -> None:
        """Write until cancelled; what the API does not take is tried again."""
        backoff = Backoff(first=0.1, longest=1.0)
        while True:
            await self._wake.wait()
            self._wake.clear()
            is_behind = False
            for uid, report in list(self._reports.items()):
                if not await self._write(report):
                    is_behind = True
                elif self._reports.get(uid) is report:
                    del self._reports[uid]
            if is_behind:
                self._wake.set()
                await asyncio.sleep(backoff.next())
            else:
                backoff.reset()

    async def _write(self, report: _Report) -> bool:
        pod = report.pod
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        # The UID guards against a new pod of the same name.
        patch = {"metadata": {"uid": pod.uid}, "status": report.status}
        removal = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.uid}}
        try:
            if report.status is None:
                answer = await self._api.request("DELETE", path, body=removal)
            else:
                answer = await self._api.request(
                    "PATCH", f"{path}/status", body=patch, content_type=STRATEGIC_PATCH
                )
        except ApiUnreachable as error:
            log.warning("pod status not written pod=%s reason=%r", pod.key, str(error))
            return False
        # 404, 409, 422 (the UID cannot change; 1.36): the pod is gone, or another one by now.
        if answer.status < 400 or answer.status in (404, 409, 422):
            return True
        log.warning("pod status not written pod=%s answer=%d", pod.key, answer.status)
        return False
