"""What a pod holds of a node's cards, as read from the pod itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum

from gpushare.allocation import Allocation, decode_allocation
from gpushare.demand import Demand, demand_of
from gpushare.errors import AllocationError, DemandError, NoAllocationError
from gpushare.names import Names
from gpushare.objects import Pod


class Standing(Enum):
    """How sure a booking is."""

    RESERVED = "reserved"
    """A bind is in flight, or its outcome is unknown."""
    BOUND = "bound"
    """The API server confirmed the bind; the watch has not shown it yet."""
    SEEN = "seen"
    """The API server's own view of the pod."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PodRef:
    """Names one pod: by UID for us, by namespace and name for people. Says how much it matters."""

    uid: str
    namespace: str
    name: str
    priority: int = 0
    """Pods without one have 0, as kube-scheduler counts them (1.36)."""
    created: str = ""
    """As the API server writes it (UTC, whole seconds): the texts compare as the times do."""

    @classmethod
    def of(cls, pod: Pod) -> PodRef:
        meta = pod.metadata
        return cls(
            uid=meta.uid,
            namespace=meta.namespace,
            name=meta.name,
            priority=pod.spec.priority or 0,
            created=meta.creation_timestamp or "",
        )

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def importance(self) -> tuple[int, str, str]:
        """Sorts the most important pod first: higher priority, then older, as kube-scheduler has it, then a
        fixed order."""
        return -self.priority, self.created, self.uid


@dataclass(frozen=True, kw_only=True, slots=True)
class Booking:
    """What one pod holds of the cards of one node."""

    pod: PodRef
    node: str
    demand: Demand
    allocation: Allocation
    standing: Standing = Standing.SEEN
    sequence: int = 0
    """When it became known other than by the watch, on the ledger's own counter; see `Ledger.mark`."""
    assumed: int | None = None
    """When the cards were chosen, whole seconds since the epoch; `None` where that is not written."""
    assigned: bool = False
    """Whether kubelet has been told, as the device plugin writes it."""
    ending: bool = False
    """Whether the pod has been deleted and holds its cards for its grace period only."""


class Unread(StrEnum):
    """Why nobody can tell a pod's cards."""

    NO_ALLOCATION = "no_allocation"
    UNREADABLE_ALLOCATION = "unreadable_allocation"
    """Or what the pod asks for is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unreadable:
    """A bound live pod that asks for memory and whose cards nobody can tell."""

    pod: PodRef
    node: str
    problem: str
    state: Unread = Unread.UNREADABLE_ALLOCATION
    memory: int = 0
    """Units it asks for, in total; 0 where that cannot be read either."""
    sequence: int = 0
    """As in `Booking`."""


Claim = Booking | Unreadable


def claim_of(pod: Pod, names: Names) -> Claim | None:
    """What the API's view of a pod says it holds; `None` for unbound, ended and card-less pods."""
    if not pod.node_name or pod.is_terminal:
        return None
    ref = PodRef.of(pod)
    try:
        demand = demand_of(pod.spec, names)
    except DemandError as error:
        return Unreadable(pod=ref, node=pod.node_name, problem=str(error))
    if demand is None or not demand.cards:
        return None
    try:
        allocation = decode_allocation(pod.annotations, node=pod.node_name, demand=demand, names=names)
    except AllocationError as error:
        is_absent = isinstance(error, NoAllocationError)
        return Unreadable(
            pod=ref,
            node=pod.node_name,
            problem=str(error),
            state=Unread.NO_ALLOCATION if is_absent else Unread.UNREADABLE_ALLOCATION,
            memory=demand.memory,
        )
    return Booking(
        pod=ref,
        node=pod.node_name,
        demand=demand,
        allocation=allocation,
        assumed=_assumed(pod.annotations, names),
        assigned=pod.annotations.get(names.assigned) == "true",
        ending=pod.is_ending,
    )


def _assumed(annotations: Mapping[str, str], names: Names) -> int | None:
    """The assume time in seconds; nothing rests on it, so what cannot be read counts as not written."""
    text = annotations.get(names.assume_time, "")
    if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST_NANOSECONDS):
        return None
    return int(text) // 10**9


_LONGEST_NANOSECONDS = 20  # digits: the year 5138 at most, which every calendar knows
