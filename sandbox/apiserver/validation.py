"""The rules an object has to meet, with the messages of Kubernetes 1.36."""

import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from sandbox.apiserver.defaults import containers_of
from sandbox.apiserver.errors import Cause, Invalid
from sandbox.apiserver.kinds import Kind, Manifest
from sandbox.apiserver.quantities import parse

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
_LABEL_MAX, _SUBDOMAIN_MAX = 63, 253

_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
    "and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_QUALIFIED_TEXT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_LABEL_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used "
    "for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_UPDATABLE = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` "
    "(allow it to be set to 1 if it was previously negative)"
)


def validate_new(kind: Kind, manifest: Manifest) -> None:
    """Raises Invalid with every rule that a new object breaks."""
    causes = list(_check_metadata(kind, manifest["metadata"]))
    if kind.plural == "pods":
        causes += _check_pod_spec(manifest["spec"])
    elif kind.plural == "nodes":
        causes += _check_node(manifest)
    elif kind.plural == "events":
        causes += _check_event(manifest)
    _raise(kind, manifest, causes)


def validate_update(kind: Kind, *, old: Manifest, new: Manifest) -> None:
    """Raises Invalid with every rule that an update breaks."""
    causes = list(_check_metadata(kind, new["metadata"]))
    if kind.plural == "pods":
        causes += _check_pod_change(old["spec"], new["spec"])
    elif kind.plural == "nodes":
        causes += _check_node(new)
    elif kind.plural == "priorityclasses" and old["value"] != new["value"]:
        causes.append(Cause.forbidden(field="value", detail="may not be changed in an update."))
    _raise(kind, new, causes)


def _raise(kind: Kind, manifest: Manifest, causes: list[Cause]) -> None:
    if causes:
        metadata = manifest["metadata"]
        name = metadata.get("name") or metadata.get("generateName", "")
        raise Invalid.of(kind, name=name, causes=causes)


def _check_metadata(kind: Kind, metadata: Manifest) -> Iterator[Cause]:
    name = metadata.get("name", "")
    pattern, limit, text = _SUBDOMAIN, _SUBDOMAIN_MAX, _SUBDOMAIN_TEXT
    if kind.plural == "namespaces":
        pattern, limit, text = _LABEL, _LABEL_MAX, _LABEL_TEXT
    if not name:
        yield Cause.required(field="metadata.name", detail="name or generateName is required")
    elif len(name) > limit:
        yield Cause.invalid(
            field="metadata.name", value=name, detail=f"must be no more than {limit} characters"
        )
    elif not re.fullmatch(pattern, name):
        yield Cause.invalid(field="metadata.name", value=name, detail=text)
    for key, value in sorted((metadata.get("labels") or {}).items()):
        yield from _check_qualified("metadata.labels", key)
        if len(value) > _LABEL_MAX:
            detail = f"must be no more than {_LABEL_MAX} characters"
            yield Cause.invalid(field="metadata.labels", value=value, detail=detail)
        elif not re.fullmatch(_LABEL_VALUE, value):
            yield Cause.invalid(field="metadata.labels", value=value, detail=_LABEL_VALUE_TEXT)
    for key in sorted(metadata.get("annotations") or {}):
        yield from _check_qualified("metadata.annotations", key, lower=True)


def _check_qualified(field: str, key: str, *, lower: bool = False) -> Iterator[Cause]:
    # Annotation keys may have capitals before the slash: Kubernetes folds the case first.
    prefix, slash, name = (key.lower() if lower else key).rpartition("/")
    if slash and not prefix:
        yield Cause.invalid(field=field, value=key, detail="prefix part must be non-empty")
    elif slash and not re.fullmatch(_SUBDOMAIN, prefix):
        yield Cause.invalid(field=field, value=key, detail=f"prefix part {_SUBDOMAIN_TEXT}")
    if len(name) > _LABEL_MAX:
        detail = f"name part must be no more than {_LABEL_MAX} characters"
        yield Cause.invalid(field=field, value=key, detail=detail)
    elif not re.fullmatch(_QUALIFIED, name):
        yield Cause.invalid(field=field, value=key, detail=_QUALIFIED_TEXT)


def _check_pod_spec(spec: Manifest) -> Iterator[Cause]:
    seen: set[str] = set()
    if not spec["containers"]:
        yield Cause.required(field="spec.containers")
    for path, container in containers_of(spec):
        name = container.get("name", "")
        if not name:
            yield Cause.required(field=f"{path}.name")
        elif len(name) > _LABEL_MAX or not re.fullmatch(_LABEL, name):
            yield Cause.invalid(field=f"{path}.name", value=name, detail=_LABEL_TEXT)
        elif name in seen:
            yield Cause.duplicate(field=f"{path}.name", value=name)
        seen.add(name)
        if not container.get("image"):
            yield Cause.required(field=f"{path}.image")
        yield from _check_resources(f"{path}.resources", container["resources"])
    policies = ("Always", "OnFailure", "Never")
    if spec["restartPolicy"] not in policies:
        yield Cause.not_supported(field="spec.restartPolicy", value=spec["restartPolicy"], supported=policies)
    if spec.get("schedulingGates") and spec.get("nodeName"):
        detail = "cannot be set until all schedulingGates have been cleared"
        yield Cause.forbidden(field="spec.nodeName", detail=detail)


