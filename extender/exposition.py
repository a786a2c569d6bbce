"""What `/metrics` answers, in Prometheus' text format.

The few series of the replica itself come from the client library. Those of the cards are written by
`extender.cardseries`: 5,000 nodes of 8 cards make 240,000 lines, for which the library would hold up the
event loop for more than a second. They are streamed in slices, between which verbs are served.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterable, Mapping

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from extender import metrics
from extender.audit import OUTCOMES
from extender.cardseries import allocation_lines
from extender.core import Extender
from extender.metrics import Metric
from gpushare import __version__

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_CHUNK = 500  # lines sent at a time: about 60 KB


class Exposition:
    """The metrics of one extender."""

    def __init__(self, extender: Extender) -> None:
        self._extender = extender
        self._replica = CollectorRegistry()
        self._replica.register(ReplicaCollector(extender))
        ProcessCollector(registry=self._replica)

    async def chunks(self) -> AsyncGenerator[bytes]:
        """The whole text, bit by bit."""
        yield generate_latest(self._replica) + generate_latest(self._extender.metrics.registry)
        if not self._extender.is_active:
            return
        lines: list[str] = []
        async for line in allocation_lines(self._extender.ledger):
            lines.append(line)
            if len(lines) >= _CHUNK:
                yield "".join(lines).encode()
                lines = []
        yield "".join(lines).encode()


class ReplicaCollector(Collector):
    """What one replica knows of itself, read when it is asked for."""

    def __init__(self, extender: Extender) -> None:
        self._extender = extender

    def collect(self) -> Iterable[Family]:
        extender = self._extender
        yield _family(metrics.BUILD, {(__version__,): 1})
        yield _family(metrics.READY, {(): extender.unready is None})
        yield _family(metrics.ACTIVE, {(): extender.is_active})
        yield _family(metrics.WAITING, {(): len(extender.waiting)})
        yield _family(metrics.FITTING, {(): extender.fragmentation.fitting})
        yield _family(metrics.FRAGMENTED, {(): extender.fragmentation.pods})
        yield _family(metrics.UNSETTLED, {(): extender.binder.unsettled})
        yield _family(metrics.BIND_CONFLICTS, {(): extender.binder.conflicts})
        yield _family(metrics.BIND_RETRIES, {(): extender.binder.retries})
        watches = {reflector.path.rpartition("/")[2]: reflector for reflector in extender.reflectors}
        now = time.monotonic()
        yield _family(metrics.WATCH_UP, {(kind,): each.problem is None for kind, each in watches.items()})
        yield _family(
            metrics.WATCH_AGE,
            {(kind,): now - each.heard for kind, each in watches.items() if each.heard is not None},
        )
        yield _family(metrics.WATCH_LISTS, {(kind,): each.lists for kind, each in watches.items()})
        audits = extender.audit.outcomes  # all of them, at 0 too: the first failure is an increase then
        yield _family(metrics.AUDITS, {(outcome,): audits[outcome] for outcome in OUTCOMES})
        yield _family(metrics.CORRECTIONS, {(): extender.audit.corrections})


def _family(metric: Metric, samples: Mapping[tuple[str, ...], float]) -> Family:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in samples.items():
        family.add_metric(labels, value)
    return family
