"""Which pod is kubelet's call for? Pure: values in, a match or an error out.

The call names no pod. kubelet admits pods one at a time and lists the one under admission in PodResources
(1.36), so the pod meant is one that kubelet lists and that still lacks devices. The list has names and no
UIDs, and the watch may lag behind kubelet: a name may by now be another pod's. So whatever may be meant is
read from the API server before anything is decided.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from deviceplugin.answers import Answer, answer_for, slots_agree
from deviceplugin.errors import AllocateError, NoPodError
from deviceplugin.modes import Mode
from deviceplugin.pods import NodePod
from gpushare.cards import Card
from gpushare.errors import QuantityError
from gpushare.names import Names
from gpushare.quantities import parse_units

_NAMED = 8
"""Pods that an error names; its text ends up in a pod's status."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """What kubelet asks for: `size` devices, and in Allocate the IDs it chose."""

    size: int
    ids: frozenset[str] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """A pod as kubelet's PodResources names it: no UID, and no plain init containers (1.36)."""

    namespace: str
    name: str
    held: Mapping[str, frozenset[str]]
    """Container → the devices of ours that it holds, without containers that hold none."""

    @property
    def key(self) -> str:
        """`namespace/name`, as people name pods."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """A container for which kubelet calls: its limits name what kubelet counts, whatever else they say."""

    container: str
    size: int
    listed: bool
    """Whether PodResources shows it: plain init containers never."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """What this process has answered so far."""

    answered: Mapping[str, Mapping[str, frozenset[str]]]
    """Pod UID → container → the IDs it was answered for."""
    refused: Collection[str] = ()
    """UIDs of pods that were refused: kubelet has failed them, though that may not show yet."""

    def ids(self, pod: NodePod, ask: Ask) -> frozenset[str] | None:
        """The IDs that a container was answered for, `None` if it was not."""
        return self.answered.get(pod.metadata.uid, {}).get(ask.container)


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """The pod and the container that a call is for, and what it gets."""

    pod: NodePod
    container: str
    answer: Answer


@dataclass(frozen=True, kw_only=True, slots=True)
class _Candidate:
    pod: NodePod
    ask: Ask
    is_repeat: bool
    """Whether it was answered before; kubelet asks again when it lost its record in a crash."""


def asks_of(pod: NodePod, *, resource: str) -> tuple[Ask, ...]:
    """The containers for which kubelet calls, in its order: init containers first, each in spec order."""
    return pod.once(_asks, resource, key=resource)


def _asks(pod: NodePod, resource: str) -> tuple[Ask, ...]:
    asks = []
    for containers, are_init in ((pod.spec.init_containers, True), (pod.spec.containers, False)):
        for container in containers or ():
            try:
                size = parse_units(str(container.limits.get(resource, 0)))
            except QuantityError:
                continue  # the API server lets no such quantity pass: kubelet cannot ask for it
            if size:
                listed = not are_init or container.restart_policy == "Always"
                asks.append(Ask(container=container.name, size=size, listed=listed))
    return tuple(asks)


def possible(listed: Iterable[Listed], *, pods: Mapping[str, NodePod], mode: Mode) -> tuple[Listed, ...]:
    """The pods of kubelet's list that a call may be for, by what the watch has shown of them (by key).

    Those are the pods it has not shown, and those with a container that lacks its devices. Normally it is
    the one pod that kubelet is admitting.
    """
    return tuple(
        pod for pod in listed if pod.key not in pods or _lacking(pods[pod.key], held=pod.held, mode=mode)
    )


def match(
    call: Call,
    *,
    listed: Sequence[Listed],
    pods: Mapping[str, NodePod],
    memory: Memory,
    cards: Sequence[Card],
    mode: Mode,
) -> Match:
    """Find the pod that a call is for among those that kubelet lists.

    `pods` are the API server's pods of this node by key, the `possible` ones read just now. Raises
    `NoPodError` where no pod fits, or several with different answers, and what `answer_for` raises for a
    match that cannot be answered.
    """
    candidates = [
        candidate
        for pod in listed
        if pod.key in pods
        and (candidate := _candidate(call, pod=pods[pod.key], held=pod.held, memory=memory, mode=mode))
    ]
    fresh = [candidate for candidate in candidates if not candidate.is_repeat]
    hopeful = [candidate for candidate in fresh if candidate.pod.metadata.uid not in memory.refused]
    # A repeat is no answer while kubelet lists a pod that is gone from the API: it may be the one meant.
    strangers = any(pod.key not in pods for pod in listed)
    repeats = [] if strangers else [candidate for candidate in candidates if candidate.is_repeat]
    group = hopeful or fresh or repeats
    if not group:
        raise NoPodError(
            f"no pod on this node waits for {call.size} {mode.resource}; kubelet lists "
            f"{_some([pod.key for pod in listed])}; create the pod again"
        )
    return _only_answer(call, group=group, cards=cards, mode=mode)


def match_alone(
    call: Call, *, pods: Iterable[NodePod], memory: Memory, cards: Sequence[Card], mode: Mode
) -> Match:
    """The classic way, where PodResources is out of reach: `pods` are a fresh list of this node's pods.

    Without kubelet's word one pod is an answer only if no other waits and its demand fits the call.
    Raises as `match`.
    """
    live = [pod for pod in pods if not pod.is_terminal and pod.metadata.uid not in memory.refused]
    waiting = [pod for pod in live if _waits(pod, memory=memory, mode=mode)]
    candidates = [
        candidate
        for pod in waiting or live
        if (waiting or call.ids in memory.answered.get(pod.metadata.uid, {}).values())
        and (candidate := _candidate(call, pod=pod, held={}, memory=memory, mode=mode))
    ]
    group = [candidate for candidate in candidates if candidate.is_repeat is not bool(waiting)]
    if not group or len(waiting) > 1:
        raise NoPodError(
            f"kubelet's PodResources is out of reach and {len(waiting)} pods wait on this node "
            f"({_some([pod.key for pod in waiting])}), so that nobody can tell which of them asks for "
            f"{call.size} {mode.resource}; make pod-resources/kubelet.sock accessible and "
            "create the pod again"
        )
    return _only_answer(call, group=group, cards=cards, mode=mode)


def _candidate(
    call: Call,
    *,
    pod: NodePod,
    held: Mapping[str, frozenset[str]],
    memory: Memory,
    mode: Mode,
) -> _Candidate | None:
    """The container of one pod that the call would be for, if it is for this pod at all."""
    if pod.is_terminal:
        return None
    again = [
        ask
        for ask in asks_of(pod, resource=mode.resource)
        if call.ids is not None and memory.ids(pod, ask) == call.ids
    ]
    lacking = [ask for ask in _lacking(pod, held=held, mode=mode) if ask.size == call.size]
    new = [ask for ask in lacking if memory.ids(pod, ask) is None]
    if _is_settled(pod, memory=memory, names=mode.names):
        new = []
    if again and (not new or again[-1].listed):
        # kubelet passes on a plain init container's devices within the pod, and nobody else's.
        return _Candidate(pod=pod, ask=again[-1], is_repeat=True)
    if new:
        return _Candidate(pod=pod, ask=new[0], is_repeat=False)
    return _Candidate(pod=pod, ask=lacking[0], is_repeat=True) if lacking else None


def _lacking(pod: NodePod, *, held: Mapping[str, frozenset[str]], mode: Mode) -> tuple[Ask, ...]:
    """The containers for which kubelet may yet call, going by its own list.

    It calls in order, so that everything before a container with devices is done with; and the plain init
    containers, which the list never shows, are done with once the pod was admitted.
    """
    asks = asks_of(pod, resource=mode.resource)
    last_held = max((place for place, ask in enumerate(asks) if held.get(ask.container)), default=-1)
    return tuple(ask for ask in asks[last_held + 1 :] if ask.listed or not pod.was_admitted)


def _waits(pod: NodePod, *, memory: Memory, mode: Mode) -> bool:
    """Whether kubelet has yet to call for a container of the pod, as far as anybody can tell without it."""
    asks = asks_of(pod, resource=mode.resource)
    unanswered = any(memory.ids(pod, ask) is None for ask in asks)
    return unanswered and not _is_settled(pod, memory=memory, names=mode.names)


def _is_settled(pod: NodePod, *, memory: Memory, names: Names) -> bool:
    """Whether an earlier process answered the pod: only what it wrote, and kubelet's status, tell that."""
    if pod.metadata.uid in memory.answered:
        return False
    return pod.annotations.get(names.assigned) == "true" or pod.was_admitted


