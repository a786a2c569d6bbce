"""kube-scheduler's extender bodies (`k8s.io/kube-scheduler/extender/v1`, 1.36).

The Go structs carry no JSON tags, so the keys are Go's field names; absent parts arrive as `null`. Decoded
with msgspec: the pod is the same narrow struct that the watches use, nodes stay raw bytes to be handed
back as they came.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from gpushare.errors import GpuShareError
from gpushare.objects import UNDECODABLE, Pod

T = TypeVar("T")


class WireError(GpuShareError):
    """A body that is not what kube-scheduler sends."""


class NodeList(msgspec.Struct, frozen=True):
    """The nodes of a scheduler without `nodeCacheCapable`."""

    items: list[msgspec.Raw] | None = None
    metadata: dict[str, Any] | None = None


class ExtenderArgs(msgspec.Struct, frozen=True, rename="pascal"):
    """Body of filter and prioritize."""

    pod: Pod
    nodes: NodeList | None = None
    node_names: list[str] | None = None

    def names(self) -> list[str]:
        """The nodes asked about, in the shape that was used."""
        if self.node_names is not None:
            return self.node_names
        return [node_name(raw) for raw in (self.nodes.items or () if self.nodes else ())]


class FilterResult(msgspec.Struct, frozen=True, rename="pascal"):
    """Answer to filter. Every name that was asked about is in exactly one of the three."""

    nodes: NodeList | None = None
    node_names: list[str] | None = None
    failed_nodes: dict[str, str] = {}
    failed_and_unresolvable_nodes: dict[str, str] = {}
    error: str = ""

    @property
    def none_fits_yet(self) -> bool:
        """Whether no node takes the pod, though one may soon."""
        fitting = self.node_names or (self.nodes and self.nodes.items)
        return bool(self.failed_nodes) and not fitting


class HostPriority(msgspec.Struct, frozen=True, rename="pascal"):
    """One element of the answer to prioritize."""

    host: str
    score: int


class BindingArgs(msgspec.Struct, frozen=True, rename="pascal"):
    """Body of bind."""

    pod_name: str
    pod_namespace: str
    pod_uid: str = msgspec.field(name="PodUID")
    node: str


class BindingResult(msgspec.Struct, frozen=True, rename="pascal"):
    """Answer to bind; an empty error is success."""

    error: str = ""


class Victims(msgspec.Struct, frozen=True, rename="pascal"):
    """Whom kube-scheduler would evict from a node, as whole pods."""

    pods: list[Pod] | None = None
    num_pdb_violations: int = msgspec.field(default=0, name="NumPDBViolations")

    def uids(self) -> list[str]:
        """The pods' UIDs, in kube-scheduler's order: the most important first."""
        return [pod.metadata.uid for pod in self.pods or ()]


class MetaPod(msgspec.Struct, frozen=True):
    """A pod, by UID alone."""

    uid: str = msgspec.field(name="UID")


class MetaVictims(msgspec.Struct, frozen=True, rename="pascal"):
    """Whom to evict from a node, by UID."""

    pods: list[MetaPod] | None = None
    num_pdb_violations: int = msgspec.field(default=0, name="NumPDBViolations")

    def uids(self) -> list[str]:
        """The pods' UIDs, in the order given: the most important first."""
        return [pod.uid for pod in self.pods or ()]


class PreemptionArgs(msgspec.Struct, frozen=True, rename="pascal"):
    """Body of preempt. `nodeCacheCapable` schedulers send the victims' UIDs, others the whole pods."""

    pod: Pod
    node_name_to_victims: dict[str, Victims] | None = None
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None

    def victims(self) -> dict[str, Victims | MetaVictims]:
        """kube-scheduler's victims by node, in the shape that was used."""
        return {**(self.node_name_to_victims or {}), **(self.node_name_to_meta_victims or {})}


class PreemptionResult(msgspec.Struct, frozen=True, rename="pascal"):
    """Answer to preempt, whatever the shape of the question: the nodes where evicting helps. There is no
    place for an error."""

    node_name_to_meta_victims: dict[str, MetaVictims]


class _NamedMeta(msgspec.Struct, frozen=True):
    name: str


class _Named(msgspec.Struct, frozen=True):
    metadata: _NamedMeta


_named = msgspec.json.Decoder(_Named)
_args = msgspec.json.Decoder(ExtenderArgs)
_preemption = msgspec.json.Decoder(PreemptionArgs)
_binding = msgspec.json.Decoder(BindingArgs)


def node_name(raw: msgspec.Raw) -> str:
    """The name of a raw node; raises `WireError` where it has none."""
    return _decode(_named, raw).metadata.name


def decode_args(body: bytes) -> ExtenderArgs:
    """Read the body of filter or prioritize; raises `WireError`."""
    args = _decode(_args, body)
    if args.node_names is None and args.nodes is None:
        raise WireError("the request names no nodes: both NodeNames and Nodes are null")
    return args


def decode_preemption(body: bytes) -> PreemptionArgs:
    """Read the body of preempt; raises `WireError`."""
    args = _decode(_preemption, body)
    if args.node_name_to_victims is None and args.node_name_to_meta_victims is None:
        raise WireError(
            "the request names no nodes: both NodeNameToVictims and NodeNameToMetaVictims are null"
        )
    if any(not uid for victims in args.victims().values() for uid in victims.uids()):
        raise WireError("the request names a victim without a UID")
    return args


def decode_binding(body: bytes) -> BindingArgs:
    """Read the body of bind; raises `WireError`."""
    args = _decode(_binding, body)
    for key, value in (
        ("PodName", args.pod_name),
        ("PodNamespace", args.pod_namespace),
        ("PodUID", args.pod_uid),
        ("Node", args.node),
    ):
        if not value:
            raise WireError(f"the request's {key} is empty")
    return args


def _decode(decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw) -> T:
    try:
        return decoder.decode(body)
    except UNDECODABLE as error:
        raise WireError(f"the request's body cannot be read: {error}") from error
