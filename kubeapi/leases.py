"""Leader election over a Lease (coordination.k8s.io/v1), as Kubernetes' own components do it.

At most one replica leads at any instant. A leader counts its right from the moment it *asked* for the
last renewal that was granted, and gives up `renew_deadline` after it; another takes the lease over
`duration` after it *saw* the last renewal. The first is always the earlier of the two, whatever gets lost or
held up in between, and no clock is compared with another's: the times written in the Lease are for people.

`kubernetes.aio.leaderelection` is not used. It reads the wall clock, lets one hanging request (no timeout)
outlive the lease, ends on the first connection error, and does not release.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from gpushare.objects import UNDECODABLE
from kubeapi.client import KubeApi
from kubeapi.errors import ApiError

log = logging.getLogger(__name__)

JITTER = 1.2
"""How much longer than `retry` a standby may wait at most: client-go's JitterFactor (1.36)."""

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseTiming:
    """Seconds; the defaults are those of kube-scheduler (1.36)."""

    duration: float = 15.0
    """How long a standby waits after the last renewal that it saw."""
    renew_deadline: float = 10.0
    """How long a leader leads after the last renewal that it was granted."""
    retry: float = 2.0
    """Between two attempts."""

    def __post_init__(self) -> None:
        if not self.duration > self.renew_deadline > JITTER * self.retry > 0:
            raise ValueError(f"duration > renew_deadline > {JITTER} × retry > 0 does not hold: {self}")


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None


def boot_time() -> float:
    """Seconds on a clock that nobody sets and that goes on while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def new_identity() -> str:
    """A holder's name that no other process has ever had; it starts with the host's, which is the pod's."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


def pod_namespace(folder: Path = SERVICE_ACCOUNT) -> str:
    """The namespace of the pod this runs in, `kube-system` outside of one."""
    try:
        return (folder / "namespace").read_text().strip() or "kube-system"
    except OSError:
        return "kube-system"


class Elector:
    """One candidate. `term` says whether it leads, now: it needs no task to be told that it does not."""

    def __init__(
        self,
        api: KubeApi,
        *,
        name: str,
        namespace: str,
        identity: str,
        timing: LeaseTiming | None = None,
        clock: Callable[[], float] = boot_time,
    ) -> None:
        """`api` should serve nothing else: a renewal must not queue behind other requests."""
        self.identity = identity
        self.holder = ""
        """Who held the lease when it was last seen, empty for nobody."""
        self._api = api
        self._name = name
        self._namespace = namespace
        self._timing = timing or LeaseTiming()
        self._clock = clock
        self._terms = 0
        self._leads_until = -math.inf
        self._seen = _Spec()
        self._free_at = -math.inf  # when the lease, as last seen, may be taken over

    @property
    def term(self) -> int | None:
        """A number that stays the same while it leads without a break, `None` while it does not lead."""
        return self._terms if self._clock() < self._leads_until else None

    @property
    def problem(self) -> str | None:
        """Why it does not lead, `None` while it does."""
        if self.term is not None:
            return None
        if self.holder == self.identity:
            return f"not the leader: lease {self._lease} could not be renewed"
        return f"not the leader: {self.holder or 'nobody'} holds lease {self._lease}"

    async def run(self, *, elected: Callable[[], None]) -> None:
        """Try to lead for ever; `elected` is called whenever a term begins, before anybody can know of it."""
        while True:
            before = self.term
            try:
                await self._attempt(elected)
            except ApiError as error:
                log.warning("lease=%s leads=%s problem=%r", self._lease, self.term is not None, str(error))
            if before is not None and self.term is None:
                log.warning("lost lease=%s holder=%s", self._lease, self.holder or "none")
            spread = 1.0 if self.term is not None else random.uniform(1.0, 1.0 + JITTER)
            await asyncio.sleep(self._timing.retry * spread)

    async def release(self) -> None:
        """Lead no more, and let another begin at once: when `run` has ended and no write is under way."""
        self._leads_until = -math.inf
        try:
            lease = await self._read()
            if lease is None or self.holder != self.identity:
                return
            # What client-go (1.36) leaves behind: nobody, for a second.
            await self._write(lease, holder="", seconds=1)
        except ApiError as error:
            log.warning("lease=%s not released, it will expire: %s", self._lease, error)
        else:
            self.holder = ""
            log.info("released lease=%s", self._lease)

    async def _attempt(self, elected: Callable[[], None]) -> None:
        lease = await self._read()
        if self.holder not in ("", self.identity) and self._clock() < self._free_at:
            if lease is not None:
                self._leads_until = -math.inf  # it has been taken: by hand, while it was ours
            return  # also where it was deleted: its holder may not know that yet
        asked = self._clock()
        await self._write(lease, holder=self.identity, seconds=math.ceil(self._timing.duration))
        self.holder = self.identity
        self._renewed(asked, elected)

    def _renewed(self, asked: float, elected: Callable[[], None]) -> None:
        begins = self.term is None
        self._leads_until = asked + self._timing.renew_deadline
        if begins and self._clock() < self._leads_until:
            self._terms += 1
            log.info("leads lease=%s identity=%s", self._lease, self.identity)
            elected()

    async def _read(self) -> dict[str, Any] | None:
        """The Lease as it is, `None` where there is none; notes whose it is and until when."""
        answer = await self._request("GET", f"{self._collection}/{self._name}")
        if answer.status == 404:
            return None
        lease, spec = _decode(answer.checked().body)
        if spec != self._seen:
            self._seen = spec
            self.holder = spec.holder_identity or ""
            self._free_at = self._clock() + (spec.lease_duration_seconds or self._timing.duration)
        return lease

    async def _write(self, lease: dict[str, Any] | None, *, holder: str, seconds: int) -> None:
        """Create the Lease, or replace it if it is still as it was read. Raises `ApiError`."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        seen = self._seen if lease else _Spec()
        goes_on = seen.holder_identity == holder
        spec = {
            "holderIdentity": holder,
            "leaseDurationSeconds": seconds,
            "acquireTime": (seen.acquire_time if goes_on else None) or now,
            "renewTime": now,
            "leaseTransitions": (seen.lease_transitions or 0)
            + (1 if lease and holder and not goes_on else 0),
        }
        if lease is None:
            metadata = {"name": self._name, "namespace": self._namespace}
            body = {"apiVersion": _API, "kind": "Lease", "metadata": metadata, "spec": spec}
            answer = await self._request("POST", self._collection, body)
        else:  # with the resourceVersion that was read: refused if anybody wrote in between
            body = {**lease, "spec": {**(lease.get("spec") or {}), **spec}}
            answer = await self._request("PUT", f"{self._collection}/{self._name}", body)
        _, self._seen = _decode(answer.checked().body)

    async def _request(self, method: str, path: str, body: object = None) -> Any:
        # As kube-scheduler's client for leases (1.36): two tries before the deadline.
        limit = self._timing.renew_deadline / 2
        return await self._api.request(method, path, body=body, timeout=limit)

    @property
    def _collection(self) -> str:
        return f"/apis/{_API}/namespaces/{self._namespace}/leases"

    @property
    def _lease(self) -> str:
        return f"{self._namespace}/{self._name}"


_API = "coordination.k8s.io/v1"


def _decode(body: bytes) -> tuple[dict[str, Any], _Spec]:
    try:
        lease = msgspec.json.decode(body, type=dict[str, Any])
        return lease, msgspec.convert(lease.get("spec") or {}, _Spec)
    except UNDECODABLE as error:
        raise ApiError(f"the lease cannot be read: {error}") from error
