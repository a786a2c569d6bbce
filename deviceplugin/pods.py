"""The pods of this node as the API server shows them: the watch's view, and single reads past it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar, cast

import msgspec

from gpushare.objects import UNDECODABLE, Pod, PodStatus
from kubeapi.client import KubeApi, Response
from kubeapi.errors import ApiError, ApiUnreachable

PODS = "/api/v1/pods"
_RETRY_SECONDS = 0.1

A = TypeVar("A")
T = TypeVar("T")


class NodePodStatus(PodStatus, frozen=True, kw_only=True, rename="camel"):
    """What kubelet reports once it has admitted a pod, and not before (1.36)."""

    start_time: str | None = None
    container_statuses: tuple[Any, ...] | None = None
    init_container_statuses: tuple[Any, ...] | None = None


class NodePod(Pod, frozen=True, kw_only=True, dict=True):
    """A pod with kubelet's part of its status."""

    status: NodePodStatus | None = None

    def once(self, work: Callable[[NodePod, A], T], argument: A, *, key: str) -> T:
        """`work(self, argument)`, done once: the object never changes, and every call looks at all pods.

        `key` stands for the argument.
        """
        done: dict[object, Any] = self.__dict__  # type: ignore[assignment]
        if (work, key) not in done:
            done[work, key] = work(self, argument)
        return cast(T, done[work, key])

    @property
    def was_admitted(self) -> bool:
        """Whether kubelet admitted the pod at some time: all of its containers were answered then."""
        status = self.status
        return status is not None and (
            status.phase == "Running"
            or status.start_time is not None
            or bool(status.container_statuses or status.init_container_statuses)
        )


class _PodList(msgspec.Struct, frozen=True):
    items: tuple[NodePod, ...] | None = None


_pod_decoder = msgspec.json.Decoder(NodePod)
_list_decoder = msgspec.json.Decoder(_PodList)


class NodePods:
    """The watch's view, by UID; a `View` for a reflector."""

    def __init__(self, *, changed: Callable[[], None], gone: Callable[[str], None]) -> None:
        """`changed` is called after every change, `gone` with the UID of a pod that left the node."""
        self._changed = changed
        self._gone = gone
        self._pods: dict[str, NodePod] = {}
        self._listed: set[str] = set()

    def all(self) -> tuple[NodePod, ...]:
        """Every pod of the node, finished ones included."""
        return tuple(self._pods.values())

    def begin(self) -> None:
        self._listed = set()

    def put(self, obj: NodePod) -> None:
        uid = obj.metadata.uid
        self._listed.add(uid)
        self._pods.pop(uid, None)  # the latest last: of two pods by one name it is the one that exists
        self._pods[uid] = obj
        self._changed()

    def end(self) -> None:
        for uid in self._pods.keys() - self._listed:
            self._remove(uid)

    def drop(self, obj: NodePod) -> None:
        self._remove(obj.metadata.uid)

    def _remove(self, uid: str) -> None:
        if self._pods.pop(uid, None) is not None:
            self._gone(uid)
            self._changed()


def by_key(pods: Iterable[NodePod]) -> dict[str, NodePod]:
    """The pods by `namespace/name`; of several by one name the last."""
    return {pod.key: pod for pod in pods}


class PodReader(Protocol):
    """Reads pods past the watch."""

    async def read(self, *, namespace: str, name: str, timeout: float) -> NodePod | None:  # noqa: ASYNC109
        """One pod, `None` if there is none; raises `ApiError` after `timeout` seconds at the latest."""

    async def list(self, *, timeout: float) -> tuple[NodePod, ...]:  # noqa: ASYNC109
        """This node's pods, by a consistent read past every cache; raises as `read`."""


class ApiPods:
    """The real side: the API server. What fails at once, as on a connection it has closed, is tried again."""

    def __init__(self, api: KubeApi, *, node: str) -> None:
        self._api = api
        self._query = {"fieldSelector": on_node(node)}

    async def read(self, *, namespace: str, name: str, timeout: float) -> NodePod | None:  # noqa: ASYNC109
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        answer = await self._get(path, query={}, seconds=timeout)
        return None if answer.status == 404 else _decode(_pod_decoder, answer)

    async def list(self, *, timeout: float) -> tuple[NodePod, ...]:  # noqa: ASYNC109
        return _decode(_list_decoder, await self._get(PODS, query=self._query, seconds=timeout)).items or ()

    async def _get(self, path: str, *, query: Mapping[str, str], seconds: float) -> Response:
        clock = asyncio.get_running_loop().time
        end = clock() + seconds
        while True:
            try:
                return await self._api.request("GET", path, query=query, timeout=end - clock())
            except ApiUnreachable:
                if end - clock() < 2 * _RETRY_SECONDS:
                    raise
                await asyncio.sleep(_RETRY_SECONDS)


def _decode(decoder: msgspec.json.Decoder[T], answer: Response) -> T:
    try:
        return decoder.decode(answer.checked().body)
    except UNDECODABLE as error:
        raise ApiError(f"the API server's answer cannot be read: {error}") from error


def on_node(node: str) -> str:
    """The field selector of a node's pods."""
    return f"spec.nodeName={node}"
