"""The parts of Kubernetes objects that the doctor reads beyond `gpushare.objects`, as narrow structs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

import msgspec

from gpushare.objects import Container, Node, NodeStatus, ObjectMeta, Pod, PodSpec, PodStatus


class Struct(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Go's spelling of field names."""


class SeenContainer(Container, frozen=True, kw_only=True, rename="camel"):
    image: str = ""
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """The command line."""
        return (self.command or ()) + (self.args or ())


class SeenSpec(PodSpec, frozen=True, kw_only=True, rename="camel"):
    scheduler_name: str = ""
    runtime_class_name: str | None = None
    init_containers: tuple[SeenContainer, ...] | None = None
    containers: tuple[SeenContainer, ...] | None = None


class Condition(Struct, frozen=True, kw_only=True, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class Waiting(Struct, frozen=True, kw_only=True, rename="camel"):
    reason: str = ""
    message: str = ""


class ContainerState(Struct, frozen=True, kw_only=True, rename="camel"):
    waiting: Waiting | None = None


class ContainerStatus(Struct, frozen=True, kw_only=True, rename="camel"):
    name: str = ""
    ready: bool = False
    state: ContainerState | None = None


class SeenStatus(PodStatus, frozen=True, kw_only=True, rename="camel"):
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None


class SeenPod(Pod, frozen=True, kw_only=True):
    """A pod with what says how it fares."""

    spec: SeenSpec = SeenSpec()
    status: SeenStatus | None = None

    @property
    def containers(self) -> tuple[SeenContainer, ...]:
        return self.spec.containers or ()

    def condition(self, kind: str) -> Condition | None:
        """The condition of this type, such as `PodScheduled`."""
        conditions = (self.status.conditions if self.status else None) or ()
        return next((each for each in conditions if each.type == kind), None)

    @property
    def is_ready(self) -> bool:
        ready = self.condition("Ready")
        return ready is not None and ready.status == "True"

    @property
    def trouble(self) -> str:
        """Why its containers do not run, as kubelet says; else its phase."""
        statuses = (self.status.container_statuses if self.status else None) or ()
        waiting = [each.state.waiting for each in statuses if each.state and each.state.waiting]
        if waiting:
            return f"{waiting[0].reason} {waiting[0].message}".strip()[:200]
        return (self.status.phase if self.status else "") or "Pending"


class SeenNodeStatus(NodeStatus, frozen=True, kw_only=True, rename="camel"):
    allocatable: dict[str, str | int | float] | None = None
    conditions: tuple[Condition, ...] | None = None


class SeenNode(Node, frozen=True, kw_only=True):
    """A node with what kubelet makes of its capacities."""

    status: SeenNodeStatus | None = None

    @property
    def allocatable(self) -> Mapping[str, str | int | float]:
        return (self.status.allocatable if self.status else None) or {}

    @property
    def labels(self) -> Mapping[str, str]:
        return self.metadata.labels or {}

    @property
    def is_ready(self) -> bool:
        conditions = (self.status.conditions if self.status else None) or ()
        return any(each.type == "Ready" and each.status == "True" for each in conditions)


class Template(Struct, frozen=True, kw_only=True, rename="camel"):
    class Spec(Struct, frozen=True, kw_only=True, rename="camel"):
        containers: tuple[SeenContainer, ...] | None = None
        node_selector: dict[str, str] | None = None
        runtime_class_name: str | None = None

    spec: Spec = Spec()


class WorkloadSpec(Struct, frozen=True, kw_only=True, rename="camel"):
    replicas: int | None = None
    template: Template = Template()


class WorkloadStatus(Struct, frozen=True, kw_only=True, rename="camel"):
    ready_replicas: int | None = None
    """Of a Deployment."""
    desired_number_scheduled: int | None = None
    current_number_scheduled: int | None = None
    """Nodes for which there is a pod, be it one that does not run."""
    number_ready: int | None = None
    """Of a DaemonSet."""


class Workload(Struct, frozen=True, kw_only=True, rename="camel"):
    """A Deployment or a DaemonSet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def containers(self) -> tuple[SeenContainer, ...]:
        return self.spec.template.spec.containers or ()

    @property
    def runtime_class(self) -> str:
        """The name of its pods' RuntimeClass; empty for the nodes' default."""
        return self.spec.template.spec.runtime_class_name or ""

    @property
    def node_selector(self) -> Mapping[str, str]:
        return self.spec.template.spec.node_selector or {}


class LeaseSpec(Struct, frozen=True, kw_only=True, rename="camel"):
    holder_identity: str | None = None
    renew_time: str | None = None


class Lease(Struct, frozen=True, kw_only=True, rename="camel"):
    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


class ConfigMap(Struct, frozen=True, kw_only=True, rename="camel"):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None


class RuntimeClass(Struct, frozen=True, kw_only=True, rename="camel"):
    metadata: ObjectMeta = ObjectMeta()


class Expression(Struct, frozen=True, kw_only=True, rename="camel"):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class Selector(Struct, frozen=True, kw_only=True, rename="camel"):
    match_expressions: tuple[Expression, ...] | None = None


class Matching(Struct, frozen=True, kw_only=True, rename="camel"):
    """Which objects are reviewed: a policy's matchConstraints, or a webhook."""

    namespace_selector: Selector | None = None


class RuleSpec(Struct, frozen=True, kw_only=True, rename="camel"):
    policy_name: str = ""
    """Of a binding."""
    match_constraints: Matching | None = None


class RuleObject(Struct, frozen=True, kw_only=True, rename="camel"):
    """An admission policy, a binding of one, or a webhook configuration."""

    metadata: ObjectMeta = ObjectMeta()
    spec: RuleSpec = RuleSpec()
    webhooks: tuple[Matching, ...] | None = None

    @property
    def exempt_namespaces(self) -> frozenset[str]:
        """Namespaces that it leaves alone by name."""
        constraints = self.spec.match_constraints
        selectors = (each.namespace_selector for each in (constraints, *(self.webhooks or ())) if each)
        return frozenset(
            name
            for selector in selectors
            if selector
            for each in selector.match_expressions or ()
            if (each.key, each.operator) == ("kubernetes.io/metadata.name", "NotIn")
            for name in each.values or ()
        )


class Involved(Struct, frozen=True, kw_only=True, rename="camel"):
    kind: str = ""
    namespace: str = ""
    name: str = ""


_NO_CLASS = re.compile(r'pod rejected: RuntimeClass "([^"]+)" not found')


def missing_runtime_class(refusal: str) -> str:
    """The RuntimeClass for want of which the API server refused a pod (1.36); empty: refused otherwise."""
    found = _NO_CLASS.search(refusal)
    return found[1] if found else ""


class FailedCreate(Struct, frozen=True, kw_only=True, rename="camel"):
    """An event of this reason: a controller could not create a pod."""

    metadata: ObjectMeta = ObjectMeta()
    involved_object: Involved = Involved()
    message: str = ""
    last_timestamp: str | None = None
    event_time: str | None = None
    """Instead of the former, of events of the newer kind."""

    @property
    def what(self) -> str:
        """`ReplicaSet namespace/name`."""
        return f"{self.involved_object.kind} {self.involved_object.namespace}/{self.involved_object.name}"

    @property
    def sentence(self) -> str:
        """What whoever refused the pod said, without what the API server and the controller put before."""
        return re.split(r"denied (?:the )?request: ", " ".join(self.message.split()), maxsplit=1)[-1]

    @property
    def at(self) -> float:
        """Seconds since the epoch; 0 where that cannot be read."""
        text = self.last_timestamp or self.event_time or self.metadata.creation_timestamp or ""
        try:
            return datetime.fromisoformat(text).timestamp()
        except ValueError:
            return 0.0
