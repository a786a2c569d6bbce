"""What sits on which card: the classic `inspect` answer, with what the classic one could not say.

The classic fields keep their names and meaning (`kubectl inspect gpushare` and dashboards read them);
amounts are in units of the memory resource.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from gpushare.ledger import Ledger
from gpushare.views import CardView, Holding, NodeView


def _classic_name(field: str) -> str:
    return to_camel(field).replace("Gpu", "GPU")


class _Answer(BaseModel):
    model_config = ConfigDict(alias_generator=_classic_name, populate_by_name=True, frozen=True)


class InspectedPod(_Answer):
    """One pod on one card."""

    name: str
    namespace: str
    used_gpu: int
    """Units the pod holds of this card."""
    uid: str
    standing: str
    """`seen` (as the API server has it), `bound` (confirmed, not seen yet) or `reserved` (in flight)."""


class InspectedCard(_Answer):
    """One card."""

    id: int
    total_gpu: int
    used_gpu: int
    """Units booked: more than the total where a card is over-committed."""
    pods: list[InspectedPod]
    uuid: str
    model: str
    healthy: bool
    reason: str
    free_gpu: int
    """Units a new pod may still get."""
    over_commit: int
    used_slots: int
    total_slots: int


class InspectedNode(_Answer):
    """One node that shares cards, or should."""

    name: str
    total_gpu: int
    used_gpu: int
    devs: list[InspectedCard]
    unit: str
    closed: str | None
    """Why the node takes no new pods at all."""
    missing: list[InspectedPod]
    """Pods with cards that the node no longer has."""


class Inspection(_Answer):
    """The answer to `inspect`."""

    nodes: list[InspectedNode]


def inspect(ledger: Ledger, *, only: str | None = None) -> Inspection | None:
    """Describe all nodes that share cards, or the one called `only`; `None` if there is none by that name."""
    names = ledger.known_nodes()
    if only is not None:
        return Inspection(nodes=[_node(ledger.view(only))]) if only in names else None
    views = (ledger.view(name) for name in names)
    return Inspection(nodes=[_node(view) for view in views if view.is_shared])


def _node(view: NodeView) -> InspectedNode:
    return InspectedNode(
        name=view.name,
        total_gpu=sum(card.size.memory for card in view.cards),
        used_gpu=sum(card.booked.memory for card in view.cards),
        devs=[_card(card) for card in view.cards],
        unit=view.unit,
        closed=view.problem.explain() if view.problem else None,
        missing=[_pod(holding) for holding in view.missing],
    )


def _card(view: CardView) -> InspectedCard:
    return InspectedCard(
        id=view.card.index,
        total_gpu=view.size.memory,
        used_gpu=view.booked.memory,
        pods=[_pod(holding) for holding in view.holdings],
        uuid=view.card.uuid,
        model=view.card.model,
        healthy=view.card.healthy,
        reason=view.card.reason,
        free_gpu=view.free.memory,
        over_commit=view.over_commit,
        used_slots=view.booked.slots,
        total_slots=view.size.slots,
    )


def _pod(holding: Holding) -> InspectedPod:
    pod = holding.booking.pod
    return InspectedPod(
        name=pod.name,
        namespace=pod.namespace,
        used_gpu=holding.share.memory,
        uid=pod.uid,
        standing=holding.booking.standing.value,
    )
