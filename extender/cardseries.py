"""The series of nodes and cards as text: the ledger's views in Prometheus' text format, line by line.

Nothing is kept from one scrape to the next, so what is gone from the ledger is gone from here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator

from extender.events import CLOSING
from extender.metrics import (
    CARD_BOOKED,
    CARD_FREE,
    CARD_HEALTHY,
    CARD_MEMORY,
    CARD_OVERCOMMIT,
    CARD_PODS,
    NODE_CLOSED,
    NODE_MISSING,
    Metric,
)
from extender.slices import in_slices
from gpushare.cards import UNITS
from gpushare.ledger import Ledger
from gpushare.views import CardView, NodeView

Series = Callable[[NodeView], Iterator[str]]


async def allocation_lines(ledger: Ledger) -> AsyncGenerator[str]:
    """Every line about nodes and cards, as they are when it is written."""
    booked_unit = UNITS[ledger.unit]  # pods ask in the cluster's unit, whatever a node publishes

    def size(view: NodeView, card: CardView) -> int:
        return card.size.memory * UNITS[view.unit]

    def booked(_: NodeView, card: CardView) -> int:
        return card.booked.memory * booked_unit

    def free(view: NodeView, card: CardView) -> int:
        return view.offered(card) * UNITS[view.unit]

    def over(view: NodeView, card: CardView) -> int:
        return max(0, booked(view, card) - size(view, card))

    families: tuple[tuple[Metric, Series], ...] = (
        (CARD_MEMORY, _per_card(CARD_MEMORY, size)),
        (CARD_BOOKED, _per_card(CARD_BOOKED, booked)),
        (CARD_FREE, _per_card(CARD_FREE, free)),
        (CARD_PODS, _per_card(CARD_PODS, lambda _, card: len(card.holdings))),
        (CARD_HEALTHY, _per_card(CARD_HEALTHY, lambda _, card: int(card.card.healthy))),
        (CARD_OVERCOMMIT, _per_card(CARD_OVERCOMMIT, over)),
        (NODE_CLOSED, _closed),
        (NODE_MISSING, _missing),
    )
    names = ledger.known_nodes()
    for metric, series in families:  # the format wants all lines of a metric together
        yield f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}\n"
        async for name in in_slices(names):
            for line in series(ledger.view(name)):
                yield line


def _per_card(metric: Metric, value: Callable[[NodeView, CardView], int]) -> Series:
    def lines(view: NodeView) -> Iterator[str]:
        start = f'{metric.name}{{node="{_escaped(view.name)}",card="'
        for card in view.cards:
            uuid = _escaped(card.card.uuid)
            yield f'{start}{card.card.index}",uuid="{uuid}"}} {value(view, card)}\n'

    return lines


def _closed(view: NodeView) -> Iterator[str]:
    if view.problem is not None and view.problem.reason in CLOSING:
        reason = view.problem.reason.name.lower()
        yield f'{NODE_CLOSED.name}{{node="{_escaped(view.name)}",reason="{reason}"}} 1\n'


def _missing(view: NodeView) -> Iterator[str]:
    if view.missing:
        yield f'{NODE_MISSING.name}{{node="{_escaped(view.name)}"}} {len(view.missing)}\n'


def _escaped(label: str) -> str:
    """A label's value. Kubernetes allows a node's name no such characters; a UUID is whatever a node says."""
    if "\\" in label or '"' in label or "\n" in label:
        return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return label
