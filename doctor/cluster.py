"""A cluster as the doctor saw it at one moment: what the checks read, and all they read.

A part that could not be seen is `Unseen`, with the reason and the right that is missing: checks that need it
say so instead of failing.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from doctor.objects import (
    ConfigMap,
    FailedCreate,
    Lease,
    RuleObject,
    RuntimeClass,
    SeenNode,
    SeenPod,
    Workload,
)
from gpushare.bookings import Claim, claim_of
from gpushare.cards import NodeCards, cards_of
from gpushare.errors import CardsError
from gpushare.ledger import Ledger
from gpushare.names import Names
from gpushare.release import EXTERNAL, PAIR, PLUGIN
from gpushare.views import NodeView

DEFAULT_SCHEDULER = "default-scheduler"
"""Who serves pods that name no scheduler (1.36)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unseen:
    """Why a part of the cluster is not known, as a sentence, and what would show it."""

    why: str
    remedy: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What somebody said over HTTP."""

    status: int
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Replica:
    """One extender, asked by itself."""

    name: str
    """Its pod, or the URL it was asked at."""
    ready: Answer | Unseen
    version: str | Unseen
    calls: int | Unseen
    """filter requests of kube-scheduler since it started."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """What the extender says it counts."""

    resource: str
    unit: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ExtenderSeen:
    """The extender, seen from outside."""

    reached: Answer | Unseen
    """`/readyz` through the Service, as kubectl inspect reaches it."""
    replicas: tuple[Replica, ...]
    told: Told | Unseen


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """An object of the API server's admission that is ours."""

    kind: str
    """The resource's plural: `validatingadmissionpolicies`."""
    found: RuleObject

    @property
    def name(self) -> str:
        return self.found.metadata.name


@dataclass(frozen=True, kw_only=True, slots=True)
class Admitted:
    """A pod that would have been created (nothing was: a dry run)."""

    pod: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """A pod that would have been refused."""

    status: int
    message: str


Trial = Admitted | Refused | Unseen


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Everything the checks may look at."""

    names: Names
    namespace: str
    """Of the release."""
    scheduler_name: str
    probe_namespace: str
    """Where the trial pods would have been created."""
    now: float
    """Seconds since the epoch, by the clock of whoever runs the doctor."""
    version: str
    """The API server's `gitVersion`, `v1.36.2`."""
    nodes: tuple[SeenNode, ...] | Unseen
    pods: tuple[SeenPod, ...] | Unseen
    """Those that ask for memory and have not ended well."""
    parts: tuple[SeenPod, ...] | Unseen
    """gpushare's own, and kube-schedulers in kube-system."""
    deployments: tuple[Workload, ...] | Unseen
    daemonsets: tuple[Workload, ...] | Unseen
    runtime_class: RuntimeClass | Unseen | None
    """The one that the device plugin's DaemonSet names; `None` where there is none, or none is named."""
    refused: tuple[FailedCreate, ...] | Unseen
    """Events about pods that ask for memory, or are the device plugin's, and could not be created."""
    config: ConfigMap | Unseen | None
    """kube-scheduler's, of the pair; `None` where there is none."""
    lease: Lease | Unseen | None
    """By which one kube-scheduler, or one extender in external mode, is active."""
    extender: ExtenderSeen
    rules: tuple[Rule, ...] | Unseen
    asks: Trial
    """What became of a pod that asks for one unit."""
    asks_bytes: Trial
    """What became of a pod that asks for `10Gi` units."""

    @property
    def deployment(self) -> Workload | Unseen | None:
        """Of the component that decides; `None` where neither mode is installed in the namespace."""
        found = self.installations
        if isinstance(found, Unseen):
            return found
        return next((each for each in found if self._is_here(each)), None)

    @property
    def installations(self) -> tuple[Workload, ...] | Unseen:
        """Deployments of the deciding component, in whatever namespace."""
        if isinstance(self.deployments, Unseen):
            return self.deployments
        return tuple(each for each in self.deployments if decides(each))

    @property
    def is_external(self) -> bool:
        """Whether the control plane's own kube-scheduler is to ask the extender."""
        found = self.deployment
        return isinstance(found, Workload) and found.metadata.name == EXTERNAL

    @property
    def schedulers(self) -> frozenset[str]:
        """Every schedulerName whose pods the extender is asked about.

        kube-scheduler's list of extenders is for all its profiles (1.36), and the control plane's own also
        serves pods that name none.
        """
        return frozenset({self.scheduler_name, *((DEFAULT_SCHEDULER,) if self.is_external else ())})

    @property
    def daemonset(self) -> Workload | Unseen | None:
        """The device plugin's."""
        if isinstance(self.daemonsets, Unseen):
            return self.daemonsets
        ours = (each for each in self.daemonsets if self._is_here(each) and each.metadata.name == PLUGIN)
        return next(ours, None)

    def component(self, *names: str) -> tuple[SeenPod, ...] | Unseen:
        """The live pods of components of ours, by the chart's label."""
        if isinstance(self.parts, Unseen):
            return self.parts
        return tuple(
            pod
            for pod in self.parts
            if pod.metadata.namespace == self.namespace
            and (pod.metadata.labels or {}).get("app.kubernetes.io/component") in names
            and not pod.is_terminal
        )

    @functools.cached_property
    def cards(self) -> Mapping[str, NodeCards | CardsError | None]:
        """What each node publishes; `None` for nodes that share nothing."""
        if isinstance(self.nodes, Unseen):
            return {}
        return {node.name: _cards(node, names=self.names) for node in self.nodes}

    @functools.cached_property
    def claims(self) -> tuple[tuple[SeenPod, Claim], ...]:
        """What every pod on a node holds, or should."""
        pods = () if isinstance(self.pods, Unseen) else self.pods
        return tuple((pod, claim) for pod in pods if (claim := claim_of(pod, self.names)) is not None)

    @functools.cached_property
    def unit(self) -> str:
        """What most nodes count."""
        units = Counter(each.unit for each in self.cards.values() if isinstance(each, NodeCards))
        return units.most_common(1)[0][0] if units else "MiB"

    @functools.cached_property
    def views(self) -> tuple[NodeView, ...] | Unseen:
        """Who holds what, by the extender's own arithmetic, of every node that is there."""
        for part in (self.nodes, self.pods):
            if isinstance(part, Unseen):
                return part
        assert not isinstance(self.nodes, Unseen)
        assert not isinstance(self.pods, Unseen)
        ledger = Ledger(names=self.names, unit=self.unit)
        for node in self.nodes:
            ledger.set_node(node)
        for pod in self.pods:
            ledger.set_pod(pod)
        return tuple(ledger.view(name) for name in ledger.known_nodes())

    def _is_here(self, workload: Workload) -> bool:
        return workload.metadata.namespace == self.namespace


def decides(workload: Workload) -> bool:
    """Whether it is the Deployment of the deciding component, of either mode."""
    labels = workload.metadata.labels or {}
    ours = labels.get("app.kubernetes.io/name") == "gpushare"
    return ours and workload.metadata.name in (PAIR, EXTERNAL)


def _cards(node: SeenNode, *, names: Names) -> NodeCards | CardsError | None:
    try:
        return cards_of(node, names=names, unit="")
    except CardsError as error:
        return error
