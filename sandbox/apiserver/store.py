"""The objects, their versions and their history: what etcd and the watch cache are to Kubernetes.

Knows no rules of any kind. One counter numbers every write in every collection. All of it belongs to one
event loop and nothing here waits, so a write is atomic by construction.
"""

import bisect
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from uuid import uuid4

import msgspec

from sandbox.apiserver.errors import Timeout
from sandbox.apiserver.history import Change, History, Record
from sandbox.apiserver.kinds import Kind, Manifest, served_kinds
from sandbox.apiserver.selectors import EVERYTHING, Selector, Subject

HISTORY_LIMIT = 20_000

_INDEXED = "spec.nodeName"  # kube-apiserver keeps an index of pods by it, too (1.36)


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a list, all of it from one version."""

    records: Sequence[Record]
    version: int
    next_key: str | None
    """Where the next page starts; None on the last one."""
    remaining: int | None
    """Objects after this page; unknown when a selector is in force."""


class _Collection:
    def __init__(self, *, history_limit: int) -> None:
        self.records: dict[str, Record] = {}
        self.keys: list[str] = []
        self.on_node: dict[str, set[str]] = {}
        self.history = History(limit=history_limit)

    def place(self, record: Record, *, previous: Record | None) -> None:
        """Take a record in, in place of `previous`."""
        if previous is not None:
            self.displace(previous)
        self.records[record.key] = record
        if node := record.subject.fields.get(_INDEXED):
            self.on_node.setdefault(node, set()).add(record.key)

    def displace(self, record: Record) -> None:
        """Forget a record."""
        del self.records[record.key]
        if node := record.subject.fields.get(_INDEXED):
            self.on_node[node].discard(record.key)

    def candidates(self, selector: Selector) -> list[str]:
        """The keys of records that a selector can match, in order."""
        node = selector.equal.get(_INDEXED)
        return sorted(self.on_node.get(node, ())) if node else self.keys


def timestamp(moment: datetime | None = None) -> str:
    """Now, or a moment, as Kubernetes writes times: UTC in whole seconds."""
    return (moment or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


class Store:
    """Collections of immutable records under one version counter."""

    def __init__(self, *, history_limit: int = HISTORY_LIMIT) -> None:
        self.version = 1
        self._collections = {
            kind.collection: _Collection(history_limit=history_limit) for kind in served_kinds()
        }

    def history(self, kind: Kind) -> History:
        """The changes of a kind's collection."""
        return self._collections[kind.collection].history

    def get(self, kind: Kind, *, namespace: str, name: str) -> Record | None:
        """The newest version of an object."""
        return self._collections[kind.collection].records.get(f"{namespace}/{name}")

    def records(self, kind: Kind) -> Iterable[Record]:
        """Every object of a kind, oldest first."""
        return self._collections[kind.collection].records.values()

    def count(self, kind: Kind) -> int:
        """How many objects of a kind there are."""
        return len(self._collections[kind.collection].records)

    def put(self, kind: Kind, manifest: Manifest, *, previous: Record | None) -> Record:
        """Write the next version of an object; takes the manifest over, without kind and apiVersion."""
        collection = self._collections[kind.collection]
        self.version += 1
        record = self.record(kind, manifest, version=self.version)
        if previous is None:
            bisect.insort(collection.keys, record.key)
        collection.place(record, previous=previous)
        collection.history.append(Change(version=self.version, record=record, previous=previous))
        return record

    def remove(self, kind: Kind, record: Record) -> bytes:
        """Take an object away; answers its last state, as the DELETED event shows it."""
        collection = self._collections[kind.collection]
        self.version += 1
        collection.displace(record)
        del collection.keys[bisect.bisect_left(collection.keys, record.key)]
        change = Change(version=self.version, record=None, previous=record)
        collection.history.append(change)
        return change.gone

    def load(self, kind: Kind, manifests: Iterable[Manifest]) -> int:
        """Create many complete objects at once, with no rule applied: for benches. Answers how many.

        Gives each what only a server can (uid, version, creation time) unless it brings its own uid;
        the names must be new. Takes the manifests over.
        """
        collection = self._collections[kind.collection]
        created = timestamp()
        before = len(collection.records)
        for manifest in manifests:
            self.version += 1
            manifest.pop("kind", None)
            manifest.pop("apiVersion", None)
            metadata = manifest["metadata"]
            metadata.setdefault("uid", str(uuid4()))
            metadata.setdefault("creationTimestamp", created)
            if kind.namespaced:
                metadata.setdefault("namespace", "default")
            record = self.record(kind, manifest, version=self.version)
            collection.place(record, previous=None)
            collection.history.append(Change(version=self.version, record=record, previous=None))
        collection.keys = sorted(collection.records)
        return len(collection.records) - before

    def record(self, kind: Kind, manifest: Manifest, *, version: int) -> Record:
        """The immutable form of an object at a version."""
        metadata = manifest["metadata"]
        metadata["resourceVersion"] = str(version)
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        fields = {"metadata.name": name, "metadata.namespace": namespace}
        for path in kind.selectable:
            if text := _field_text(manifest, path):
                fields[path] = text
        return Record(
            namespace=namespace,
            name=name,
            uid=metadata["uid"],
            version=version,
            body=msgspec.json.encode(manifest),
            subject=Subject(labels=metadata.get("labels") or {}, fields=fields),
        )

    def page(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        selector: Selector = EVERYTHING,
        version: int | None = None,
        start: str = "",
        limit: int = 0,
    ) -> Page:
        """List a collection in order of keys, as it stands or as it stood at a version.

        Raises Expired when that version is gone and Timeout when it has not been reached.
        """
        collection = self._collections[kind.collection]
        if version is None:
            version = self.version
        elif version > self.version:
            raise Timeout.future_version(asked=version, current=self.version)
        then = collection.history.undo(version) if version < self.version else {}
        first, last = (f"{namespace}/", f"{namespace}0") if namespace else ("", "\U0010ffff")
        first = max(first, start)
        keys = collection.keys if then else collection.candidates(selector)
        keys = keys[bisect.bisect_left(keys, first) : bisect.bisect_left(keys, last)]
        if then:
            keys = sorted({*keys, *(key for key in then if first <= key < last)})
            keys = [key for key in keys if then.get(key, collection.records.get(key)) is not None]
        found: list[Record] = []
        for index, key in enumerate(keys):
            record = then[key] if key in then else collection.records[key]
            if record is not None and selector.matches(record.subject):
                found.append(record)
                if len(found) == limit and index + 1 < len(keys):
                    remaining = len(keys) - index - 1 if selector.selects_all else None
                    return Page(records=found, version=version, next_key=key + "\0", remaining=remaining)
        return Page(records=found, version=version, next_key=None, remaining=None)

    def expire_history(self) -> None:
        """Forget every change up to now: watches and lists from older versions answer 410."""
        for collection in self._collections.values():
            collection.history.expire(version=self.version)

    def wake_watches(self) -> None:
        """Make every watch look again."""
        for collection in self._collections.values():
            collection.history.wake()


def _field_text(manifest: Manifest, path: str) -> str:
    """A selectable field as text; ``""`` when absent."""
    if path == "spec.unschedulable":
        return "true" if manifest.get("spec", {}).get("unschedulable") else "false"
    if path == "spec.hostNetwork":
        return "true" if manifest.get("spec", {}).get("hostNetwork") else "false"
    value: object = manifest
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    if path == "source" and isinstance(value, dict):  # Kubernetes selects events by the source's component
        value = value.get("component") or manifest.get("reportingComponent")
    return value if isinstance(value, str) else ""
