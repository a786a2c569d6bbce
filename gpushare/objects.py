"""The parts of Kubernetes objects that gpushare reads, as narrow immutable structs.

What the watches deliver is decoded straight into these: every other field is skipped by the decoder and
never becomes a Python object. Go sends `null` for absent lists and maps, so both spellings are accepted.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})

UNDECODABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""What msgspec raises for foreign text: half surrogates, and brackets nested deeper than Python's stack, are
not among its own errors, and anybody may put them into an annotation."""


class ObjectMeta(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    limits: dict[str, str | int | float] | None = None


class Container(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str = ""
    resources: Resources | None = None
    restart_policy: str | None = None

    @property
    def limits(self) -> Mapping[str, str | int | float]:
        return (self.resources.limits if self.resources else None) or {}


class SchedulingGate(msgspec.Struct, frozen=True, kw_only=True):
    name: str = ""


class PodSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    node_name: str | None = None
    init_containers: tuple[Container, ...] | None = None
    containers: tuple[Container, ...] | None = None
    priority: int | None = None
    scheduling_gates: tuple[SchedulingGate, ...] | None = None
    """While there are any, kube-scheduler does not look at the pod (Kueue holds pods back so)."""


class PodStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    phase: str | None = None
    nominated_node_name: str | None = None


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus | None = None

    @property
    def key(self) -> str:
        """`namespace/name`, as people name pods."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.metadata.annotations or {}

    @property
    def node_name(self) -> str:
        """The node the pod is bound to, or an empty string."""
        return self.spec.node_name or ""

    @property
    def nominated_node(self) -> str:
        """The node that kube-scheduler is clearing for the pod, or an empty string. It is written to the
        `status` subresource, which users have no right to."""
        return (self.status.nominated_node_name if self.status else None) or ""

    @property
    def is_ending(self) -> bool:
        """Whether somebody has deleted it; it may still run for as long as its grace period."""
        return self.metadata.deletion_timestamp is not None

    @property
    def is_terminal(self) -> bool:
        """Whether all containers have ended for good: only then, or when it is gone, is its memory free."""
        return self.status is not None and self.status.phase in TERMINAL_PHASES


class NodeAddress(msgspec.Struct, frozen=True):
    type: str = ""
    address: str = ""


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    capacity: dict[str, str | int | float] | None = None
    addresses: tuple[NodeAddress, ...] | None = None


class Node(msgspec.Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    status: NodeStatus | None = None

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.metadata.annotations or {}

    @property
    def capacity(self) -> Mapping[str, str | int | float]:
        return (self.status.capacity if self.status else None) or {}

    @property
    def internal_ip(self) -> str:
        """The address that other nodes reach it at, or an empty string."""
        addresses = (self.status.addresses if self.status else None) or ()
        return next((each.address for each in addresses if each.type == "InternalIP"), "")
