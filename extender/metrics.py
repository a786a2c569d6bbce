"""The extender's metrics: every name with its meaning, and what is counted as requests come in.

`CATALOGUE` is the one list of names; nothing else spells one. Memory is in bytes and time in seconds,
whatever the cluster counts its units in. `extender.exposition` writes the text that is scraped.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from fastapi import Request, Response
from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics

from extender.wire import FilterResult
from gpushare.errors import NoRoomError
from gpushare.refusals import Reason


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """One metric, as the docs and dashboards name it."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    labels: tuple[str, ...] = ()
    help: str


_CARD = ("node", "card", "uuid")

# The allocation: only from the active replica, and only while node, card and pod are there.
CARD_MEMORY = Metric(name="gpushare_card_memory_bytes", kind="gauge", labels=_CARD, help="Size of a card.")
CARD_BOOKED = Metric(
    name="gpushare_card_booked_bytes",
    kind="gauge",
    labels=_CARD,
    help="Memory of a card that pods hold, binds in flight included.",
)
CARD_FREE = Metric(
    name="gpushare_card_free_bytes",
    kind="gauge",
    labels=_CARD,
    help="Memory of a card that a new pod may get: less what is booked and reserved, and 0 where the card "
    "is unhealthy or has no slot left, or its node is closed.",
)
CARD_PODS = Metric(
    name="gpushare_card_pods", kind="gauge", labels=_CARD, help="Pods that hold some of a card."
)
CARD_HEALTHY = Metric(
    name="gpushare_card_healthy", kind="gauge", labels=_CARD, help="1 for a card that takes new pods, else 0."
)
CARD_OVERCOMMIT = Metric(
    name="gpushare_card_overcommit_bytes",
    kind="gauge",
    labels=_CARD,
    help="Memory booked beyond a card's size. Anything but 0 is a fault.",
)
NODE_CLOSED = Metric(
    name="gpushare_node_closed",
    kind="gauge",
    labels=("node", "reason"),
    help="1 for a node that takes no GPU pods at all, by reason. Open nodes have no series.",
)
NODE_MISSING = Metric(
    name="gpushare_node_missing_card_bookings",
    kind="gauge",
    labels=("node",),
    help="Bookings on cards that the node no longer has. Nodes without any have no series.",
)

# The replica.
BUILD = Metric(
    name="gpushare_build_info", kind="gauge", labels=("version",), help="1, with the program's version."
)
READY = Metric(
    name="gpushare_ready", kind="gauge", help="1 while new requests may be sent here (/readyz), else 0."
)
ACTIVE = Metric(
    name="gpushare_active",
    kind="gauge",
    help="1 on the replica that binds (without leader election: on every ready one), else 0.",
)
WAITING = Metric(
    name="gpushare_waiting_pods", kind="gauge", help="Pods that ask for GPU memory and have no node yet."
)
FITTING = Metric(
    name="gpushare_fitting_waiting_pods",
    kind="gauge",
    help="Waiting pods without scheduling gates that some node would take as far as cards go: kube-scheduler "
    "ought to ask for them. Counted anew every 15 seconds or more.",
)
FRAGMENTED = Metric(
    name="gpushare_fragmentation_waiting_pods",
    kind="gauge",
    help="Waiting pods that outrank others on a node whose sums have room and no card has: kube-scheduler "
    "evicts nobody for them.",
)
UNSETTLED = Metric(
    name="gpushare_binds_unsettled",
    kind="gauge",
    help="Binds whose write was not answered: their cards stay reserved until the outcome is known.",
)

# The verbs.
REQUESTS = Metric(
    name="gpushare_request_duration_seconds",
    kind="histogram",
    labels=("verb", "outcome"),
    help="Time from a request's arrival to its answer; its count is the number of requests.",
)
REFUSALS = Metric(
    name="gpushare_refusals_total",
    kind="counter",
    labels=("verb", "reason"),
    help="Requests in which nodes refused the pod, by each reason given.",
)
BIND_CONFLICTS = Metric(
    name="gpushare_bind_conflicts_total",
    kind="counter",
    help="Binds that the API server refused with 409: the pod was bound, replaced or changed meanwhile.",
)
BIND_RETRIES = Metric(
    name="gpushare_bind_retries_total", kind="counter", help="Writes of a bind that were tried again."
)

