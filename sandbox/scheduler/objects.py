"""Pods and nodes as the API sends them.

Unlike the narrow structs of the product these lose nothing: kube-scheduler sends the whole objects to its
extenders. What the watch adds around a typed object (`kind`, `apiVersion`) is absent, as in Go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from gpushare.objects import TERMINAL_PHASES, ObjectMeta
from kubeapi.reflector import Versioned


class _Metadata(ObjectMeta, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Every field of Kubernetes' ObjectMeta (1.36) but `managedFields`."""

    generate_name: str = ""
    generation: int = 0
    deletion_grace_period_seconds: int | None = None
    owner_references: list[dict[str, Any]] | None = None
    finalizers: list[str] | None = None


class _NodeMetadata(_Metadata, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    # kube-scheduler's watch drops these from pods and leaves them in nodes (1.36).
    managed_fields: list[dict[str, Any]] | None = None


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod; `spec` and `status` stay JSON."""

    metadata: _Metadata
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def key(self) -> str:
        """`namespace/name`, as people name pods."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def node_name(self) -> str:
        """The node it is bound to, or an empty string."""
        return self.spec.get("nodeName") or ""

    @property
    def priority(self) -> int:
        return self.spec.get("priority") or 0

    @property
    def is_terminal(self) -> bool:
        """Whether its containers have ended for good: it then takes no room."""
        return self.status.get("phase") in TERMINAL_PHASES

    @property
    def is_bound(self) -> bool:
        """Whether it takes room on a node."""
        return bool(self.node_name) and not self.is_terminal

    def containers(self) -> Iterator[Mapping[str, Any]]:
        """Init containers and sidecars in their order, then the others."""
        for group in ("initContainers", "containers"):
            yield from self.spec.get(group) or ()

    def asks_for(self, resource: str) -> bool:
        """Whether a container's limits or requests name it, be it with 0 (kube-scheduler's rule, 1.36)."""
        return any(
            resource in (container.get("resources", {}).get(group) or {})
            for container in self.containers()
            for group in ("limits", "requests")
        )


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node; `spec` and `status` stay JSON."""

    metadata: _NodeMetadata
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def labels(self) -> Mapping[str, str]:
        return self.metadata.labels or {}

    @property
    def allocatable(self) -> Mapping[str, str]:
        return self.status.get("allocatable") or {}


T = TypeVar("T", bound=Versioned)


class Collection(Generic[T]):
    """The newest version of every object of one kind by UID: what a reflector feeds.

    `changed` hears of each change with the version before and after, `None` where there is none.
    """

    def __init__(self, changed: Callable[[T | None, T | None], None]) -> None:
        self.objects: dict[str, T] = {}
        self._changed = changed
        self._listed: set[str] | None = None

    def begin(self) -> None:
        """A whole list begins."""
        self._listed = set()

    def put(self, obj: T) -> None:
        """An object as it is now."""
        uid = obj.metadata.uid
        if self._listed is not None:
            self._listed.add(uid)
        before = self.objects.get(uid)
        self.objects[uid] = obj
        self._changed(before, obj)

    def end(self) -> None:
        """The list is whole: what is not on it is gone."""
        listed, self._listed = self._listed or set(), None
        for uid in self.objects.keys() - listed:
            self._changed(self.objects.pop(uid), None)

    def drop(self, obj: T) -> None:
        """An object is gone."""
        before = self.objects.pop(obj.metadata.uid, None)
        if before is not None:
            self._changed(before, None)
