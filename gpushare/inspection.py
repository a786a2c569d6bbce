"""What sits on which card, what waits and why: the classic `inspect` answer, with what it could not say.

The classic fields keep their names and meaning (`kubectl inspect gpushare` and dashboards read them);
amounts are in units of the memory resource. Everything is computed from the ledger and the waiting pods, so
that whoever has both, from a watch or from two lists, gives the same answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from gpushare.bookings import Unreadable
from gpushare.demand import Demand, Share, demand_of
from gpushare.errors import DemandError, PolicyError
from gpushare.ledger import Ledger
from gpushare.names import Names
from gpushare.objects import Pod
from gpushare.placement import Policy, policy_of
from gpushare.refusals import Reason
from gpushare.views import CardView, Holding, NodeView

MOST_REQUESTS = 16
"""Different requests of waiting pods that are looked into, the oldest pods' first: each is put to every node,
and users choose what they ask for."""


def _classic_name(field: str) -> str:
    return to_camel(field).replace("Gpu", "GPU")


class _Answer(BaseModel):
    model_config = ConfigDict(alias_generator=_classic_name, populate_by_name=True, frozen=True)


class InspectedContainer(_Answer):
    """One container on one card."""

    name: str = Field(description="The container's name.")
    used_gpu: int = Field(
        description="Units it may use of this card. Together they can come to more than the pod's, since a "
        "plain init container ends before others begin."
    )


class InspectedPod(_Answer):
    """One pod on one card."""

    name: str = Field(description="The pod's name.")
    namespace: str = Field(description="The pod's namespace.")
    used_gpu: int = Field(description="Units the pod holds of this card.")
    uid: str = Field(description="The pod's UID.")
    standing: str = Field(
        description="`seen` (as the API server has it), `bound` (confirmed, not seen yet) or `reserved` "
        "(a bind is in flight)."
    )
    card: int = Field(description="The card's index, as the pod's allocation gives it.")
    since: str | None = Field(
        description="When the card was chosen (RFC 3339, UTC); null while the bind is in flight, or where "
        "nobody wrote it down."
    )
    assigned: bool = Field(
        description="Whether kubelet has been given the card. False: the pod waits for its kubelet."
    )
    containers: list[InspectedContainer] = Field(description="The pod's containers that see this card.")


class InspectedCard(_Answer):
    """One card."""

    id: int = Field(description="The card's index: NVML's order, or the MIG instance's number.")
    total_gpu: int = Field(description="Units of the whole card, the scheduler's reserve included.")
    used_gpu: int = Field(description="Units booked: more than the total where a card is over-committed.")
    pods: list[InspectedPod] = Field(description="The pods on it, by namespace and name.")
    uuid: str = Field(description="NVML's UUID; empty on nodes of the classic device plugin.")
    model: str = Field(description="The card's model, where it is published.")
    healthy: bool = Field(description="Whether it takes new pods.")
    reason: str = Field(description="Why it is not healthy.")
    free_gpu: int = Field(
        description="Units a new pod may still get: 0 where the node takes no pods, the card is unhealthy, "
        "or no slot is left."
    )
    over_commit: int = Field(description="Units booked beyond the card's size: a fault.")
    used_slots: int = Field(description="Containers that may see the card.")
    total_slots: int = Field(
        description="Containers that may see it at most; 2147483647 where the node announces no slots."
    )


class UnreadablePod(_Answer):
    """A bound pod that asks for GPU memory and whose card nobody can tell. It closes its node."""

    name: str = Field(description="The pod's name.")
    namespace: str = Field(description="The pod's namespace.")
    uid: str = Field(description="The pod's UID.")
    used_gpu: int = Field(description="Units it asks for, in total; 0 where that cannot be read.")
    problem: str = Field(description="What is wrong, as a predicate: `has no card allocation`.")
    state: str = Field(
        description="`no_allocation` (it bypassed the scheduler, or its annotations were removed) or "
        "`unreadable_allocation`."
    )


class InspectedNode(_Answer):
    """One node that shares cards, or should."""

    name: str = Field(description="The node's name.")
    total_gpu: int = Field(description="Units of all its cards.")
    used_gpu: int = Field(description="Units booked on its cards.")
    devs: list[InspectedCard] = Field(description="Its cards, by index.")
    unit: str = Field(description="What one unit counts on this node: `MiB` or `GiB`.")
    address: str = Field(description="Its InternalIP; empty where it has none.")
    closed: str | None = Field(description="Why the node takes no new pods at all; null where it does.")
    missing: list[InspectedPod] = Field(description="What pods hold of cards that the node no longer lists.")
    unreadable: list[UnreadablePod] = Field(description="Pods on it whose card cannot be told.")


class ReasonCount(_Answer):
    """Why nodes do not take a waiting pod."""

    reason: str = Field(description="The scheduler's text, without the name of a pod.")
    nodes: int = Field(description="How many nodes of this answer it is true of.")


class WaitingPod(_Answer):
    """A pod that asks for GPU memory and has no node yet."""

    name: str = Field(description="The pod's name.")
    namespace: str = Field(description="The pod's namespace.")
    uid: str = Field(description="The pod's UID.")
    since: str | None = Field(description="When it was created (RFC 3339, UTC).")
    used_gpu: int = Field(description="Units it asks for, in total over its cards; 0 where it has a problem.")
    slots: int = Field(description="How many cards it asks for.")
    reasons: list[ReasonCount] | None = Field(
        description="Why the nodes of this answer do not take it now, the commonest reason first. Null where "
        f"that was not looked into: at most {MOST_REQUESTS} different requests are, the oldest pods' first."
    )
    fitting: int | None = Field(
        description="How many nodes of this answer would take it as far as cards go; null as for the "
        "reasons. Where it is not 0 and the pod goes on waiting, something else holds it up: see its events."
    )
    problem: str | None = Field(
        description="What is wrong with the request itself: no node will ever take it. Else null."
    )


class Inspection(_Answer):
    """The answer to `inspect`. Each node is as it was at one moment; two nodes may be of different ones."""

    resource: str = Field(description="The memory resource, `aliyun.com/gpu-mem`.")
    unit: str = Field(description="What one unit of it counts in this cluster: `MiB` or `GiB`.")
    nodes: list[InspectedNode] = Field(description="The nodes that share cards, or should, by name.")
    waiting: list[WaitingPod] = Field(description="Pods that have no node yet, the oldest first.")


def inspect(ledger: Ledger, *, waiting: Iterable[Pod] = (), only: str | None = None) -> Inspection | None:
    """Describe all nodes that share cards, or the one called `only`; `None` if there is none by that name.

    `waiting` are the unbound pods that ask for the memory resource.
    """
    names = nodes_asked_for(ledger, only=only)
    if names is None:
        return None
    survey = WaitingSurvey(waiting, names=ledger.names)
    nodes = []
    for name in names:
        view = ledger.view(name)
        if only is not None or view.is_shared:
            nodes.append(inspect_node(view))
            survey.ask(view)
    return Inspection(resource=ledger.names.memory, unit=ledger.unit, nodes=nodes, waiting=survey.answers())


def nodes_asked_for(ledger: Ledger, *, only: str | None) -> list[str] | None:
    """Every known node, or the one called `only`; `None` if there is none by that name."""
    names = ledger.known_nodes()
    if only is None:
        return names
    return [only] if only in names else None


def inspect_node(view: NodeView) -> InspectedNode:
    """Describe one node."""
    return InspectedNode(
        name=view.name,
        total_gpu=sum(card.size.memory for card in view.cards),
        used_gpu=sum(card.booked.memory for card in view.cards),
        devs=[_card(card, free=view.offered(card)) for card in view.cards],
        unit=view.unit,
        address=view.address,
        closed=view.problem.explain() if view.problem else None,
        missing=[_pod(holding) for holding in view.missing],
        unreadable=[_unreadable(claim) for claim in view.unreadable],
    )


class WaitingSurvey:
    """Puts the requests of waiting pods to one node after another, and counts the refusals."""

    def __init__(self, waiting: Iterable[Pod], *, names: Names) -> None:
        """`waiting` are the unbound pods that ask for the memory resource."""
        self._pods: list[tuple[Pod, Demand | None, str | None]] = []
        self._counts: dict[tuple[Share, ...], Counter[Reason | None]] = {}
        self._demands: list[Demand] = []
        for pod in sorted(waiting, key=_age):
            demand, problem = _judge(pod, names)
            self._pods.append((pod, demand, problem))
            is_new = demand is not None and demand.cards not in self._counts
            if demand is not None and is_new and len(self._counts) < MOST_REQUESTS:
                self._counts[demand.cards] = Counter()
                self._demands.append(demand)

    def ask(self, view: NodeView) -> None:
        """Ask one node."""
        for demand in self._demands:
            refusal = view.refusal(demand)
            self._counts[demand.cards][refusal.reason if refusal else None] += 1

    def answers(self) -> list[WaitingPod]:
        """What the nodes asked so far say to each pod."""
        return [self._answer(*judged) for judged in self._pods]

    def _answer(self, pod: Pod, demand: Demand | None, problem: str | None) -> WaitingPod:
        counts = self._counts.get(demand.cards) if demand else None
        reasons = None
        if counts is not None:
            found = [
                (str(reason).rstrip(":"), nodes) for reason, nodes in counts.items() if reason is not None
            ]
            found.sort(key=lambda item: (-item[1], item[0]))
            reasons = [ReasonCount(reason=reason, nodes=nodes) for reason, nodes in found]
        return WaitingPod(
            name=pod.metadata.name,
            namespace=pod.metadata.namespace,
            uid=pod.metadata.uid,
            since=pod.metadata.creation_timestamp,
            used_gpu=demand.memory if demand else 0,
            slots=len(demand.cards) if demand else 0,
            reasons=reasons,
            fitting=None if counts is None else counts[None],
            problem=problem,
        )


def _age(pod: Pod) -> tuple[str, str, str]:
    meta = pod.metadata
    return meta.creation_timestamp or "", meta.namespace, meta.name


def _judge(pod: Pod, names: Names) -> tuple[Demand | None, str | None]:
    """What a pod asks for, or what is wrong with it."""
    try:
        policy_of(pod.annotations, names=names, default=Policy.BINPACK)
        return demand_of(pod.spec, names), None
    except (DemandError, PolicyError) as error:
        return None, str(error)


def _card(view: CardView, *, free: int) -> InspectedCard:
    return InspectedCard(
        id=view.card.index,
        total_gpu=view.size.memory,
        used_gpu=view.booked.memory,
        pods=[_pod(holding) for holding in view.holdings],
        uuid=view.card.uuid,
        model=view.card.model,
        healthy=view.card.healthy,
        reason=view.card.reason,
        free_gpu=free,
        over_commit=view.over_commit,
        used_slots=view.booked.slots,
        total_slots=view.size.slots,
    )


def _pod(holding: Holding) -> InspectedPod:
    booking = holding.booking
    return InspectedPod(
        name=booking.pod.name,
        namespace=booking.pod.namespace,
        used_gpu=holding.share.memory,
        uid=booking.pod.uid,
        standing=booking.standing.value,
        card=booking.allocation.cards[holding.position].index,
        since=_rfc3339(booking.assumed),
        assigned=booking.assigned,
        containers=[
            InspectedContainer(name=container.name, used_gpu=container.per_card)
            for container in booking.demand.containers
            if holding.position < container.slots
        ],
    )


def _unreadable(claim: Unreadable) -> UnreadablePod:
    return UnreadablePod(
        name=claim.pod.name,
        namespace=claim.pod.namespace,
        uid=claim.pod.uid,
        used_gpu=claim.memory,
        problem=claim.problem,
        state=claim.state.value,
    )


def _rfc3339(seconds: int | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
