"""The Node object: registered, and its status kept in line with what the plugins announce.

As in kubelet, resources that somebody else wrote into the capacity stay, and their allocatable is derived.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from gpushare.objects import ObjectMeta
from gpushare.quantities import format_units
from kubeapi.backoff import Backoff
from kubeapi.client import MERGE_PATCH, KubeApi
from kubeapi.errors import ApiError
from sandbox.kubelet.devices import Count
from sandbox.kubelet.status import STRATEGIC_PATCH, now

log = logging.getLogger(__name__)


class _NodeStatus(msgspec.Struct, frozen=True):
    capacity: dict[str, str] | None = None
    allocatable: dict[str, str] | None = None


class NodeObject(msgspec.Struct, frozen=True):
    """The node as the API sends it, as far as its kubelet reads it."""

    metadata: ObjectMeta
    status: _NodeStatus | None = None


class NodeRecord:
    """One node's object in the API; also the view that its watch feeds."""

    def __init__(
        self,
        *,
        api: KubeApi,
        name: str,
        labels: Mapping[str, str],
        capacity: Mapping[str, str],
        counts: Callable[[], Mapping[str, Count]],
        sync_interval: float,
    ) -> None:
        self.registered = asyncio.Event()
        self._api = api
        self._name = name
        self._labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **labels}
        self._capacity = dict(capacity)
        self._counts = counts
        self._sync_interval = sync_interval
        self._seen: NodeObject | None = None
        self._wake = asyncio.Event()

    @property
    def path(self) -> str:
        """Where the object lives in the API."""
        return f"/api/v1/nodes/{self._name}"

    # The view that the watch feeds.

    def begin(self) -> None:
        """Nothing to prepare: there is one object."""

    def put(self, obj: NodeObject) -> None:
        """The node changed: look whether our part of it is still right."""
        self._seen = obj
        self._wake.set()

    def end(self) -> None:
        """Nothing to conclude."""

    def drop(self, obj: NodeObject) -> None:
        """The object is gone; kubelet does not make a new one before it starts again."""
        self._seen = None

    # What is written.

    def changed(self) -> None:
        """The plugins' numbers may have changed."""
        self._wake.set()

    async def run(self) -> None:
        """Register, then keep the status right, until cancelled."""
        backoff = Backoff(first=0.1, longest=1.0)
        while True:
            try:
                if not self.registered.is_set():
                    await self._register()
                    self.registered.set()
                await self._sync()
                backoff.reset()
            except ApiError as error:
                log.warning("node not written node=%s reason=%r", self._name, str(error))
                await asyncio.sleep(backoff.next())
                continue
            try:
                async with asyncio.timeout(self._sync_interval):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()

    async def reregister(self, *, recreate: bool = False) -> None:
        """Lose the extended resources and annotations, as a node that registers anew may.

        Either they are zeroed and removed in place, or with `recreate` the object is deleted and made again.
        Raises `ApiError`.
        """
        if recreate:
            (await self._api.request("DELETE", self.path)).checked()
        else:
            node = msgspec.json.decode(
                (await self._api.request("GET", self.path)).checked().body, type=NodeObject
            )
            without = dict.fromkeys(node.metadata.annotations or {})
            await self._patch("", {"metadata": {"annotations": without}})
            capacity = (node.status.capacity if node.status else None) or {}
            zero = {resource: "0" for resource in capacity if "/" in resource}
            await self._patch("/status", {"status": {"capacity": zero, "allocatable": zero}})
        await self._register()
        self.changed()

    async def _register(self) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self._name, "labels": self._labels},
            "status": {
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                "capacity": self._capacity,
                "allocatable": self._capacity,
                **self._conditions(),
            },
        }
        answer = await self._api.request("POST", "/api/v1/nodes", body=body)
        if answer.status != 409:
            answer.checked()
            return
        await self._patch("", {"metadata": {"labels": self._labels}})
        await self._patch("/status", {"status": {"capacity": self._capacity, **self._conditions()}})

    async def _sync(self) -> None:
        if self._seen is None:
            return
        patch = self._patch_for(self._seen)
        if patch:
            await self._patch("/status", {"status": patch})

    def _patch_for(self, node: NodeObject) -> dict[str, Any]:
        """What of capacity and allocatable has to change, as a patch; empty if nothing."""
        had = (node.status.capacity if node.status else None) or {}
        had_allocatable = (node.status.allocatable if node.status else None) or {}
        counts = self._counts()
        capacity = {**had, **self._capacity}
        capacity |= {resource: format_units(count.capacity) for resource, count in counts.items()}
        allocatable = capacity | {
            resource: format_units(count.allocatable) for resource, count in counts.items()
        }
        patch = {
            "capacity": _difference(was=had, now=capacity),
            "allocatable": _difference(was=had_allocatable, now=allocatable),
        }
        return {key: change for key, change in patch.items() if change}

    def _conditions(self) -> dict[str, Any]:
        at = now()
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "kubelet is posting ready status",
            "lastHeartbeatTime": at,
            "lastTransitionTime": at,
        }
        return {"conditions": [ready]}

    async def _patch(self, subresource: str, body: Mapping[str, Any]) -> None:
        kind = STRATEGIC_PATCH if subresource else MERGE_PATCH
        answer = await self._api.request("PATCH", self.path + subresource, body=body, content_type=kind)
        if answer.status != 404:
            answer.checked()


def _difference(*, was: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str | None]:
    gone = dict.fromkeys(key for key in was if key not in now)
    return gone | {key: value for key, value in now.items() if was.get(key) != value}
