"""The parts of Kubernetes objects that the doctor reads beyond `gpushare.objects`, as narrow structs."""

from __future__ import annotations

from collections.abc import Mapping

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

    spec: Spec = Spec()


class WorkloadSpec(Struct, frozen=True, kw_only=True, rename="camel"):
    replicas: int | None = None
    template: Template = Template()


class WorkloadStatus(Struct, frozen=True, kw_only=True, rename="camel"):
    ready_replicas: int | None = None
    """Of a Deployment."""
    desired_number_scheduled: int | None = None
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


class RuleSpec(Struct, frozen=True, kw_only=True, rename="camel"):
    policy_name: str = ""
    """Of a binding."""


class RuleObject(Struct, frozen=True, kw_only=True, rename="camel"):
    """An admission policy, a binding of one, or a webhook configuration."""

    metadata: ObjectMeta = ObjectMeta()
    spec: RuleSpec = RuleSpec()
