"""Binding a pod to a node, as Kubernetes does it."""

from sandbox.apiserver.errors import BadRequest, Cause, Conflict, Invalid
from sandbox.apiserver.history import Record
from sandbox.apiserver.kinds import Kind, Manifest, kind_of
from sandbox.apiserver.registry import Registry
from sandbox.apiserver.shapes import Binding
from sandbox.apiserver.store import timestamp

PODS = kind_of("pods")
BINDINGS = Kind(plural="bindings", kind="Binding", singular="binding")


def bind(registry: Registry, binding: Binding, *, namespace: str, name: str, dry_run: bool = False) -> Record:
    """Assign a pod to a node in one write, with the binding's annotations and labels (BindingREST, 1.36).

    Raises NotFound, and Conflict when a precondition fails or the pod is assigned, gated or being deleted.
    """
    if binding.metadata.name != name:
        raise BadRequest("name in URL does not match name in Binding object")
    if binding.metadata.namespace not in ("", namespace):
        raise BadRequest(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    causes = []
    if binding.target.kind not in ("", "Node"):
        supported = ("Node", "<empty>")
        causes.append(
            Cause.not_supported(field="target.kind", value=binding.target.kind, supported=supported)
        )
    if not binding.target.name:
        causes.append(Cause.required(field="target.name"))
    if causes:
        # Kubernetes 1.36 answers 500 with the same texts: its own oversight, not worth copying.
        raise Invalid.of(BINDINGS, name=name, causes=causes)
    record = registry.get(PODS, namespace=namespace, name=name)
    for what, given, actual in (
        ("UID", binding.metadata.uid, record.uid),
        ("ResourceVersion", binding.metadata.resource_version, str(record.version)),
    ):
        if given not in ("", actual):
            raise Conflict.precondition(
                PODS, namespace=namespace, name=name, what=what, given=given, actual=actual
            )
    pod = record.manifest()
    if refusal := _why_not_bound(pod):
        raise Conflict.of(PODS, name=name, subresource="binding", why=f"pod {name} {refusal}")
    metadata, status = pod["metadata"], pod["status"]
    pod["spec"]["nodeName"] = binding.target.name
    for field, values in (("annotations", binding.metadata.annotations), ("labels", binding.metadata.labels)):
        if values:
            metadata[field] = {**metadata.get(field, {}), **values}
    conditions = [item for item in status.get("conditions", []) if item["type"] != "PodScheduled"]
    scheduled = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": timestamp(),
    }
    status["conditions"] = [*conditions, scheduled]
    return registry.replace(PODS, record, pod, dry_run=dry_run)


def _why_not_bound(pod: Manifest) -> str:
    if "deletionTimestamp" in pod["metadata"]:
        return "is being deleted, cannot be assigned to a host"
    if node := pod["spec"].get("nodeName"):
        return f'is already assigned to node "{node}"'
    if pod["spec"].get("schedulingGates"):
        return "has non-empty .spec.schedulingGates"
    return ""
