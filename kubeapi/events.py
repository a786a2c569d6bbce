"""Kubernetes Events, as `kubectl describe` shows them: told to the API server beside the work, never in it.

`record` notes an event and returns; `run` writes the notes, one after the other and not faster than a set
pace. What repeats (same object, reason and message) is one Event whose count goes up. What cannot be written
is logged once and dropped: an event is news, not a record that anything depends on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from gpushare.bookings import PodRef
from kubeapi.client import MERGE_PATCH, KubeApi
from kubeapi.errors import ApiError

log = logging.getLogger(__name__)

Severity = Literal["Normal", "Warning"]

PACE = 0.2
"""Seconds from one write to the next."""

BURST = 10
REFILL = 30.0
"""An object gets this many events at once, and one more every so many seconds."""

MOST_SERIES = 1000
"""Different events that are remembered, for their counts; the one that happened longest ago goes first."""

LONGEST_MESSAGE = 1024
"""Bytes of a message: the bound that events.k8s.io/v1 sets (`note`, 1.36)."""

_LONGEST_NAME = 253  # an object's name (1.36)
_TIMEOUT = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectRef:
    """What an event is about."""

    kind: str
    name: str
    uid: str
    namespace: str = ""

    @classmethod
    def of_pod(cls, pod: PodRef) -> ObjectRef:
        return cls(kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.uid)

    @classmethod
    def of_node(cls, name: str) -> ObjectRef:
        """A node; its name stands for its UID, as in kubelet's own events (`kubectl describe` finds both)."""
        return cls(kind="Node", name=name, uid=name)


class Recorder(Protocol):
    """Whom programs tell what happened."""

    def record(self, about: ObjectRef, *, reason: str, message: str, severity: Severity = "Warning") -> None:
        """Note an event. `reason` is CamelCase and fixed, `message` a sentence. Never waits, never fails."""


@dataclass(kw_only=True, slots=True)
class _Series:
    """One event and how often it happened."""

    about: ObjectRef
    reason: str
    message: str
    severity: Severity
    first: float
    last: float
    count: int = 0
    name: str = ""
    """The Event's name, once it has been written."""


_Key = tuple[ObjectRef, str, str, Severity]


class EventRecorder:
    """Writes events for one program. Lives on one event loop; `run` it beside the program's work."""

    def __init__(
        self,
        api: KubeApi,
        *,
        component: str,
        host: str = "",
        pace: float = PACE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`component` and `host` are whom the events come from; `clock` gives seconds since the epoch."""
        self._api = api
        self._component = component
        self._host = host
        self._pace = pace
        self._clock = clock
        self._series: OrderedDict[_Key, _Series] = OrderedDict()
        self._unwritten: dict[_Key, None] = {}
        self._budgets: OrderedDict[ObjectRef, tuple[float, float]] = OrderedDict()
        self._wake = asyncio.Event()
        self._failing = False

    def record(self, about: ObjectRef, *, reason: str, message: str, severity: Severity = "Warning") -> None:
        """Note an event; see `Recorder`."""
        now = self._clock()
        message = message.encode(errors="replace")[:LONGEST_MESSAGE].decode(errors="ignore")
        key = (about, reason, message, severity)
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = _Series(
                about=about, reason=reason, message=message, severity=severity, first=now, last=now
            )
        series.count += 1
        series.last = now
        self._series.move_to_end(key)
        while len(self._series) > MOST_SERIES:
            forgotten, _ = self._series.popitem(last=False)
            self._unwritten.pop(forgotten, None)
        if self._may_be_written(about, now=now):
            self._unwritten[key] = None
            self._wake.set()

    async def run(self) -> None:
        """Write what is noted until cancelled."""
        while True:
            await self._wake.wait()
            if not self._unwritten:
                self._wake.clear()
                continue
            key = next(iter(self._unwritten))
            del self._unwritten[key]
            try:
                await self._write(self._series[key])
                self._failing = False
            except ApiError as error:
                if not self._failing:
                    log.warning("events cannot be written and are dropped reason=%r", str(error))
                self._failing = True
            await asyncio.sleep(self._pace)

    def _may_be_written(self, about: ObjectRef, *, now: float) -> bool:
        tokens, since = self._budgets.pop(about, (float(BURST), now))
        tokens = min(float(BURST), tokens + max(0.0, now - since) / REFILL)
        allowed = tokens >= 1
        self._budgets[about] = (tokens - 1 if allowed else tokens, now)
        while len(self._budgets) > MOST_SERIES:
            self._budgets.popitem(last=False)
        return allowed

    async def _write(self, series: _Series) -> None:
        """Raise the count of an event that is there, or create it. Raises `ApiError`."""
        # Events live beside what they are about; those about nodes in `default` (1.36).
        path = f"/api/v1/namespaces/{series.about.namespace or 'default'}/events"
        if series.name:
            change = {"count": series.count, "lastTimestamp": _moment(series.last)}
            answer = await self._api.request(
                "PATCH", f"{path}/{series.name}", body=change, content_type=MERGE_PATCH, timeout=_TIMEOUT
            )
            if answer.status != 404:  # the API server forgets events after an hour
                answer.checked()
                return
        event = self._event(series)
        (await self._api.request("POST", path, body=event, timeout=_TIMEOUT)).checked()
        series.name = event["metadata"]["name"]

    def _event(self, series: _Series) -> dict[str, Any]:
        about = series.about
        suffix = f".{int(self._clock() * 1e9):x}"  # as client-go names them
        place = {"namespace": about.namespace} if about.namespace else {}
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": about.name[: _LONGEST_NAME - len(suffix)].rstrip(".-") + suffix,
                "namespace": about.namespace or "default",
            },
            "involvedObject": {"apiVersion": "v1", "kind": about.kind, "name": about.name, "uid": about.uid}
            | place,
            "type": series.severity,
            "reason": series.reason,
            "message": series.message,
            "count": series.count,
            "firstTimestamp": _moment(series.first),
            "lastTimestamp": _moment(series.last),
            "source": {"component": self._component} | ({"host": self._host} if self._host else {}),
            "reportingComponent": self._component,
            "reportingInstance": self._host,
        }


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
