"""What Kubernetes fills in when an object arrives (1.36, with the admission plugins that are on by default).

Every function changes the manifest it is given, which belongs to the request, and can be applied twice.
"""

from collections.abc import Iterator
from copy import deepcopy
from decimal import Decimal

from sandbox.apiserver.errors import cannot_handle
from sandbox.apiserver.kinds import EMPTY_NODE_STATUS, Kind, Manifest
from sandbox.apiserver.quantities import canonical, parse
from sandbox.apiserver.store import timestamp

_OMITTED_WHEN_EMPTY = (
    "hostNetwork",
    "initContainers",
    "nodeName",
    "nodeSelector",
    "priorityClassName",
    "schedulingGates",
    "tolerations",
    "volumes",
)
_NOT_READY_SECONDS = 300  # default of --default-not-ready-toleration-seconds and its unreachable twin


def apply_defaults(kind: Kind, manifest: Manifest) -> None:
    """Fill in what decoding an object of the kind fills in; raises BadRequest for what is no quantity."""
    try:
        _apply(kind, manifest)
    except ValueError as error:
        raise cannot_handle(kind, str(error)) from error


def _apply(kind: Kind, manifest: Manifest) -> None:
    match kind.plural:
        case "pods":
            manifest["spec"] = manifest.get("spec") or {}
            manifest["status"] = manifest.get("status") or {}
            _default_pod_spec(manifest["spec"])
            _default_conditions(manifest["status"], times=("lastProbeTime", "lastTransitionTime"))
        case "nodes":
            manifest["spec"] = manifest.get("spec") or {}
            _drop_empty(manifest["spec"], ("taints", "unschedulable"))
            _default_node_status(manifest.setdefault("status", {}))
        case "namespaces":
            manifest.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
            manifest.setdefault("status", {}).setdefault("phase", "Active")
            labels = manifest["metadata"].setdefault("labels", {})
            labels.setdefault("kubernetes.io/metadata.name", manifest["metadata"].get("name", ""))
        case "priorityclasses":
            manifest.setdefault("value", 0)
            manifest.setdefault("preemptionPolicy", "PreemptLowerPriority")
        case "leases":
            manifest.setdefault("spec", {})
        case "deployments":
            manifest.setdefault("spec", {}).setdefault("replicas", 1)
            manifest.setdefault("status", {})


def containers_of(spec: Manifest) -> Iterator[tuple[str, Manifest]]:
    """Every container with the path of its field, init containers first."""
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or []):
            yield f"spec.{field}[{index}]", container


def prepare_new_pod(manifest: Manifest) -> None:
    """The status that a new pod starts with, whatever was sent."""
    spec = manifest["spec"]
    status: Manifest = {"phase": "Pending", "qosClass": _qos_class(spec)}
    if spec.get("schedulingGates"):
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": None,
            "lastTransitionTime": timestamp(),
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }
        status = {"phase": "Pending", "conditions": [condition], "qosClass": status["qosClass"]}
    manifest["status"] = status


