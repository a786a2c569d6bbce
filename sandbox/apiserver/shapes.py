"""The types of what clients send, as far as the server reads it.

Kubernetes decodes into Go structs and answers 400 when a field has the wrong JSON type. These structs do
the same for every field that later code touches; fields they do not name pass through untouched.
"""

from typing import Any

import msgspec

from sandbox.apiserver.errors import BadRequest, cannot_handle
from sandbox.apiserver.kinds import Kind, Manifest

_Amounts = dict[str, str | int | float]
_Objects = list[dict[str, Any]]


class _Metadata(msgspec.Struct, rename="camel", kw_only=True):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_grace_period_seconds: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    owner_references: _Objects = []


class _Any(msgspec.Struct, rename="camel", kw_only=True):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


class _Resources(msgspec.Struct, kw_only=True):
    limits: _Amounts = {}
    requests: _Amounts = {}


class _ValueFrom(msgspec.Struct, rename="camel", kw_only=True):
    field_ref: dict[str, Any] = {}


class _EnvVar(msgspec.Struct, rename="camel", kw_only=True):
    name: str = ""
    value: str = ""
    value_from: _ValueFrom = msgspec.field(default_factory=_ValueFrom)


class _Probe(msgspec.Struct, rename="camel", kw_only=True):
    http_get: dict[str, Any] = {}


class _EmptyDir(msgspec.Struct, rename="camel", kw_only=True):
    size_limit: str | int | float = ""


class _Volume(msgspec.Struct, rename="camel", kw_only=True):
    name: str = ""
    secret: dict[str, Any] = {}
    config_map: dict[str, Any] = {}
    projected: dict[str, Any] = {}
    downward_api: dict[str, Any] = msgspec.field(default_factory=dict, name="downwardAPI")
    host_path: dict[str, Any] = {}
    empty_dir: _EmptyDir = msgspec.field(default_factory=_EmptyDir)


class _Affinity(msgspec.Struct, rename="camel", kw_only=True):
    node_affinity: dict[str, Any] = {}


class _Container(msgspec.Struct, rename="camel", kw_only=True):
    name: str = ""
    image: str = ""
    command: list[str] = []
    args: list[str] = []
    restart_policy: str = ""
    env: list[_EnvVar] = []
    ports: _Objects = []
    volume_mounts: _Objects = []
    liveness_probe: _Probe = msgspec.field(default_factory=_Probe)
    readiness_probe: _Probe = msgspec.field(default_factory=_Probe)
    startup_probe: _Probe = msgspec.field(default_factory=_Probe)
    resources: _Resources = msgspec.field(default_factory=_Resources)


class _Named(msgspec.Struct, kw_only=True):
    name: str = ""


class _Condition(msgspec.Struct, kw_only=True):
    type: str = ""
    status: str = ""


class _PodSpec(msgspec.Struct, rename="camel", kw_only=True):
    containers: list[_Container] = []
    init_containers: list[_Container] = []
    node_name: str = ""
    node_selector: dict[str, str] = {}
    scheduler_name: str = ""
    service_account_name: str = ""
    service_account: str = ""
    restart_policy: str = ""
    priority_class_name: str = ""
    priority: int = 0
    termination_grace_period_seconds: int = 0
    active_deadline_seconds: int = 0
    host_network: bool = False
    tolerations: _Objects = []
    scheduling_gates: list[_Named] = []
    volumes: list[_Volume] = []
    affinity: _Affinity = msgspec.field(default_factory=_Affinity)
    security_context: dict[str, Any] = {}


class _PodStatus(msgspec.Struct, rename="camel", kw_only=True):
    phase: str = ""
    nominated_node_name: str = ""
    conditions: list[_Condition] = []


class _Pod(_Any):
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)  # type: ignore[assignment]
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)  # type: ignore[assignment]


class _NodeSpec(msgspec.Struct, rename="camel", kw_only=True):
    unschedulable: bool = False
    taints: _Objects = []


class _NodeStatus(msgspec.Struct, rename="camel", kw_only=True):
    capacity: _Amounts = {}
    allocatable: _Amounts = {}
    conditions: list[_Condition] = []
    node_info: dict[str, Any] = {}
    daemon_endpoints: dict[str, Any] = {}


class _Node(_Any):
    spec: _NodeSpec = msgspec.field(default_factory=_NodeSpec)  # type: ignore[assignment]
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)  # type: ignore[assignment]


class _Event(_Any, rename="camel"):
    involved_object: dict[str, Any] = {}


class _PriorityClass(_Any, rename="camel"):
    value: int = 0
    global_default: bool = False
    preemption_policy: str = ""


