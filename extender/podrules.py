"""What is wrong with a new pod, as far as its text alone can show it.

Pure rules over a narrow struct: pod in, verdict out. Each stands by itself and decides from the pod, the
names and the unit only. The chart says the same in CEL, for clusters where the API server holds the rules
itself (`charts/gpushare/templates/admission`), and `tests/admission_cases.py` is held against both. One rule
is only here: how large the cluster's largest card is no policy can know.

A refusal is for what can never work; a warning for what probably is not meant. A pod that names neither the
memory nor the slot resource is never refused. What comes into a container's environment by `envFrom` is in
another object and cannot be seen here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from gpushare.cards import UNITS
from gpushare.demand import MOST_SLOTS_OF_A_POD, ContainerDemand, demand_of
from gpushare.errors import DemandError, QuantityError, quoted
from gpushare.names import VISIBLE_DEVICES, Names
from gpushare.objects import Container, Pod, PodSpec, Resources
from gpushare.placement import Policy
from gpushare.quantities import parse_units

NO_CARD = 16 * 2**40
"""More bytes than any card has: some fifty times the largest of 2026. This can be no number of units."""

NO_ROUND_CARD = 2**40
"""More bytes than any card has, for a number that would be round if it counted bytes."""

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
    slots: bool = True
    """Whether nodes have slots. In units mode none has, and a pod that asks for some would wait for ever."""
    largest_card: int = 0
    """Units of the cluster's largest card; 0 where none is known (yet)."""

    def judge(self, pod: ReviewedPod) -> Verdict:
        """Hold every rule against a pod."""
        asking = [each for each in pod.containers if self._asks(each)]
        senseless: list[str] = []
        needs: list[tuple[ReviewedContainer, ContainerDemand]] = []
        for container in asking:
            try:
                needs += [(container, each) for each in self._demand(container)]
            except DemandError as error:  # the ledger's own arithmetic and words
                senseless.append(str(error))
        refusals = (
            *senseless,
            *self._bytes_for_units(needs),
            *self._no_slots(needs),
            *self._own_environment(needs),
            *self._crowd(needs),
            *(self._policy_faults(pod) if asking else ()),
            *(self._node_faults(pod) if any(map(self._gets_card, asking)) else ()),
        )
        warnings = (
            *self._unknown_keys(pod, asks=bool(asking)),
            *self._too_little(needs),
            *(self._claims(pod) if asking else ()),
            *(() if refusals else self._too_much(pod)),
        )
        return Verdict(refusals=refusals, warnings=warnings)

    def _asks(self, container: ReviewedContainer) -> bool:
        return self.names.memory in container.limits or self.names.slot in container.limits

    def _gets_card(self, container: ReviewedContainer) -> bool:
        try:
            return parse_units(str(container.limits.get(self.names.memory, 0))) > 0
        except QuantityError:
            return False

    def _demand(self, container: ReviewedContainer) -> tuple[ContainerDemand, ...]:
        # The memory resource is spelled out, for a container that asks for slots alone is to be refused too.
        limits = {self.names.memory: "0"} | dict(container.limits)
        alone = PodSpec(containers=(Container(name=container.name, resources=Resources(limits=limits)),))
        demand = demand_of(alone, self.names)
        return demand.containers if demand else ()

    # Refusals.

    def _bytes_for_units(self, needs: _Needs) -> Iterator[str]:
        for container, each in needs:
            if self._is_bytes(each.memory, slots=each.slots):
                written = quoted(container.limits[self.names.memory])
                yield f"{_of(each)}: {self.names.memory}: {written} counts {self.unit}{self._meant(each)}"

    def _is_bytes(self, memory: int, *, slots: int) -> bool:
        """Whether this can only be a number of bytes: no card has as many units."""
        per_card = memory // slots
        return per_card > NO_CARD // self._bytes or (
            per_card > NO_ROUND_CARD // self._bytes and memory % self._bytes == 0
        )

    def _meant(self, needs: ContainerDemand) -> str:
        meant = -(-needs.memory // self._bytes)  # 8G is no whole number of MiB: rather a little more
        if self._is_bytes(meant, slots=needs.slots):
            return ", more than any card has"
        return f": did you mean {meant}?"

    def _no_slots(self, needs: _Needs) -> Iterator[str]:
        for container, each in needs:
            if not self.slots and self.names.slot in container.limits:
                yield (
                    f"{_of(each)} asks for {self.names.slot}, which no node has in units mode: leave it out"
                )

    def _own_environment(self, needs: _Needs) -> Iterator[str]:
        for container, each in needs:
            if any(variable.name == VISIBLE_DEVICES for variable in container.env or ()):
                yield (
                    f"{_of(each)} sets {VISIBLE_DEVICES} itself, which would win over the card that it is "
                    f"given: remove it"
                )

    def _crowd(self, needs: _Needs) -> Iterator[str]:
        if sum(each.slots for _, each in needs) > MOST_SLOTS_OF_A_POD:
            yield f"the pod's containers ask for more than {MOST_SLOTS_OF_A_POD} slots"

    def _policy_faults(self, pod: ReviewedPod) -> Iterator[str]:
        wanted = pod.annotations.get(self.names.policy)
        if wanted is not None and wanted not in set(Policy):
            # A sentence that a text from outside could break into lines would never reach the user.
            shown = quoted(wanted) if _PLAIN.fullmatch(wanted) else "its text"
            yield f"annotation {self.names.policy}: {shown} is not {' or '.join(Policy)}"

    def _node_faults(self, pod: ReviewedPod) -> Iterator[str]:
        if pod.node_name:
            yield (
                f"the pod names its node ({quoted(pod.node_name)}) and so passes by the scheduler, which "
                f"alone gives out cards: use a node selector"
            )

    # Warnings.

    def _too_much(self, pod: ReviewedPod) -> Iterator[str]:
        demand = demand_of(pod.spec, self.names)
        if demand is None or not demand.cards or not self.largest_card:
            return
        most = demand.cards[0].memory
        if most > self.largest_card:
            smaller = -(-most // 1024)
            hint = f": did you mean {smaller}?" if self.unit == "GiB" and smaller > 1 else ""
            yield (
                f"the pod asks for {most} {self.unit} of one card and the largest card of the cluster has "
                f"{self.largest_card}{hint}"
            )

    def _too_little(self, needs: _Needs) -> Iterator[str]:
        for _, each in needs:
            if each.per_card * self._bytes < SMALLEST_USE:
                yield (
                    f"{_of(each)} asks for {each.per_card} {self.unit} of a card, too little for any GPU "
                    f"program: did you mean {each.memory * 1024}?"
                )

    def _claims(self, pod: ReviewedPod) -> Iterator[str]:
        """Of a pod made from another one's text, or by somebody who hopes for the best."""
        names = self.names
        written = (names.index, names.pod_memory, names.card_memory, names.assume_time, names.assigned)
        claims = [key for key in (*written, names.allocation) if key in pod.annotations]
        if claims:
            yield (
                "the scheduler gives out the cards and ignores what a new pod claims: "
                f"remove the annotations {', '.join(claims)}"
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
        part = _part(key)
        candidates = (
            ("resource", self.names.memory),
            ("resource", self.names.slot),
            ("annotation", self.names.policy),
        )
        place, name = max(candidates, key=lambda each: likeness(part, to=_part(each[1])))
        return f"{place} {name}" if likeness(part, to=_part(name)) >= _ALIKE else None

    @property
    def _bytes(self) -> int:
        return UNITS[self.unit]


def likeness(word: str, *, to: str) -> int:
    """How alike two words are, in percent: the pairs of letters of `to` that are in `word`, against both.

    Coarse, and of a kind that CEL can count too.
    """
    common = sum(to[place : place + 2] in word for place in range(len(to) - 1))
    return 200 * common // (len(to) + len(word))


_Needs = Sequence[tuple[ReviewedContainer, ContainerDemand]]
_ALIKE = 55
_PLAIN = re.compile(r"[-A-Za-z0-9 _.,/:]{0,80}", re.ASCII)


def _part(key: str) -> str:
    return key.partition("/")[2].lower()


def _of(needs: ContainerDemand) -> str:
    return f"container {quoted(needs.name)}"
