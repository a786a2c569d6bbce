"""What the plugin tells Prometheus, and the names of it: base units, one place.

All but the counts are worked out when they are asked for, so that a series goes with its pod or card.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

import gpushare
from deviceplugin.counts import CardCounts
from deviceplugin.errors import AllocateError
from deviceplugin.holdings import units_on
from deviceplugin.matching import Listed
from deviceplugin.slots import card_of_slot
from gpushare.bookings import Booking
from gpushare.cards import UNITS, Card, NodeCards

PREFIX = "gpushare_plugin_"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Prometheus' text format, as `generate_latest` writes it."""

_CARD = ("node", "card", "uuid")
_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

_GAUGES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "build_info": ("The plugin's version; always 1.", ("node", "version")),
    "ready": ("Whether a part of the plugin is in order: 1 or 0; /readyz says why not.", ("node", "part")),
    "card_memory_bytes": ("Memory of a card that is shared out.", _CARD),
    "card_booked_bytes": ("Memory of a card that live pods hold by their annotations, at their peak.", _CARD),
    "card_used_bytes": ("Memory of a card really in use, as the driver says; absent if it does not.", _CARD),
    "card_healthy": ("Whether a card is healthy: 1 or 0.", _CARD),
    "card_slots": ("Slots of a card: containers that may see it.", _CARD),
    "card_slots_used": ("Slots of a card that containers hold by kubelet's record.", _CARD),
    "container_memory_bytes": (
        "Memory of a card that a container was given; the card is that of kubelet's record.",
        (*_CARD, "namespace", "pod", "container"),
    ),
    "rival_devices": (
        "Devices by which another device plugin announces the same cards; absent where there are none.",
        ("node", "resource"),
    ),
    "pods_differing": (
        "Pods whose annotations name other cards than kubelet's record, and could not be corrected.",
        ("node",),
    ),
}
_COUNTERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "registrations": ("Registrations with kubelet.", ("node",)),
    "corrections": ("Pod annotations that were corrected to kubelet's record.", ("node",)),
    "card_xids": ("XID errors of a card, ignored ones too.", (*_CARD, "xid")),
    "card_failed_probes": ("Looks at a card that it did not answer well.", _CARD),
    "card_health_changes": ("Times that a card turned healthy or unhealthy.", (*_CARD, "to")),
}
_CALL_SECONDS = "call_seconds"
_CALLS = "Kubelet's calls by kind (allocate, prefer) and outcome (answered, or the error refused with)."
_CALL_LABELS = ("node", "call", "outcome")

CATALOGUE: Mapping[str, tuple[str, tuple[str, ...]]] = {
    **{PREFIX + name: ("gauge", labels) for name, (_, labels) in _GAUGES.items()},
    **{f"{PREFIX}{name}_total": ("counter", labels) for name, (_, labels) in _COUNTERS.items()},
    PREFIX + _CALL_SECONDS: ("histogram", _CALL_LABELS),
}
"""Every metric of the plugin as dashboards name it: its kind and its labels."""


class CallTimes:
    """How long kubelet's calls took, and how they ended."""

    def __init__(self, *, node: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a `_created` series for each is no use
        self.registry = CollectorRegistry()
        self._node = node
        self._seconds = Histogram(
            PREFIX + _CALL_SECONDS,
            _CALLS,
            _CALL_LABELS,
            buckets=_BUCKETS,
            registry=self.registry,
        )

    def observe(self, call: str, *, started: float, error: AllocateError | None = None) -> None:
        """A call that was begun at `started` (`time.monotonic`) has ended, with this error or none."""
        seconds = time.monotonic() - started
        outcome = "answered" if error is None else error.outcome
        self._seconds.labels(node=self._node, call=call, outcome=outcome).observe(seconds)


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Everything there is to tell at one moment."""

    node: str
    cards: NodeCards | None
    bookings: Sequence[Booking] = ()
    listed: Sequence[Listed] | None = None
    """kubelet's record; `None` where it is silent, and nothing is said of it then."""
    ids_name_cards: bool = True
    counts: CardCounts = field(default_factory=CardCounts)
    health_changes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By UUID and what the card turned to."""
    problems: Mapping[str, str | None] = field(default_factory=dict)
    """By part, `None` for a part in order."""
    registrations: int = 0
    corrections: int = 0
    differing: int = 0
    rivals: Mapping[str, int] = field(default_factory=dict)
    """What others announce of the same cards, by resource."""


def render(snapshot: Snapshot, *, calls: CallTimes) -> bytes:
    """The whole page, in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_Collector(snapshot))
    return generate_latest(registry) + generate_latest(calls.registry)


