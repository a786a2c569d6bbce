"""What changed in a collection, bounded: watches read it forwards, paged lists read it backwards.

A watch holds no queue of its own. It remembers how far it has read, so that a frozen or slow client costs
nothing, and an event is turned into bytes once, whoever reads it.
"""

import asyncio
import bisect
from typing import Any

import msgspec

from sandbox.apiserver.errors import Expired
from sandbox.apiserver.kinds import Kind, Manifest
from sandbox.apiserver.selectors import Subject

# The list is cut in blocks: removing one change at a time would move the whole list each time.
_TRIM_SHARE = 4


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One version of an object. The body is JSON text, so nobody can change what the history holds."""

    namespace: str
    name: str
    uid: str
    version: int
    body: bytes
    """The object without ``kind`` and ``apiVersion``, as lists show it."""
    subject: Subject

    @property
    def key(self) -> str:
        """Place in the collection; the order of etcd."""
        return f"{self.namespace}/{self.name}"

    def manifest(self) -> Manifest:
        """A fresh copy of the object, without ``kind`` and ``apiVersion``."""
        decoded: Manifest = msgspec.json.decode(self.body)
        return decoded


def present(kind: Kind, body: bytes) -> bytes:
    """The object as a single answer shows it: with ``kind`` and ``apiVersion``, in the group's fields."""
    head = f'{{"kind":"{kind.kind}","apiVersion":"{kind.api_version}",'.encode()
    return head + list_item(kind, body)[1:]


def list_item(kind: Kind, body: bytes) -> bytes:
    """The object as a list shows it."""
    if not kind.renames:
        return body
    manifest: Manifest = msgspec.json.decode(body)
    return msgspec.json.encode({kind.renames.get(name, name): value for name, value in manifest.items()})


class Change:
    """One write: created (no previous), replaced, or removed (no record)."""

    __slots__ = ("_gone", "_lines", "previous", "record", "version")

    def __init__(self, *, version: int, record: Record | None, previous: Record | None) -> None:
        self.version = version
        self.record = record
        self.previous = previous
        self._gone: bytes | None = None
        self._lines: dict[tuple[str, str], bytes] = {}

    @property
    def key(self) -> str:
        """Place of the object in the collection."""
        subject = self.record or self.previous
        assert subject is not None
        return subject.key

    @property
    def gone(self) -> bytes:
        """The last state before the change, at the version of the change: what DELETED events carry."""
        if self._gone is None:
            assert self.previous is not None
            self._gone = at_version(self.previous.manifest(), self.version)
        return self._gone

    def line(self, kind: Kind, event: str) -> bytes:
        """The watch event as one line of JSON."""
        slot = (kind.group, event)
        line = self._lines.get(slot)
        if line is None:
            body = self.gone if event == "DELETED" or self.record is None else self.record.body
            line = self._lines[slot] = event_line(event, present(kind, body))
        return line


def at_version(manifest: Manifest, version: int) -> bytes:
    """The object's text with another ``resourceVersion``."""
    manifest["metadata"]["resourceVersion"] = str(version)
    return msgspec.json.encode(manifest)


def event_line(event: str, body: bytes | dict[str, Any]) -> bytes:
    """One watch event."""
    text = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return b'{"type":"' + event.encode() + b'","object":' + text + b"}\n"


class History:
    """The last changes of one collection."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._changes: list[Change] = []
        self._dropped = 0
        self._wakeups: set[asyncio.Event] = set()
        self.compacted = 0
        """Changes up to this version are gone."""

    def append(self, change: Change) -> None:
        """Add the newest change and wake whoever waits."""
        self._changes.append(change)
        if len(self._changes) > self._limit + self._limit // _TRIM_SHARE:
            self._drop(len(self._changes) - self._limit)
        self.wake()

    def expire(self, *, version: int) -> None:
        """Forget everything up to now: the next read of an older version is refused."""
        self._drop(len(self._changes))
        self.compacted = max(self.compacted, version)
        self.wake()

    def wake(self) -> None:
        """Make every watch look again."""
        for wakeup in self._wakeups:
            wakeup.set()

    def subscribe(self) -> asyncio.Event:
        """An event that is set when there is something to look at; give it back with ``unsubscribe``."""
        wakeup = asyncio.Event()
        self._wakeups.add(wakeup)
        return wakeup

    def unsubscribe(self, wakeup: asyncio.Event) -> None:
        """Stop waking it."""
        self._wakeups.discard(wakeup)

    def position_after(self, version: int) -> int:
        """Where to start reading the changes after a version; raises Expired if some are gone."""
        if version < self.compacted:
            raise Expired.version(asked=version, oldest=self.compacted)
        return self._dropped + bisect.bisect_right(self._changes, version, key=lambda change: change.version)

    def read(self, position: int) -> list[Change]:
        """The changes from a position on; raises Expired if some are gone."""
        if position < self._dropped:
            raise Expired(f"the watch fell behind: {self._dropped - position} changes are gone")
        return self._changes[position - self._dropped :]

    def undo(self, version: int) -> dict[str, Record | None]:
        """What stood at a version under each key that changed since; raises Expired if that is gone."""
        changes = self.read(self.position_after(version))
        return {change.key: change.previous for change in reversed(changes)}

    def _drop(self, count: int) -> None:
        if count:
            self.compacted = self._changes[count - 1].version
            del self._changes[:count]
            self._dropped += count