def add_node_tolerations(spec: Manifest) -> None:
    """What the DefaultTolerationSeconds plugin does when a pod is created or updated."""
    tolerations = spec.setdefault("tolerations", [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(_tolerates(toleration, key) for toleration in tolerations):
            tolerations.append(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": _NOT_READY_SECONDS,
                }
            )


def _tolerates(toleration: Manifest, key: str) -> bool:
    return bool(toleration.get("key", key) == key and toleration.get("effect", "NoExecute") == "NoExecute")


def _default_pod_spec(spec: Manifest) -> None:
    spec.setdefault("containers", [])
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("serviceAccountName", spec.get("serviceAccount") or "default")
    spec["serviceAccount"] = spec["serviceAccountName"]
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("enableServiceLinks", True)
    for _, container in containers_of(spec):
        _default_container(container)
    for volume in spec.get("volumes") or []:
        _default_volume(volume)
    _drop_empty(spec, _OMITTED_WHEN_EMPTY)
    if spec.get("hostNetwork"):
        for _, container in containers_of(spec):
            for port in container.get("ports") or []:
                port.setdefault("hostPort", port.get("containerPort"))


def _drop_empty(value: Manifest, fields: tuple[str, ...]) -> None:
    for field in fields:
        if field in value and not value[field]:
            del value[field]


def _default_container(container: Manifest) -> None:
    resources = container.setdefault("resources", {})
    for field in ("limits", "requests"):
        if amounts := resources.get(field):
            resources[field] = _canonical_amounts(amounts)
        else:
            resources.pop(field, None)
    if limits := resources.get("limits"):
        requests = resources.get("requests") or {}
        resources["requests"] = {
            **requests,
            **{name: limits[name] for name in limits if name not in requests},
        }
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("imagePullPolicy", _pull_policy(container.get("image", "")))
    for port in container.get("ports") or []:
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or []:
        _drop_empty(variable, ("value",))
        if field_ref := (variable.get("valueFrom") or {}).get("fieldRef"):
            field_ref.setdefault("apiVersion", "v1")
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe in container:
            _default_probe(container[probe])


def _default_probe(probe: Manifest) -> None:
    probe.setdefault("timeoutSeconds", 1)
    probe.setdefault("periodSeconds", 10)
    probe.setdefault("successThreshold", 1)
    probe.setdefault("failureThreshold", 3)
    if get := probe.get("httpGet"):
        get.setdefault("path", "/")
        get.setdefault("scheme", "HTTP")


def _default_volume(volume: Manifest) -> None:
    if set(volume) <= {"name"}:
        volume["emptyDir"] = {}
    for source in ("secret", "configMap", "projected", "downwardAPI"):
        if source in volume:
            volume[source].setdefault("defaultMode", 420)
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")
    if "sizeLimit" in (volume.get("emptyDir") or {}):
        volume["emptyDir"]["sizeLimit"] = _canonical(volume["emptyDir"]["sizeLimit"])


def _pull_policy(image: str) -> str:
    if "@" in image:
        return "IfNotPresent"
    tag = image.rpartition("/")[2].partition(":")[2]
    return "Always" if tag in ("", "latest") else "IfNotPresent"


def _default_node_status(status: Manifest) -> None:
    for field in ("capacity", "allocatable"):
        if amounts := status.get(field):
            status[field] = _canonical_amounts(amounts)
        else:
            status.pop(field, None)
    if "capacity" in status and "allocatable" not in status:
        status["allocatable"] = dict(status["capacity"])
    for name, value in EMPTY_NODE_STATUS.items():
        status[name] = {**deepcopy(value), **status.get(name, {})}
    _default_conditions(status, times=("lastHeartbeatTime", "lastTransitionTime"))


def _default_conditions(status: Manifest, *, times: tuple[str, ...]) -> None:
    # Go writes these times even when they are unset.
    for condition in status.get("conditions") or []:
        for time in times:
            condition.setdefault(time, None)


def _canonical_amounts(amounts: Manifest) -> Manifest:
    return {name: _canonical(amount) for name, amount in amounts.items()}


def _canonical(amount: object) -> str:
    return canonical(str(amount).strip(" "))  # Go trims what it finds in JSON


def _qos_class(spec: Manifest) -> str:
    """Guaranteed, Burstable or BestEffort; only cpu and memory count."""
    guaranteed, any_set = True, False
    for _, container in containers_of(spec):
        resources = container["resources"]
        limits, requests = _positive(resources.get("limits")), _positive(resources.get("requests"))
        any_set = any_set or bool(limits or requests)
        guaranteed = guaranteed and len(limits) == 2 and requests == limits
    if not any_set:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _positive(amounts: Manifest | None) -> dict[str, Decimal]:
    found = (
        {name: parse(amounts[name]).value for name in ("cpu", "memory") if name in (amounts or {})}
        if amounts
        else {}
    )
    return {name: amount for name, amount in found.items() if amount > 0}