def _check_resources(path: str, resources: Manifest) -> Iterator[Cause]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for name in sorted(limits):
        yield from _check_amount(f"{path}.limits[{name}]", name, limits[name])
    for name in sorted(requests):
        request, limit = requests[name], limits.get(name)
        yield from _check_amount(f"{path}.requests[{name}]", name, request)
        if limit is None:
            if not _may_overcommit(name):
                detail = "Limit must be set for non overcommitable resources"
                yield Cause.required(field=f"{path}.limits", detail=detail)
            continue
        difference = parse(request).value - parse(limit).value
        if difference and not _may_overcommit(name):
            detail = f"must be equal to {name} limit of {limit}"
            yield Cause.invalid(field=f"{path}.requests", value=request, detail=detail)
        elif difference > 0:
            detail = f"must be less than or equal to {name} limit of {limit}"
            yield Cause.invalid(field=f"{path}.requests", value=request, detail=detail)


def _check_amount(field: str, name: str, amount: str) -> Iterator[Cause]:
    if "/" not in name and not re.fullmatch(r"cpu|memory|ephemeral-storage|hugepages-.+", name):
        for detail in (
            "must be a standard resource type or fully qualified",
            "must be a standard resource for containers",
        ):
            yield Cause.invalid(field=field, value=name, detail=detail)
    else:
        yield from _check_qualified(field, name)
    yield from _check_whole(field, name, amount)


def _check_whole(field: str, name: str, amount: str) -> Iterator[Cause]:
    value = parse(amount).value
    if value < 0:
        yield Cause.invalid(field=field, value=amount, detail="must be greater than or equal to 0")
    if value % 1 and not _may_overcommit(name):
        yield Cause.invalid(field=field, value=amount, detail="must be an integer")


def _may_overcommit(name: str) -> bool:
    """Native resources may; extended ones may not: those are whole and guaranteed."""
    native = "/" not in name or "kubernetes.io/" in name
    return native and not name.startswith("hugepages-")


def _check_node(manifest: Manifest) -> Iterator[Cause]:
    for field in ("capacity", "allocatable"):
        for name, amount in sorted((manifest["status"].get(field) or {}).items()):
            yield from _check_whole(f"status.{field}.{name}", name, amount)


def _check_event(manifest: Manifest) -> Iterator[Cause]:
    """An event lives beside what it is about; those about nodes and the like in ``default``."""
    about = manifest.get("involvedObject")
    namespace = about.get("namespace", "") if isinstance(about, dict) else ""
    if (namespace or "default") != manifest["metadata"]["namespace"]:
        detail = "does not match event.namespace"
        yield Cause.invalid(field="involvedObject.namespace", value=namespace, detail=detail)


def _check_pod_change(old: Manifest, new: Manifest) -> Iterator[Cause]:
    for field in ("initContainers", "containers"):
        if len(old.get(field) or []) != len(new.get(field) or []):
            yield Cause.forbidden(
                field=f"spec.{field}", detail="pod updates may not add or remove containers"
            )
            return
    gates = {gate.get("name") for gate in old.get("schedulingGates") or []}
    for index, gate in enumerate(new.get("schedulingGates") or []):
        if gate.get("name") not in gates:
            detail = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            yield Cause.forbidden(field=f"spec.schedulingGates[{index}].name", detail=detail)
    kept = new.get("tolerations") or []
    if any(toleration not in kept for toleration in old.get("tolerations") or []):
        detail = "existing toleration can not be modified except its tolerationSeconds"
        yield Cause.forbidden(field="spec.tolerations", detail=detail)
    before, after = _fixed_part(old), _fixed_part(new)
    if gates:  # a gated pod may still narrow where it goes
        for part in (before, after):
            part.pop("nodeSelector", None)
            (part.get("affinity") or {}).pop("nodeAffinity", None)
            if not part.get("affinity"):
                part.pop("affinity", None)
    if before != after:
        changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        detail = f"pod updates may not change fields other than {_UPDATABLE}\nchanged: {', '.join(changed)}"
        yield Cause.forbidden(field="spec", detail=detail)


def _fixed_part(spec: Manifest) -> dict[str, Any]:
    fixed = deepcopy(spec)
    for name in ("activeDeadlineSeconds", "tolerations", "schedulingGates"):
        fixed.pop(name, None)
    if fixed["terminationGracePeriodSeconds"] < 0:
        fixed["terminationGracePeriodSeconds"] = 1
    for _, container in containers_of(fixed):
        container.pop("image", None)
    return fixed
