"""The verbs: create, read, update, patch and delete, with the rules of each kind around the store.

This is Kubernetes' generic registry. It takes and answers objects, not HTTP, so that tests and benches can
use it directly. Creating a pod waits for webhooks; nothing else waits, so every other verb is atomic.
"""

from collections.abc import Callable, Iterable
from typing import Any

from sandbox.apiserver.admission import Admission
from sandbox.apiserver.defaults import add_node_tolerations, apply_defaults, prepare_new_pod
from sandbox.apiserver.errors import AlreadyExists, Cause, Invalid, NotFound
from sandbox.apiserver.history import Record
from sandbox.apiserver.kinds import Kind, Manifest, kind_of
from sandbox.apiserver.metadata import check_address, check_version, new_metadata, next_metadata
from sandbox.apiserver.priorities import BUILT_IN, resolve_priority
from sandbox.apiserver.shapes import decode_manifest
from sandbox.apiserver.store import Store
from sandbox.apiserver.validation import validate_new, validate_update

NAMESPACES = kind_of("namespaces")
PODS = kind_of("pods")
FIRST_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_NAME_TRIES = 8


class Registry:
    """The verbs over one store. Starts with the namespaces and priority classes that every cluster has."""

    def __init__(self, *, store: Store, admission: Admission) -> None:
        self.store = store
        self.admission = admission
        for name in FIRST_NAMESPACES:
            self._insert(NAMESPACES, {"metadata": {"name": name}})
        for name, value in BUILT_IN.items():
            self._insert(kind_of("priorityclasses"), {"metadata": {"name": name}, "value": value})

    def get(self, kind: Kind, *, namespace: str = "", name: str) -> Record:
        """The newest version; raises NotFound."""
        record = self.store.get(kind, namespace=namespace, name=name)
        if record is None:
            raise NotFound.of(kind, name=name)
        return record

    async def create(
        self,
        kind: Kind,
        sent: Any,
        *,
        namespace: str = "",
        dry_run: bool = False,
        warnings: list[str] | None = None,
    ) -> Record:
        """Create an object with Kubernetes' defaults, admission and validation; raises ApiError."""
        manifest = decode_manifest(kind, sent)
        check_address(kind, manifest, namespace=namespace)
        if kind.namespaced and self.store.get(NAMESPACES, namespace="", name=namespace) is None:
            raise NotFound.of(NAMESPACES, name=namespace)
        apply_defaults(kind, manifest)
        if kind.plural == "pods":
            manifest = await self._admit(
                kind,
                manifest,
                namespace=namespace,
                dry_run=dry_run,
                warnings=[] if warnings is None else warnings,
            )
        return self._insert(kind, manifest, dry_run=dry_run)

    async def _admit(
        self, kind: Kind, manifest: Manifest, *, namespace: str, dry_run: bool, warnings: list[str]
    ) -> Manifest:
        resolve_priority(self.store, manifest)
        patched = await self.admission.mutate(
            kind, manifest, namespace=namespace, dry_run=dry_run, warnings=warnings
        )
        if patched is not manifest:
            manifest = decode_manifest(kind, patched)
            check_address(kind, manifest, namespace=namespace)
            apply_defaults(kind, manifest)
        await self.admission.validate(kind, manifest, namespace=namespace, dry_run=dry_run, warnings=warnings)
        return manifest

    def _insert(self, kind: Kind, manifest: Manifest, *, dry_run: bool = False) -> Record:
        apply_defaults(kind, manifest)
        if kind.plural == "pods":
            prepare_new_pod(manifest)
            add_node_tolerations(manifest["spec"])
        elif kind.plural == "deployments":
            manifest["status"] = {}
        sent = manifest["metadata"]
        for _ in range(_NAME_TRIES):
            manifest["metadata"] = new_metadata(kind, sent)
            validate_new(kind, manifest)
            name = manifest["metadata"]["name"]
            namespace = manifest["metadata"].get("namespace", "")
            taken = self.store.get(kind, namespace=namespace, name=name)
            if taken is None:
                break
            if sent.get("name"):
                raise AlreadyExists.of(kind, name=name)
        else:
            raise AlreadyExists.of(kind, name=name)
        manifest = {"metadata": manifest.pop("metadata"), **manifest}
        if dry_run:
            return self.store.record(kind, manifest, version=self.store.version)
        record = self.store.put(kind, manifest, previous=None)
        if kind.capacity is not None and self.store.count(kind) > kind.capacity:
            self.store.remove(kind, next(iter(self.store.records(kind))))
        return record

    def update(
        self,
        kind: Kind,
        change: Callable[[Manifest], Any],
        *,
        namespace: str = "",
        name: str,
        subresource: str = "",
        uid: str = "",
        dry_run: bool = False,
    ) -> Record:
        """Replace an object by what ``change`` makes of the current one; raises ApiError.

        A PUT ignores what it is given, a PATCH starts from it. A ``uid`` is a precondition.
        With the sub-resource ``status`` only the status (and labels and annotations, as in Kubernetes)
        changes; without it the status does not.
        """
        record = self.get(kind, namespace=namespace, name=name)
        old = record.manifest()
        shown = {"kind": kind.kind, "apiVersion": kind.api_version, **record.manifest()}
        if kind.renames:
            shown = {kind.renames.get(field, field): value for field, value in shown.items()}
        new = decode_manifest(kind, change(shown))
        check_address(kind, new, namespace=namespace, name=name)
        sent = new["metadata"]
        version = sent.get("resourceVersion", "")
        if not version and not kind.unconditional_update:
            cause = Cause.invalid(
                field="metadata.resourceVersion", value=0, detail="must be specified for an update"
            )
            raise Invalid.of_resource(kind, name=name, causes=[cause])
        check_version(kind, record, uid=uid, version=version)
        if sent.get("uid", record.uid) != record.uid:
            cause = Cause.invalid(field="metadata.uid", value=sent["uid"], detail="field is immutable")
            raise Invalid.of(kind, name=name, causes=[cause])
        new["metadata"] = next_metadata(old["metadata"], sent)
        if subresource == "status":
            new = {**old, "metadata": new["metadata"], "status": new.get("status", {})}
            if "ownerReferences" in old["metadata"]:
                new["metadata"]["ownerReferences"] = old["metadata"]["ownerReferences"]
            if kind.plural == "pods":
                new["status"].setdefault("qosClass", old["status"].get("qosClass", "BestEffort"))
        elif kind.has_status:
            new.pop("status", None)
            if "status" in old:
                new["status"] = old["status"]
        apply_defaults(kind, new)
        if kind.plural == "pods":
            add_node_tolerations(new["spec"])
        validate_update(kind, old=old, new=new)
        if kind.has_generation and _without_status(old) != _without_status(new):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        return self.replace(kind, record, new, dry_run=dry_run)

    def replace(self, kind: Kind, record: Record, manifest: Manifest, *, dry_run: bool = False) -> Record:
        """Write the next version, unless nothing changed; an object that waited for this write goes."""
        if manifest == record.manifest():
            return record
        manifest = {"metadata": manifest.pop("metadata"), **manifest}
        if dry_run:
            return self.store.record(kind, manifest, version=record.version)
        written = self.store.put(kind, manifest, previous=record)
        metadata = manifest["metadata"]
        if (
            "deletionTimestamp" in metadata
            and not metadata.get("finalizers")
            and not metadata.get("deletionGracePeriodSeconds")
        ):
            self.store.remove(kind, written)
        return written

    def load(self, kind: Kind, manifests: Iterable[Manifest]) -> int:
        """Create many complete objects at once, without defaults or rules: see ``Store.load``."""
        return self.store.load(kind, manifests)


def _without_status(manifest: Manifest) -> Manifest:
    return {field: value for field, value in manifest.items() if field not in ("metadata", "status")}
