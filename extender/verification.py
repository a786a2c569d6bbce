"""Looks past the watch, where a late watch could give a card twice or keep one for ever.

While this replica was not the active one, another may have bound pods that our watch has not shown yet. So
before the first bind on a node, that node's pods are read once with a consistent list. And a pod that a
relist left in doubt (known by other means than the watch, and not in the list) is asked for by name.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from urllib.parse import quote

import msgspec

from gpushare.bookings import PodRef
from gpushare.ledger import Ledger
from gpushare.objects import UNDECODABLE, Pod
from kubeapi.backoff import Backoff
from kubeapi.client import KubeApi, Response
from kubeapi.errors import ApiError, ApiUnreachable
from kubeapi.listing import Lister

log = logging.getLogger(__name__)

LIVE_PODS = "status.phase!=Succeeded,status.phase!=Failed"
"""Field selector of pods that can hold a card."""

QUIET = 2.0
"""Seconds without a bind after which another replica may have been active: kube-scheduler and client-go's
leases are tried for every 2 s (`retryPeriod`, 1.36), so no two changes of leader fit into less."""

_decoder = msgspec.json.Decoder(Pod)


def pod_path(pod: PodRef) -> str:
    """Where the API server has a pod."""
    return f"/api/v1/namespaces/{quote(pod.namespace, safe='')}/pods/{quote(pod.name, safe='')}"


async def request_until(
    api: KubeApi, method: str, path: str, *, until: float, body: object = None
) -> Response:
    """Send a request to be answered by `until`, a moment of `time.monotonic`; raises `ApiUnreachable`."""
    left = until - time.monotonic()
    if left <= 0:
        raise ApiUnreachable(f"API server {api.host} did not answer in time")
    return await api.request(method, path, body=body, timeout=left)


async def read_pod(api: KubeApi, pod: PodRef, *, until: float) -> Pod | None:
    """The pod by this name as the API server has it now, `None` where there is none.

    `until` is a moment of `time.monotonic`. Raises `ApiError`. Whether the UID is the right one is for the
    caller to see.
    """
    answer = await request_until(api, "GET", pod_path(pod), until=until)
    if answer.status == 404:
        return None
    try:
        return _decoder.decode(answer.checked().body)
    except UNDECODABLE as error:
        raise ApiError(f"pod {pod} cannot be read: {error}") from error


class NodeVerifier:
    """Reads each node's pods once per term of activity, before the first bind on it."""

    def __init__(
        self,
        api: KubeApi,
        *,
        ledger: Ledger,
        view_version: Callable[[], int | None],
        quiet: float = QUIET,
    ) -> None:
        """`view_version` is how far the pods' watch has come, `None` while it is being listed anew."""
        self._api = api
        self._ledger = ledger
        self._view_version = view_version
        self._quiet = quiet
        self._verified: set[str] = set()
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._last = float("-inf")

    def became_active(self) -> None:
        """Another replica may have been active until now: nothing is verified, nor by a read under way."""
        self._verified = set()
        self._under_way = {}

    async def verify(self, node: str, *, timeout: float) -> None:  # noqa: ASYNC109 — the API client's own
        """Make sure that the ledger has what is bound on the node now; raises `ApiError` if it cannot."""
        now = time.monotonic()
        if now - self._last > self._quiet:
            self.became_active()
        self._last = now
        if node not in self._verified:
            verified, under_way = self._verified, self._under_way
            task = under_way.get(node)
            if task is None:
                task = under_way[node] = asyncio.create_task(self._read(node, timeout=timeout))
            try:
                await asyncio.shield(task)
                verified.add(node)
            finally:
                if task.done():
                    under_way.pop(node, None)

    async def _read(self, node: str, *, timeout: float) -> None:  # noqa: ASYNC109
        selectors = {"fieldSelector": f"spec.nodeName={node},{LIVE_PODS}"}
        lister = Lister(self._api, "/api/v1/pods", kind=Pod, selectors=selectors)
        pods: list[Pod] = []
        version = ""
        async for page in lister.pages(timeout=timeout):
            pods += page.items or ()
            version = page.version
        seen = self._view_version()
        # Where the watch has come as far as the list, it knows more: the list may have pods that are gone.
        if seen is None or not version.isdigit() or seen < int(version):
            for pod in pods:
                self._ledger.read_ahead(pod)


class DoubtfulPods:
    """Asks for pods by name until the API server has said whether they are still there."""

    def __init__(self, api: KubeApi, *, ledger: Ledger, backoff: Callable[[], Backoff] = Backoff) -> None:
        self._api = api
        self._ledger = ledger
        self._backoff = backoff
        self._asking: set[asyncio.Task[None]] = set()

    def ask(self, pods: list[PodRef]) -> None:
        """Release those of the pods that are gone, as soon as that is known."""
        for pod in pods:
            task = asyncio.create_task(self._ask(pod))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

    async def close(self) -> None:
        """Stop asking."""
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)

    async def _ask(self, ref: PodRef) -> None:
        backoff = self._backoff()
        while True:
            try:
                pod = await read_pod(self._api, ref, until=time.monotonic() + 5.0)
            except ApiError:
                await asyncio.sleep(backoff.next())
                continue
            if pod is None or pod.metadata.uid != ref.uid or pod.is_terminal:
                log.info("released pod=%s uid=%s reason='gone unseen'", ref, ref.uid)
                self._ledger.remove_pod(ref.uid)
            return
