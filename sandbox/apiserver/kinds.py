"""The resources the API server serves: one row per kind.

Everything that differs between kinds and is not behaviour stands here: names, group, scope, what field
selectors may name, and how Kubernetes 1.36 spells an otherwise empty object of the kind. Adding a kind
to the sandbox is adding a row.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

Manifest = dict[str, Any]
"""An API object as decoded JSON."""

EMPTY_NODE_STATUS: Manifest = {
    "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
    "nodeInfo": {
        "machineID": "",
        "systemUUID": "",
        "bootID": "",
        "kernelVersion": "",
        "osImage": "",
        "containerRuntimeVersion": "",
        "kubeletVersion": "",
        "kubeProxyVersion": "",
        "operatingSystem": "",
        "architecture": "",
    },
}
"""What Go writes for a node status without values (the fields have no ``omitempty``)."""


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One served resource."""

    plural: str
    kind: str
    singular: str
    group: str = ""
    version: str = "v1"
    short_names: tuple[str, ...] = ()
    namespaced: bool = True
    has_status: bool = False
    """Whether ``/status`` exists; if so the main resource ignores ``status`` on update."""
    has_generation: bool = False
    """Whether the server counts spec changes in ``metadata.generation``."""
    unconditional_update: bool = True
    """Whether a PUT may leave out ``metadata.resourceVersion``."""
    creates_on_update: bool = False
    """Whether a PUT of a name that does not exist creates it."""
    returns_deleted: bool = False
    """Whether DELETE answers with the object; otherwise with a Status."""
    selectable: tuple[str, ...] = ()
    """Fields that a field selector may name, beside ``metadata.name`` and ``metadata.namespace``."""
    bookmark: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """What a bookmark of this kind carries beside its metadata."""
    capacity: int | None = None
    """How many objects are kept; the oldest goes when one more is created."""
    storage: str = ""
    """Key of the collection that holds the objects; two API groups may show the same one."""
    registry_path: str = ""
    """Path under ``/registry`` in etcd: Kubernetes quotes it in messages of failed preconditions."""
    renames: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Stored top-level field → field of this API version, where the two differ."""

    @property
    def api_version(self) -> str:
        """``v1`` or ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """The name used in messages: ``pods``, ``leases.coordination.k8s.io``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified_kind(self) -> str:
        """The name used by validation messages: ``Pod``, ``Lease.coordination.k8s.io``."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def collection(self) -> str:
        """Key of the stored collection."""
        return self.storage or self.plural

    def etcd_key(self, *, namespace: str, name: str) -> str:
        """Key under which etcd would hold the object."""
        path = self.registry_path or self.plural
        return f"/registry/{path}/{namespace}/{name}" if self.namespaced else f"/registry/{path}/{name}"


_EVENT_FIELDS = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
)
EVENTS_KEPT = 2_000

_ROWS = (
    Kind(
        plural="pods",
        kind="Pod",
        singular="pod",
        short_names=("po",),
        has_status=True,
        has_generation=True,
        returns_deleted=True,
        selectable=(
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ),
        bookmark={"spec": {"containers": None}, "status": {}},
    ),
    Kind(
        plural="nodes",
        kind="Node",
        singular="node",
        short_names=("no",),
        namespaced=False,
        has_status=True,
        selectable=("spec.unschedulable",),
        bookmark={"spec": {}, "status": EMPTY_NODE_STATUS},
        registry_path="minions",
    ),
    Kind(
        plural="namespaces",
        kind="Namespace",
        singular="namespace",
        short_names=("ns",),
        namespaced=False,
        has_status=True,
        selectable=("status.phase",),
        bookmark={"spec": {}, "status": {}},
    ),
    Kind(plural="services", kind="Service", singular="service", short_names=("svc",), has_status=True),
    Kind(group="discovery.k8s.io", plural="endpointslices", kind="EndpointSlice", singular="endpointslice"),
    Kind(
        plural="events",
        kind="Event",
        singular="event",
        short_names=("ev",),
        creates_on_update=True,
        selectable=_EVENT_FIELDS,
        capacity=EVENTS_KEPT,
    ),
    Kind(
        group="events.k8s.io",
        plural="events",
        kind="Event",
        singular="event",
        short_names=("ev",),
        creates_on_update=True,
        selectable=_EVENT_FIELDS,
        capacity=EVENTS_KEPT,
        renames={
            "involvedObject": "regarding",
            "message": "note",
            "source": "deprecatedSource",
            "firstTimestamp": "deprecatedFirstTimestamp",
            "lastTimestamp": "deprecatedLastTimestamp",
            "count": "deprecatedCount",
            "reportingComponent": "reportingController",
        },
    ),
    Kind(
        group="coordination.k8s.io",
        plural="leases",
        kind="Lease",
        singular="lease",
        unconditional_update=False,
        creates_on_update=True,
        bookmark={"spec": {}},
    ),
    Kind(
        group="scheduling.k8s.io",
        plural="priorityclasses",
        kind="PriorityClass",
        singular="priorityclass",
        short_names=("pc",),
        namespaced=False,
        has_generation=True,
        bookmark={"value": 0},
    ),
    Kind(
        group="apps",
        plural="deployments",
        kind="Deployment",
        singular="deployment",
        short_names=("deploy",),
        has_status=True,
        has_generation=True,
        bookmark={"spec": {"selector": None, "template": {"spec": {"containers": None}}}, "status": {}},
    ),
)

_BY_PATH: Mapping[tuple[str, str, str], Kind] = MappingProxyType(
    {(row.group, row.version, row.plural): row for row in _ROWS}
)
# The core group's row wins where two groups show one collection.
_BY_PLURAL: Mapping[str, Kind] = MappingProxyType({row.plural: row for row in reversed(_ROWS)})


def find_kind(*, group: str, version: str, plural: str) -> Kind | None:
    """The row served under a group, version and plural, if there is one."""
    return _BY_PATH.get((group, version, plural))


def kind_of(plural: str) -> Kind:
    """The row for a plural such as ``pods``; raises KeyError for a resource that is not served."""
    return _BY_PLURAL[plural]


def served_kinds() -> Iterator[Kind]:
    """Every row, in the order of discovery."""
    return iter(_ROWS)
