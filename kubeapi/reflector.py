"""A local view of one collection, kept up to date: list in pages, then watch.

A watch that ends is taken up where it stopped. When the API server no longer has that version (410), or a
line cannot be understood, the collection is listed anew and the view told which objects are left, so that
a deletion that nobody saw takes effect too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Mapping
from typing import Generic, Protocol, TypeVar

import msgspec

from gpushare.errors import quoted
from gpushare.objects import UNDECODABLE, ObjectMeta
from kubeapi.backoff import Backoff
from kubeapi.client import KubeApi
from kubeapi.errors import ApiError, ApiRefused, ApiUnreachable
from kubeapi.listing import PAGE, Lister

log = logging.getLogger(__name__)


class Versioned(Protocol):
    """Anything with Kubernetes' object metadata."""

    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=Versioned)
S = TypeVar("S", contravariant=True)

IDLE = 150.0
"""Seconds without a line before a watch counts as dead: bookmarks come about once a minute (1.36)."""


class View(Protocol[S]):
    """What a reflector feeds. All calls come from one task, in the API server's order."""

    def begin(self) -> None:
        """A whole, consistent list is about to be asked for; every object in it will be `put`."""

    def put(self, obj: S) -> None:
        """An object as it is now."""

    def end(self) -> None:
        """The list is complete: objects not put since `begin` are gone."""

    def drop(self, obj: S) -> None:
        """An object is gone, or no longer matches the selector."""


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Failure(msgspec.Struct, frozen=True):
    code: int = 0
    reason: str = ""
    message: str = ""


class _Listed(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


class _Gap(Exception):  # noqa: N818 — not an error of anybody's: the sign to list anew
    """The watch cannot be continued from where it stopped."""


class Reflector(Generic[T]):
    """Feeds a `View` from one collection until cancelled."""

    def __init__(
        self,
        api: KubeApi,
        path: str,
        *,
        kind: type[T],
        view: View[T],
        selectors: Mapping[str, str] | None = None,
        page: int = PAGE,
        idle: float = IDLE,
        backoff: Backoff | None = None,
    ) -> None:
        """`path` is the collection (`/api/v1/pods`), `selectors` extra query such as `fieldSelector`."""
        self.path = path
        self.synced = asyncio.Event()
        """Set once the first whole list has been applied; stays set."""
        self.problem: str | None = "not listed yet"
        """Why the view may be behind, `None` while the watch is open."""
        self.lists = 0
        """How many whole lists have been applied."""
        self.heard: float | None = None
        """When the API server last told anything, on `time.monotonic`; `None` before the first list."""
        self._api = api
        self._view = view
        self._selectors = dict(selectors or {})
        self._idle = idle
        self._backoff = backoff or Backoff()
        self._object = msgspec.json.Decoder(kind)
        self._lister = Lister(api, path, kind=kind, selectors=selectors, page=page)
        self._event = msgspec.json.Decoder(_Event)
        self._version: str | None = None
        self._is_interrupted = False

    @property
    def version(self) -> int | None:
        """The resourceVersion up to which the view is complete, `None` while it is listed anew.

        They compare as numbers: guaranteed since Kubernetes 1.35, true of every API server on etcd before.
        """
        try:
            return None if self._version is None else int(self._version)
        except ValueError:
            return None

    async def run(self) -> None:
        """List and watch for ever; every failure is logged, waited out and tried again."""
        while True:
            try:
                if self._version is None:
                    self._version = await self._list_all()
                elif self._is_interrupted:
                    await self._check_continuity(self._version)
                self._is_interrupted = False
                await self._watch(self._version)
            except _Gap as gap:
                self._version = None
                await self._pause(str(gap))
            except ApiError as error:
                self._is_interrupted = isinstance(error, ApiUnreachable)
                if isinstance(error, ApiRefused) and error.status == 410:
                    self._version = None
                await self._pause(str(error))

    async def _list_all(self) -> str:
        """Apply a whole list and return its version. No resourceVersion asked for: a consistent read."""
        self._view.begin()
        version = ""
        async for page in self._lister.pages():
            for obj in page.items or ():
                self._view.put(obj)
            version = page.version
        self._view.end()
        self.lists += 1
        self.heard = time.monotonic()
        self.problem = None
        self.synced.set()
        return version

    async def _check_continuity(self, version: str) -> None:
        """After an interruption: make sure that it is still the same history, and not an older one.

        An API server whose etcd was restored from a backup is behind the version we have seen. A watch from
        there opens all the same, and says nothing until the server's own versions have come that far.
        """
        answer = await self._api.request("GET", self.path, query={**self._selectors, "limit": "1"})
        try:
            now = msgspec.json.decode(answer.checked().body, type=_Listed).metadata.resource_version
        except UNDECODABLE as error:
            raise _Gap(f"a list cannot be read: {error}") from error
        if _is_older(now, than=version):
            raise _Gap(f"the API server has gone back from version {version} to {now}")

    async def _watch(self, version: str) -> None:
        """Apply events that follow `version` until the API server ends the watch."""
        query = {
            **self._selectors,
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(300, 600)),  # as client-go: not all clients at once
        }
        silent = True
        lines = self._api.lines(self.path, query=query, idle=self._idle, opened=self._opened)
        async with contextlib.aclosing(lines):  # a gap leaves it before its end: close the connection then
            async for line in lines:
                self._apply(line)
                self._backoff.reset()
                silent = False
        if silent:
            await self._pause("the watch ended without a line")

    def _opened(self) -> None:
        self.problem = None

    def _apply(self, line: bytes) -> None:
        try:
            event = self._event.decode(line)
            if event.type == "ERROR":
                failure = msgspec.json.decode(event.object, type=_Failure)
                raise _Gap(f"{failure.code} {failure.reason}: {failure.message}")
            obj = self._object.decode(event.object)
        except UNDECODABLE as error:
            raise _Gap(f"a watch event cannot be read: {error}") from error
        if not obj.metadata.resource_version:
            raise _Gap(f"a watch event of type {quoted(event.type)} has no resourceVersion to go on from")
        if self._version and _is_older(obj.metadata.resource_version, than=self._version):
            raise _Gap(f"the watch has gone back from version {self._version}")
        match event.type:
            case "ADDED" | "MODIFIED":
                self._view.put(obj)
            case "DELETED":
                self._view.drop(obj)
            case "BOOKMARK":
                pass
            case _:
                raise _Gap(f"a watch event is of the unknown type {quoted(event.type)}")
        self._version = obj.metadata.resource_version
        self.heard = time.monotonic()

    async def _pause(self, problem: str) -> None:
        self.problem = problem
        delay = self._backoff.next()
        log.warning("retry path=%s in=%.1fs reason=%r", self.path, delay, problem[:500])
        await asyncio.sleep(delay)


def _is_older(version: str, *, than: str) -> bool:
    """Compare resourceVersions as numbers (see `Reflector.version`); what is no number is never older."""
    try:
        return int(version) < int(than)
    except ValueError:
        return False
