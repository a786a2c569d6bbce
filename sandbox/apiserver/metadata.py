"""Object metadata: what a client may set, what only the server sets, and the names it makes up."""

import secrets
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from sandbox.apiserver.errors import BadRequest, Conflict
from sandbox.apiserver.history import Record
from sandbox.apiserver.kinds import Kind, Manifest
from sandbox.apiserver.store import timestamp

_NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # k8s.io/apimachinery/pkg/util/rand, 1.36
_RANDOM_LENGTH = 5
_GENERATED_BASE_MAX = 58  # 63 less the random part
_CLIENTS_OWN = ("labels", "annotations", "ownerReferences", "finalizers")
_SERVERS_OWN = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


def check_address(kind: Kind, manifest: Manifest, *, namespace: str, name: str = "") -> None:
    """The object has to live where the URL says; an absent namespace is filled in. Raises BadRequest."""
    metadata = manifest["metadata"]
    if kind.namespaced:
        if metadata.setdefault("namespace", namespace) != namespace:
            raise BadRequest(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
    else:
        metadata.pop("namespace", None)
    if name and (metadata.get("name") or name) != name:
        raise BadRequest(
            f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
        )
    if name:
        metadata["name"] = name


def new_metadata(kind: Kind, sent: Mapping[str, Any]) -> Manifest:
    """Metadata of an object that is being created."""
    if sent.get("resourceVersion"):
        raise BadRequest("resourceVersion should not be set on objects to be created")
    made: Manifest = {"name": sent.get("name") or _generated_name(sent.get("generateName", ""))}
    if sent.get("generateName"):
        made["generateName"] = sent["generateName"]
    if kind.namespaced:
        made["namespace"] = sent["namespace"]
    made["uid"] = str(uuid4())
    made["resourceVersion"] = ""
    if kind.has_generation:
        made["generation"] = 1
    made["creationTimestamp"] = timestamp()
    return made | {field: sent[field] for field in _CLIENTS_OWN if sent.get(field)}


def next_metadata(old: Mapping[str, Any], sent: Mapping[str, Any]) -> Manifest:
    """Metadata after an update: the client's part as sent, the server's part as it was."""
    identity = ("name", "generateName", "namespace", *_SERVERS_OWN)
    kept = {field: old[field] for field in identity if field in old}
    return kept | {field: sent[field] for field in _CLIENTS_OWN if sent.get(field)}


def check_version(kind: Kind, record: Record, *, uid: str, version: str) -> None:
    """Optimistic concurrency of an update; raises Conflict."""
    if uid and uid != record.uid:
        raise Conflict.precondition(
            kind, namespace=record.namespace, name=record.name, what="UID", given=uid, actual=record.uid
        )
    if version not in ("", "0", str(record.version)):
        raise Conflict.modified(kind, name=record.name)


def random_suffix() -> str:
    """The part of a generated name that Kubernetes makes up."""
    return "".join(secrets.choice(_NAME_ALPHABET) for _ in range(_RANDOM_LENGTH))


def _generated_name(base: str) -> str:
    return base[:_GENERATED_BASE_MAX] + random_suffix() if base else ""