class _Collector(Collector):
    """One snapshot as families of series; those without a series are left out."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterable[Metric]:
        families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
        for name, text_labels in _GAUGES.items():
            families[name] = GaugeMetricFamily(PREFIX + name, text_labels[0], labels=text_labels[1])
        for name, text_labels in _COUNTERS.items():
            families[name] = CounterMetricFamily(PREFIX + name, text_labels[0], labels=text_labels[1])
        for name, labels, value in _series(self._snapshot):
            families[name].add_metric((self._snapshot.node, *labels), value)
        return [family for family in families.values() if family.samples]


Series = tuple[str, tuple[str, ...], float]
"""A metric's name, its labels after the node, its value."""


def _series(now: Snapshot) -> Iterator[Series]:
    yield "build_info", (gpushare.__version__,), 1
    for part, problem in now.problems.items():
        yield "ready", (part,), float(problem is None)
    yield "registrations", (), now.registrations
    yield "corrections", (), now.corrections
    yield "pods_differing", (), now.differing
    for resource, count in now.rivals.items():
        yield "rival_devices", (resource,), count
    if now.cards is None:
        return
    size = UNITS[now.cards.unit]
    held = _held(now, cards=now.cards.cards)
    for card in now.cards.cards:
        labels = str(card.index), card.uuid
        yield "card_memory_bytes", labels, card.memory * size
        yield "card_booked_bytes", labels, size * sum(units_on(card, booking=each) for each in now.bookings)
        yield "card_healthy", labels, float(card.healthy)
        if card.uuid in now.counts.used:
            yield "card_used_bytes", labels, now.counts.used[card.uuid]
        if now.ids_name_cards:
            yield "card_slots", labels, now.cards.slots
            if now.listed is not None:
                yield "card_slots_used", labels, sum(each.count for each in held if each.card is card)
        yield "card_failed_probes", labels, now.counts.failed_probes[card.uuid]
        for (uuid, xid), times in now.counts.xids.items():
            if uuid == card.uuid:
                yield "card_xids", (*labels, str(xid)), times
        for (uuid, to), times in now.health_changes.items():
            if uuid == card.uuid:
                yield "card_health_changes", (*labels, to), times
    for each in held:
        labels = str(each.card.index), each.card.uuid
        yield "container_memory_bytes", (*labels, *each.container), each.units * size


@dataclass(frozen=True, kw_only=True)
class _Held:
    """A card that a container holds."""

    container: tuple[str, str, str]
    card: Card
    units: int
    count: int


def _held(now: Snapshot, *, cards: Sequence[Card]) -> list[_Held]:
    """Which container holds which card: by its slots, or by the annotation where device IDs name no card."""
    bookings = {str(booking.pod): booking for booking in now.bookings}
    found: list[_Held] = []
    for pod in now.listed or ():
        booking = bookings.get(pod.key)
        for container, ids in pod.held.items():
            needs = booking.demand.container(container) if booking else None
            uuids = [card_of_slot(each) for each in ids] if now.ids_name_cards else []
            own = booking.allocation.cards[: needs.slots] if booking and needs else ()
            found += [
                _Held(
                    container=(pod.namespace, pod.name, container),
                    card=card,
                    units=needs.per_card if needs else 0,
                    count=uuids.count(card.uuid),
                )
                for card in cards
                if (card.uuid in uuids if now.ids_name_cards else any(ref.names_card(card) for ref in own))
            ]
    return found