class _LeaseSpec(msgspec.Struct, rename="camel", kw_only=True):
    holder_identity: str = ""
    lease_duration_seconds: int = 0
    lease_transitions: int = 0


class _Lease(_Any):
    spec: _LeaseSpec = msgspec.field(default_factory=_LeaseSpec)  # type: ignore[assignment]


class _Reference(msgspec.Struct, kw_only=True):
    kind: str = ""
    name: str = ""


class Binding(msgspec.Struct, kw_only=True):
    """The body of a bind."""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    target: _Reference = msgspec.field(default_factory=_Reference)


class _Preconditions(msgspec.Struct, rename="camel", kw_only=True):
    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(msgspec.Struct, rename="camel", kw_only=True):
    """The body of a DELETE."""

    grace_period_seconds: int | None = None
    preconditions: _Preconditions = msgspec.field(default_factory=_Preconditions)


class _Endpoint(msgspec.Struct, rename="camel", kw_only=True):
    addresses: list[str]
    conditions: dict[str, Any] = {}


class _EndpointPort(msgspec.Struct, kw_only=True):
    port: int
    name: str = ""


class _EndpointSlice(_Any, rename="camel"):
    address_type: str = ""
    endpoints: list[_Endpoint] = []
    ports: list[_EndpointPort] = []


class _ServicePort(msgspec.Struct, kw_only=True):
    port: int
    name: str = ""


class _ServiceSpec(msgspec.Struct, kw_only=True):
    ports: list[_ServicePort] = []


class _Service(_Any):
    spec: _ServiceSpec = msgspec.field(default_factory=_ServiceSpec)  # type: ignore[assignment]


_SHAPES: dict[str, type[_Any]] = {
    "pods": _Pod,
    "nodes": _Node,
    "events": _Event,
    "priorityclasses": _PriorityClass,
    "leases": _Lease,
    "services": _Service,
    "endpointslices": _EndpointSlice,
}


def decode_json(body: bytes) -> Any:
    """JSON from a client; raises BadRequest if it is none."""
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise BadRequest(f"the body of the request is not JSON: {error}") from error
    except UnicodeDecodeError as error:
        raise BadRequest("the body of the request is not UTF-8") from error


def decode_manifest(kind: Kind, value: Any) -> Manifest:
    """An object that may be taken for the kind: its ``kind``, ``apiVersion`` and types fit.

    Nulls are dropped, since Go takes a null for an absent field; so are ``kind`` and ``apiVersion``.
    """
    if not isinstance(value, dict):
        raise cannot_handle(kind, "the body is not an object")
    found_kind, found_version = value.get("kind") or kind.kind, value.get("apiVersion") or kind.api_version
    if found_kind != kind.kind or found_version != kind.api_version:
        what = f'no kind "{found_kind}" is registered for version "{found_version}"'
        raise cannot_handle(kind, what, version=str(found_version).rpartition("/")[2])
    manifest = {
        name: member for name, member in drop_nulls(value).items() if name not in ("kind", "apiVersion")
    }
    if kind.renames:
        stored = {shown: name for name, shown in kind.renames.items()}
        manifest = {stored.get(name, name): member for name, member in manifest.items()}
    try:
        msgspec.convert(manifest, _SHAPES.get(kind.plural, _Any))
    except msgspec.ValidationError as error:
        raise cannot_handle(kind, f"json: {error}") from error
    manifest["metadata"] = manifest.get("metadata") or {}
    return manifest


def decode_binding(value: Any) -> Binding:
    """The body of a bind; raises BadRequest when it has another shape."""
    if not isinstance(value, dict) or value.get("kind") not in (None, "", "Binding"):
        raise BadRequest('Binding in version "v1" cannot be handled as a Binding: the body is not a Binding')
    try:
        return msgspec.convert(drop_nulls(value), Binding)
    except msgspec.ValidationError as error:
        raise BadRequest(f'Binding in version "v1" cannot be handled as a Binding: json: {error}') from error


def decode_delete_options(body: bytes) -> DeleteOptions:
    """The body of a DELETE; an empty one means no options."""
    if not body.strip():
        return DeleteOptions()
    value = decode_json(body)
    try:
        return msgspec.convert(drop_nulls(value), DeleteOptions)
    except msgspec.ValidationError as error:
        message = f'DeleteOptions in version "v1" cannot be handled as a DeleteOptions: json: {error}'
        raise BadRequest(message) from error


def drop_nulls(value: Any) -> Any:
    """A copy without members that are null."""
    if isinstance(value, dict):
        return {name: drop_nulls(member) for name, member in value.items() if member is not None}
    if isinstance(value, list):
        return [drop_nulls(item) for item in value]
    return value
