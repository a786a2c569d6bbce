"""What a pod needs of each card.

A pod gets one set of k cards, k being the most slots any of its containers asks for; a container with s
slots sees the first s of them, its memory split evenly. What the pod holds of a card at its peak follows
Kubernetes' own rule for init containers: the larger of what runs at the same time during start-up and
what runs afterwards, where a sidecar (an init container with `restartPolicy: Always`) never ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

from gpushare.errors import DemandError, QuantityError
from gpushare.names import Names
from gpushare.objects import Container, PodSpec
from gpushare.quantities import parse_units

MOST_CARDS = 256
"""Cards of one node at most, far above any (16 GPUs × 7 MIG instances): the bound that keeps a typo, or a
hostile pod, from making millions of shares."""

MOST_SLOTS_OF_A_POD = 1024
"""Over all containers: far above what the cards of any node offer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """An amount of one card. A further per-card dimension is one more field here."""

    memory: int = 0
    """Units of the memory resource."""
    slots: int = 0
    """Containers that may see the card."""

    def __add__(self, other: Share) -> Share:
        return Share(memory=self.memory + other.memory, slots=self.slots + other.slots)

    def __sub__(self, other: Share) -> Share:
        return Share(memory=self.memory - other.memory, slots=self.slots - other.slots)

    def fits(self, room: Share) -> bool:
        """Whether this amount is there in `room`, in every dimension."""
        return self.memory <= room.memory and self.slots <= room.slots

    def peak(self, other: Share) -> Share:
        """The larger of the two in every dimension."""
        return Share(memory=max(self.memory, other.memory), slots=max(self.slots, other.slots))

    def clamped(self) -> Share:
        """The same with no dimension below zero."""
        return self.peak(NOTHING)

    def __bool__(self) -> bool:
        return any(getattr(self, dimension.name) for dimension in fields(self))


NOTHING = Share()


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerDemand:
    """What one container asks for: `memory` units in total over `slots` cards."""

    name: str
    memory: int
    slots: int

    @property
    def per_card(self) -> int:
        """Units on each of its cards."""
        return self.memory // self.slots

    def on_card(self, position: int) -> Share:
        """What the container holds of the card at this position of the pod's set."""
        return Share(memory=self.per_card, slots=1) if position < self.slots else NOTHING


@dataclass(frozen=True, kw_only=True, slots=True)
class Demand:
    """A pod's need: one `Share` per card position, largest first, and the containers it comes from.

    `cards` is empty for a pod that asks for zero units: it needs no card and is charged nothing.
    """

    cards: tuple[Share, ...]
    containers: tuple[ContainerDemand, ...]

    @property
    def memory(self) -> int:
        """Units over all cards."""
        return sum(share.memory for share in self.cards)

    def container(self, name: str) -> ContainerDemand | None:
        """The demand of one container, `None` where it asks for nothing."""
        return next((container for container in self.containers if container.name == name), None)


def asks_for_memory(spec: PodSpec, names: Names) -> bool:
    """Whether any container names the memory resource, be it with quantity 0 (kube-scheduler's own test)."""
    return any(names.memory in container.limits for container in _all_containers(spec))


def demand_of(spec: PodSpec, names: Names) -> Demand | None:
    """Return what a pod needs per card, or `None` if no container names the memory resource.

    Raises `DemandError` for quantities that are not whole, memory that does not divide evenly over its
    slots, slots without memory, and more slots than any node has cards.
    """
    if not asks_for_memory(spec, names):
        return None
    asked: list[ContainerDemand] = []
    slots = 0
    running = _PerCard()  # sidecars started so far; in the end all of them
    peak = _PerCard()
    for container in spec.init_containers or ():
        needs = _container_demand(container, names)
        if needs is None:
            continue
        asked.append(needs)
        slots = _counted(slots, needs)
        if container.restart_policy == "Always":
            running = running.plus(needs)
            peak = peak.peak(running)
        else:
            peak = peak.peak(running.plus(needs))
    for container in spec.containers or ():
        needs = _container_demand(container, names)
        if needs is not None:
            asked.append(needs)
            slots = _counted(slots, needs)
            running = running.plus(needs)
    return Demand(cards=peak.peak(running).shares, containers=tuple(asked))


def _counted(slots: int, container: ContainerDemand) -> int:
    """Add up a pod's slots; a pod of thousands would cost everybody else the time to look at it."""
    total = slots + container.slots
    if total > MOST_SLOTS_OF_A_POD:
        raise DemandError(
            container.name,
            f"is one too many: the pod's containers ask for more than {MOST_SLOTS_OF_A_POD} slots",
        )
    return total


@dataclass(frozen=True, slots=True)
class _PerCard:
    """Shares by card position; positions that are not listed hold nothing."""

    shares: tuple[Share, ...] = ()

    def plus(self, container: ContainerDemand) -> _PerCard:
        seen = [self._at(position) + container.on_card(position) for position in range(container.slots)]
        return _PerCard((*seen, *self.shares[container.slots :]))

    def peak(self, other: _PerCard) -> _PerCard:
        length = max(len(self.shares), len(other.shares))
        return _PerCard(tuple(self._at(position).peak(other._at(position)) for position in range(length)))

    def _at(self, position: int) -> Share:
        return self.shares[position] if position < len(self.shares) else NOTHING


def _container_demand(container: Container, names: Names) -> ContainerDemand | None:
    memory = _units(container, names.memory, default=0)
    slots = _units(container, names.slot, default=1 if memory else 0)
    if not memory and not slots:
        return None
    if not memory:
        raise DemandError(container.name, f"asks for {names.slot} without {names.memory}")
    if not slots:
        raise DemandError(container.name, f"asks for {names.memory} with {names.slot}: 0")
    if slots > MOST_CARDS:
        raise DemandError(container.name, f"asks for {names.slot}: {slots}, more cards than any node has")
    if slots > memory or memory % slots:
        raise DemandError(
            container.name, f"{names.memory}: {memory} does not divide evenly over {names.slot}: {slots}"
        )
    return ContainerDemand(name=container.name, memory=memory, slots=slots)


def _units(container: Container, resource: str, *, default: int) -> int:
    value = container.limits.get(resource)
    if value is None:
        return default
    try:
        return parse_units(value if isinstance(value, str) else str(value))
    except QuantityError as error:
        raise DemandError(container.name, f"{resource}: {error}") from error


def _all_containers(spec: PodSpec) -> Iterator[Container]:
    groups: Iterable[tuple[Container, ...] | None] = (spec.init_containers, spec.containers)
    for group in groups:
        yield from group or ()
