"""Pods as kubelet looks at them: who they are, their containers in start order, what each may use."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from gpushare.objects import TERMINAL_PHASES, ObjectMeta, PodStatus, Resources
from gpushare.quantities import parse_units

RUN_SECONDS = "sandbox.gpushare/run-seconds"
"""Pod annotation: the pod's containers end by themselves, successfully, after so many seconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Container:
    """One container of a pod."""

    name: str
    kind: Literal["init", "sidecar", "app"] = "app"
    image: str = ""
    limits: Mapping[str, str]
    env: Mapping[str, str]

    def units(self, resource: str) -> int:
        """How many devices of a resource it asks for; raises `QuantityError` if that is no whole number."""
        return parse_units(str(self.limits.get(resource, "0")))


@dataclass(frozen=True, kw_only=True, slots=True)
class Pod:
    """One pod, with its containers in the order in which kubelet admits them: init containers first."""

    uid: str
    namespace: str
    name: str
    created: str = ""
    containers: tuple[Container, ...]
    phase: str = "Pending"
    is_deleting: bool = False
    run_seconds: float | None = None

    @property
    def key(self) -> str:
        """`namespace/name`, as people name pods."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_terminal(self) -> bool:
        """Whether all of its containers have ended for good."""
        return self.phase in TERMINAL_PHASES

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> "Pod":
        """Read a pod from the API's JSON; raises `msgspec.ValidationError` for something else."""
        return msgspec.convert(obj, type=PodObject).pod()


class _EnvVar(msgspec.Struct, frozen=True):
    name: str
    # Only literal values: nothing in the sandbox resolves references.
    value: str | None = None


class _Container(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    image: str | None = None
    restart_policy: str | None = None
    resources: Resources | None = None
    env: list[_EnvVar] | None = None

    def container(self, *, kind: Literal["init", "sidecar", "app"]) -> Container:
        limits = (self.resources.limits if self.resources else None) or {}
        return Container(
            name=self.name,
            kind=kind,
            image=self.image or "",
            limits={resource: str(quantity) for resource, quantity in limits.items()},
            env={variable.name: variable.value or "" for variable in self.env or ()},
        )


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    init_containers: list[_Container] | None = None
    containers: list[_Container] | None = None


class PodObject(msgspec.Struct, frozen=True):
    """A pod as the API sends it, as far as a node reads it."""

    metadata: ObjectMeta
    spec: _Spec = _Spec()
    status: PodStatus | None = None

    def pod(self) -> Pod:
        """The same, as the node uses it."""
        run_seconds = (self.metadata.annotations or {}).get(RUN_SECONDS)
        inits = [
            item.container(kind="sidecar" if item.restart_policy == "Always" else "init")
            for item in self.spec.init_containers or ()
        ]
        apps = [item.container(kind="app") for item in self.spec.containers or ()]
        return Pod(
            uid=self.metadata.uid,
            namespace=self.metadata.namespace or "default",
            name=self.metadata.name,
            created=self.metadata.creation_timestamp or "",
            containers=(*inits, *apps),
            phase=(self.status.phase if self.status else None) or "Pending",
            is_deleting=self.metadata.deletion_timestamp is not None,
            run_seconds=_seconds(run_seconds),
        )


def _seconds(text: str | None) -> float | None:
    """The annotation's number; nonsense counts as absent, since nobody would see an error here."""
    try:
        return float(text or "")
    except ValueError:
        return None
