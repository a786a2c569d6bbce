"""What is wrong with a new pod, as far as its text alone can show it.

Pure rules over a narrow struct: pod in, verdict out. Each stands by itself and decides from the pod, the
names and the unit only (and, for two of them, the size of the cluster's largest card), so that the same
table of cases can be held against a policy in CEL.

A refusal is for what can never work; a warning for what probably is not meant. A pod that names neither the
memory nor the slot resource is never refused. What comes into a container's environment by `envFrom` is in
another object and cannot be seen here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches

import msgspec

from gpushare.cards import UNITS
from gpushare.demand import ContainerDemand, Demand, demand_of
from gpushare.errors import DemandError, PolicyError, quoted
from gpushare.names import VISIBLE_DEVICES, Names
from gpushare.objects import Container, Pod, PodSpec, Resources
from gpushare.placement import Policy, policy_of

LARGEST_CARD = 16 * 2**40
"""Bytes that no card has: some fifty times the largest of 2026. More than this is no number of units."""

SMALLEST_USE = 64 * 2**20
"""Bytes below which no GPU program starts: a CUDA context alone takes more."""


class Variable(msgspec.Struct, frozen=True):
    """One environment variable; where its value comes from does not matter."""

    name: str = ""


class ReviewedResources(Resources, frozen=True, kw_only=True):
    requests: dict[str, str | int | float] | None = None


class ReviewedContainer(Container, frozen=True, kw_only=True, rename="camel"):
    """A container with its environment."""

    resources: ReviewedResources | None = None
    env: tuple[Variable, ...] | None = None

    @property
    def resource_names(self) -> set[str]:
        requests = (self.resources.requests if self.resources else None) or {}
        return {*self.limits, *requests}


class ReviewedSpec(PodSpec, frozen=True, kw_only=True, rename="camel"):
    init_containers: tuple[ReviewedContainer, ...] | None = None
    containers: tuple[ReviewedContainer, ...] | None = None


class ReviewedPod(Pod, frozen=True, kw_only=True):
    """A pod with more of its containers than the watches keep."""

    spec: ReviewedSpec = ReviewedSpec()

    @property
    def containers(self) -> tuple[ReviewedContainer, ...]:
        """All of them, init containers first."""
        return (self.spec.init_containers or ()) + (self.spec.containers or ())


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What the user is told. A pod with a refusal is not created."""

    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class PodRules:
    """The rules of one cluster."""

    names: Names
    unit: str
    largest_card: int = 0
    """Units of the cluster's largest card; 0 where none is known (yet)."""

    def judge(self, pod: ReviewedPod) -> Verdict:
        """Hold every rule against a pod."""
        asking = [each for each in pod.containers if self._asks(each)]
        refusals = [fault for each in asking for fault in self._container_faults(each)]
        if asking:
            refusals += self._policy_faults(pod)
        warnings = list(self._unknown_keys(pod, asks=bool(asking)))
        demand = None if refusals else demand_of(pod.spec, self.names)
        if demand and demand.cards:
            refusals += self._node_faults(pod)
            warnings += self._doubts(demand)
        return Verdict(refusals=tuple(refusals), warnings=tuple(warnings))

    def _asks(self, container: ReviewedContainer) -> bool:
        return self.names.memory in container.limits or self.names.slot in container.limits

    def _container_faults(self, container: ReviewedContainer) -> Iterator[str]:
        # The memory resource is spelled out, for a container that asks for slots alone is to be refused too.
        limits = {self.names.memory: "0"} | dict(container.limits)
        alone = PodSpec(containers=(Container(name=container.name, resources=Resources(limits=limits)),))
        try:
            demand = demand_of(alone, self.names)  # the ledger's own arithmetic and words
        except DemandError as error:
            yield str(error)
            return
        if not demand or not demand.cards:
            return
        (needs,) = demand.containers
        if self._is_bytes(needs.memory, slots=needs.slots):
            written = quoted(container.limits[self.names.memory])
            hint = self._meant(needs)
            yield f"{_of(needs)}: {self.names.memory}: {written} counts {self.unit}{hint}"
        if any(variable.name == VISIBLE_DEVICES for variable in container.env or ()):
            yield (
                f"{_of(needs)} sets {VISIBLE_DEVICES} itself, which would win over the card that it is "
                f"given: remove it"
            )

    def _is_bytes(self, memory: int, *, slots: int) -> bool:
        """Whether this can only be a number of bytes: no card has as many units."""
        per_card = memory // slots
        beyond = self.largest_card and per_card > self.largest_card and memory % self._bytes == 0
        return bool(beyond) or per_card * self._bytes > LARGEST_CARD

    def _meant(self, needs: ContainerDemand) -> str:
        meant = -(-needs.memory // self._bytes)  # 8G is no whole number of MiB: rather a little more
        if self._is_bytes(meant, slots=needs.slots):
            return ", more than any card has"
        return f": did you mean {meant}?"

    def _policy_faults(self, pod: ReviewedPod) -> Iterator[str]:
        try:
            policy_of(pod.annotations, names=self.names, default=Policy.BINPACK)
        except PolicyError as error:
            yield str(error)

    def _node_faults(self, pod: ReviewedPod) -> Iterator[str]:
        if pod.node_name:
            yield (
                f"the pod names its node ({quoted(pod.node_name)}) and so passes by the scheduler, which "
                f"alone gives out cards: use a node selector"
            )

    def _doubts(self, demand: Demand) -> Iterator[str]:
        """What a pod asks for that may be meant, and hardly is."""
        most = demand.cards[0].memory
        if self.largest_card and most > self.largest_card:
            smaller = -(-most // 1024)
            hint = f": did you mean {smaller}?" if self.unit == "GiB" and smaller > 1 else ""
            yield (
                f"the pod asks for {most} {self.unit} of one card and the largest card of the cluster has "
                f"{self.largest_card}{hint}"
            )
        for needs in demand.containers:
            if needs.per_card * self._bytes < SMALLEST_USE:
                yield (
                    f"{_of(needs)} asks for {needs.per_card} {self.unit} of a card, too little for any GPU "
                    f"program: did you mean {needs.memory * 1024}?"
                )

    def _unknown_keys(self, pod: ReviewedPod, *, asks: bool) -> Iterator[str]:
        resources = {name for container in pod.containers for name in container.resource_names}
        places = (
            ("annotation", pod.annotations, {self.names.policy, self.names.allocation}),
            ("label", pod.metadata.labels or {}, set[str]()),
            ("resource", resources, {self.names.memory, self.names.slot}),
        )
        for place, keys, known in places:
            for key in sorted(keys):
                if key.startswith(f"{self.names.domain}/") and key not in known:
                    meant = self._nearest(key)
                    # A domain may be used for more than cards: of pods that ask for none, only a near miss.
                    if meant or asks:
                        hint = f": did you mean the {meant}?" if meant else ""
                        yield f"gpushare knows no {place} {quoted(key)}{hint}"

    def _nearest(self, key: str) -> str | None:
        candidates = {
            self.names.memory: "resource",
            self.names.slot: "resource",
            self.names.policy: "annotation",
        }
        parts = {name.partition("/")[2].lower(): name for name in candidates}
        found = get_close_matches(key.partition("/")[2].lower()[:64], parts, n=1, cutoff=0.6)
        return f"{candidates[parts[found[0]]]} {parts[found[0]]}" if found else None

    @property
    def _bytes(self) -> int:
        return UNITS[self.unit]


def _of(needs: ContainerDemand) -> str:
    return f"container {quoted(needs.name)}"