# What the answers rest on.
WATCH_UP = Metric(
    name="gpushare_watch_up", kind="gauge", labels=("kind",), help="1 while the watch is open, else 0."
)
WATCH_AGE = Metric(
    name="gpushare_watch_last_event_age_seconds",
    kind="gauge",
    labels=("kind",),
    help="Time since the watch last brought anything; a quiet one brings a bookmark about once a minute.",
)
WATCH_LISTS = Metric(
    name="gpushare_watch_lists_total",
    kind="counter",
    labels=("kind",),
    help="Whole lists applied: the first one at the start, and one for every gap in the watch.",
)
AUDITS = Metric(
    name="gpushare_audits_total",
    kind="counter",
    labels=("outcome",),
    help="Comparisons of the ledger with a fresh list of pods.",
)
CORRECTIONS = Metric(
    name="gpushare_ledger_corrections_total",
    kind="counter",
    help="Pods that the ledger had wrong and an audit corrected. Anything but 0 is a fault of gpushare.",
)

ALLOCATION = (
    *(CARD_MEMORY, CARD_BOOKED, CARD_FREE, CARD_PODS, CARD_HEALTHY, CARD_OVERCOMMIT),
    *(NODE_CLOSED, NODE_MISSING),
)
CATALOGUE = (
    *ALLOCATION,
    *(BUILD, READY, ACTIVE, WAITING, FITTING, FRAGMENTED, UNSETTLED),
    *(REQUESTS, REFUSALS, BIND_CONFLICTS, BIND_RETRIES),
    *(WATCH_UP, WATCH_AGE, WATCH_LISTS, AUDITS, CORRECTIONS),
)
"""Every metric of the extender, beside the process's own (`process_…`)."""

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Seconds: from a small cluster's filter to kube-scheduler's own 5 s for an extender call (1.36)."""

OK = "ok"
ERROR = "error"

_REASONS = {str(reason): reason.name.lower() for reason in Reason}

Handler = Callable[[Request], Awaitable[Response]]


class Answer(Response):
    """A response that knows what came of the request, for the metrics."""

    outcome: str = OK


def answer(body: bytes, *, outcome: str = OK) -> Answer:
    """A JSON answer of status 200, whatever it says."""
    response = Answer(body, media_type="application/json")
    response.outcome = outcome
    return response


class RequestMetrics:
    """Counts requests. One per process; costs a microsecond or two a request."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a `_created` series for each is no use
        self.registry = CollectorRegistry()
        self._duration = Histogram(
            REQUESTS.name, REQUESTS.help, REQUESTS.labels, registry=self.registry, buckets=BUCKETS
        )
        self._refusals = Counter(REFUSALS.name, REFUSALS.help, REFUSALS.labels, registry=self.registry)

    def timed(self, verb: str) -> Callable[[Handler], Handler]:
        """Decorate a route's handler: count its requests and measure them, by outcome."""

        def decorate(handler: Handler) -> Handler:
            @functools.wraps(handler)
            async def measured(request: Request) -> Response:
                begun = time.perf_counter()
                outcome = ERROR
                try:
                    response = await handler(request)
                    if response.status_code < 400:
                        outcome = getattr(response, "outcome", OK)
                finally:
                    self._duration.labels(verb, outcome).observe(time.perf_counter() - begun)
                return response

            return measured

        return decorate

    def filtered(self, result: FilterResult) -> None:
        """Count why nodes refused a pod."""
        for texts in (result.failed_nodes, result.failed_and_unresolvable_nodes):
            self._count("filter", set(texts.values()))

    def refused(self, verb: str, error: Exception) -> None:
        """Count why a request was refused, where a node refused it."""
        if isinstance(error, NoRoomError):
            self._count(verb, (error.reason,))

    def _count(self, verb: str, texts: Iterable[str]) -> None:
        for reason in {slug_of(text) for text in texts}:
            self._refusals.labels(verb, reason).inc()


def slug_of(text: str) -> str:
    """The fixed name of a refusal's text. Only the one of a closed node goes on after the fixed part."""
    return _REASONS.get(text) or (Reason.CLOSED.name.lower() if text.startswith(Reason.CLOSED) else "other")