def _only_answer(call: Call, *, group: Sequence[_Candidate], cards: Sequence[Card], mode: Mode) -> Match:
    outcomes: Sequence[Match | AllocateError] = [
        _outcome(candidate, cards=cards, names=mode.names) for candidate in group
    ]
    if call.ids is not None and len(outcomes) > 1:
        # Slots were chosen from those that GetPreferredAllocation returned for this very container. Units
        # name no card, and agree with nobody.
        agreeing = [
            outcome
            for outcome in outcomes
            if isinstance(outcome, Match) and slots_agree(outcome.answer, ids=call.ids)
        ]
        outcomes = agreeing or outcomes
    if len(outcomes) == 1 and isinstance(outcomes[0], AllocateError):
        raise outcomes[0]
    matches = [outcome for outcome in outcomes if isinstance(outcome, Match)]
    if len(matches) == len(outcomes) and all(
        match.answer.envs == matches[0].answer.envs for match in matches
    ):
        return matches[0]
    pods = sorted({candidate.pod.key for candidate in group})
    raise NoPodError(
        f"{len(pods)} pods wait for {call.size} {mode.resource} and would get different cards "
        f"({_some(pods)}), so that nobody can tell which of them kubelet asks for; create the pod again"
    )


def _outcome(candidate: _Candidate, *, cards: Sequence[Card], names: Names) -> Match | AllocateError:
    container = candidate.ask.container
    try:
        answer = answer_for(candidate.pod, container=container, cards=cards, names=names)
    except AllocateError as error:
        return error
    return Match(pod=candidate.pod, container=container, answer=answer)


def _some(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
    return (", ".join(keys[:_NAMED]) or "no pods") + more
