"""Deleting objects: at once, with grace, and behind finalizers (rest.BeforeDelete and podStrategy, 1.36)."""

from datetime import UTC, datetime, timedelta

import msgspec

from sandbox.apiserver.errors import Conflict
from sandbox.apiserver.history import Record
from sandbox.apiserver.kinds import Kind, Manifest, kind_of, served_kinds
from sandbox.apiserver.registry import Registry
from sandbox.apiserver.selectors import EVERYTHING, Selector
from sandbox.apiserver.shapes import DeleteOptions
from sandbox.apiserver.store import timestamp

PODS = kind_of("pods")
NAMESPACES = kind_of("namespaces")
_FINISHED = ("Failed", "Succeeded")


class Deletion(msgspec.Struct, frozen=True, kw_only=True):
    """What a DELETE did."""

    record: Record
    body: bytes
    """The object as the answer shows it."""
    gone: bool
    """False while it waits for its kubelet or its finalizers."""


def delete(
    registry: Registry,
    kind: Kind,
    options: DeleteOptions,
    *,
    namespace: str = "",
    name: str,
    dry_run: bool = False,
) -> Deletion:
    """Delete an object. A bound pod stays, marked, until its kubelet deletes it with grace 0."""
    record = registry.get(kind, namespace=namespace, name=name)
    _check_preconditions(kind, record, options)
    if dry_run:
        return Deletion(record=record, body=record.body, gone=True)
    manifest = record.manifest()
    if kind is NAMESPACES:
        _empty_namespace(registry, name)
    if kind is PODS or manifest["metadata"].get("finalizers"):
        record = _mark_deleted(registry, kind, record, manifest, options=options)
        metadata = record.manifest()["metadata"]
        if metadata["deletionGracePeriodSeconds"] or metadata.get("finalizers"):
            return Deletion(record=record, body=record.body, gone=False)
    return Deletion(record=record, body=registry.store.remove(kind, record), gone=True)


def delete_collection(
    registry: Registry,
    kind: Kind,
    options: DeleteOptions,
    *,
    namespace: str = "",
    selector: Selector = EVERYTHING,
    dry_run: bool = False,
) -> list[Deletion]:
    """Delete every object that the selector matches."""
    return [
        delete(registry, kind, options, namespace=record.namespace, name=record.name, dry_run=dry_run)
        for record in registry.store.page(kind, namespace=namespace, selector=selector).records
    ]


def _check_preconditions(kind: Kind, record: Record, options: DeleteOptions) -> None:
    given = options.preconditions
    for what, wanted, actual, since in (
        ("UID", given.uid, record.uid, "deleted and then recreated"),
        ("ResourceVersion", given.resource_version, str(record.version), "modified"),
    ):
        if wanted is not None and wanted != actual:
            why = (
                f"the {what} in the precondition ({wanted}) does not match the {what} in record ({actual}). "
                f"The object might have been {since}"
            )
            # Kubernetes names the kind here and not the resource.
            raise Conflict(
                f'Operation cannot be fulfilled on {kind.qualified_kind} "{record.name}": {why}',
                details={
                    "name": record.name,
                    **({"group": kind.group} if kind.group else {}),
                    "kind": kind.kind,
                },
            )


def _grace_period(pod: Manifest, asked: int | None) -> int:
    """Seconds a pod gets to end; none without a node to end on, or when it has ended."""
    grace = pod["spec"].get("terminationGracePeriodSeconds", 30) if asked is None else asked
    if not pod["spec"].get("nodeName") or pod["status"].get("phase") in _FINISHED:
        return 0
    return grace if grace >= 0 else 1


def _mark_deleted(
    registry: Registry, kind: Kind, record: Record, manifest: Manifest, *, options: DeleteOptions
) -> Record:
    """Write the deletion time, or shorten the grace of a deletion that is under way."""
    metadata = manifest["metadata"]
    grace = _grace_period(manifest, options.grace_period_seconds) if kind is PODS else 0
    if "deletionTimestamp" not in metadata:
        due = datetime.now(UTC) + timedelta(seconds=grace)
        if "generation" in metadata:
            metadata["generation"] += 1
    else:
        current = metadata["deletionGracePeriodSeconds"]
        asked = options.grace_period_seconds
        if not current or asked is None or asked >= current:
            return record
        grace = asked
        due = datetime.fromisoformat(metadata["deletionTimestamp"]) + timedelta(seconds=grace - current)
    metadata["deletionTimestamp"] = timestamp(due)
    metadata["deletionGracePeriodSeconds"] = grace
    return registry.store.put(kind, manifest, previous=record)


def _empty_namespace(registry: Registry, name: str) -> None:
    """Kubernetes' namespace controller does this afterwards; here there is none."""
    for kind in served_kinds():
        if kind.namespaced:
            for record in registry.store.page(kind, namespace=name).records:
                registry.store.remove(kind, record)
