"""The label on this replica's own pod by which a Service finds the one that leads.

So a replica that stands by can be ready: rollouts, drains and disruption budgets go by readiness, and the
Service by the label besides. Nobody answers because of the label, the lease alone decides that. Where a label
may be on a pod that does not lead, the pod is not ready, and the Service passes it by for that reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kubeapi.backoff import Backoff
from kubeapi.client import MERGE_PATCH, KubeApi
from kubeapi.errors import ApiError, ApiRefused

log = logging.getLogger(__name__)

VALUE = "true"

AGAIN = 10.0
"""Seconds until the label is written once more as it is: somebody may have changed it by hand, or an earlier
write may have arrived late. Where neither is so the API server stores nothing."""

_LOOK = 0.2  # seconds between two looks at who leads: a lease that runs out tells nobody
_LIMIT = 3.0  # seconds for one write


class LeaderLabel:
    """Keeps one pod's label as it should be; the pod is this replica's own."""

    def __init__(self, api: KubeApi, *, key: str, pod: str, namespace: str, again: float = AGAIN) -> None:
        """`again` is in seconds."""
        self._api = api
        self._key = key
        self._pod = f"{namespace}/{pod}"
        self._path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
        self._again = again
        # Unknown: a container that starts again finds its pod's labels as they were.
        self._is_on: bool | None = None
        self._trouble = ""

    def problem(self, *, leads: bool) -> str | None:
        """Why a Service that goes by the label has the wrong idea of this replica, `None` if it has not.

        For the moment in which a new leader's label is written there is none.
        """
        if self._is_on is leads:
            return None
        if leads:
            return self._trouble or None
        return self._trouble or f"label {self._key} may be on pod {self._pod}"

    async def keep(self, *, leads: Callable[[], bool]) -> None:
        """Write the label whenever `leads()` has changed, until cancelled; first of all take it off.

        What fails is tried again after 0.2 to 10 seconds.
        """
        backoff = Backoff(longest=self._again)
        wanted = False
        while True:
            if await self._write(on=wanted):
                backoff.reset()
                pause = self._again
            else:
                pause = backoff.next()
            try:
                async with asyncio.timeout(pause):
                    while leads() is wanted:  # noqa: ASYNC110 — nobody tells
                        await asyncio.sleep(_LOOK)
            except TimeoutError:
                continue
            wanted = not wanted

    async def take_off(self) -> None:
        """Once, if it is not known to be off: when `keep` has ended."""
        if self._is_on is not False:
            await self._write(on=False)

    async def _write(self, *, on: bool) -> bool:
        """Say whether it is as it should be."""
        was, self._is_on = self._is_on, on if self._is_on is on else None
        labels = {self._key: VALUE if on else None}
        try:
            answer = await self._api.request(
                "PATCH",
                self._path,
                body={"metadata": {"labels": labels}},
                content_type=MERGE_PATCH,
                timeout=_LIMIT,
            )
            if on or answer.status != 404:  # a pod that is gone has no label
                answer.checked()
        except ApiError as error:
            self._report(error, on=on)
            return False
        self._is_on, self._trouble = on, ""
        if was is not on:
            log.info("label=%s pod=%s on=%s", self._key, self._pod, on)
        return True

    def _report(self, error: ApiError, *, on: bool) -> None:
        self._trouble = f"label {self._key} not {'put on' if on else 'taken off'} pod {self._pod}: {error}"
        if isinstance(error, ApiRefused) and error.status == 403:
            log.error("%s; its service account needs the right to patch pods in its namespace", self._trouble)
        else:
            log.warning("%s", self._trouble)
