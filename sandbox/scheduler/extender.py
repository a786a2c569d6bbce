"""kube-scheduler's side of an extender: what it sends, and what it makes of the answers.

The recordings of a real kube-scheduler 1.36 hold this module to the same keys, nulls and headers. Where the
real one is harsh so is this: no retry, only a 200 has a body, and one unknown name spoils the whole answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

import aiohttp
import msgspec

from gpushare.names import DEFAULT_MEMORY_RESOURCE
from gpushare.objects import UNDECODABLE
from sandbox.scheduler.objects import Node, Pod

TIMEOUT_SECONDS = 5.0
"""kube-scheduler's default for one extender call (1.36)."""
IDLE_SECONDS = 90.0
"""How long Go keeps an idle connection (net/http's default transport)."""
SCORE_SCALE = 10
"""An extender scores from 0 to 10 and a plugin from 0 to 100: MaxNodeScore / MaxExtenderPriority (1.36)."""


_T = TypeVar("_T")


class ExtenderError(Exception):
    """An extender call that failed, in the words in which kube-scheduler reports it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExtenderSettings:
    """One entry of `extenders` in a KubeSchedulerConfiguration; all verbs are configured, not ignorable."""

    url: str
    """`urlPrefix`: the verbs' names are added to it."""
    managed_resource: str = DEFAULT_MEMORY_RESOURCE
    """Only pods that name this resource are shown to the extender."""
    weight: int = 1
    node_cache_capable: bool = True
    """Send the nodes' names rather than whole nodes."""
    timeout: float = TIMEOUT_SECONDS


@dataclass(frozen=True, kw_only=True, slots=True)
class Filtered:
    """The answer to filter: who is left, and why the others are not."""

    nodes: Sequence[Node]
    reasons: Mapping[str, str]


class _Names(msgspec.Struct, frozen=True):
    name: str


class _NamedNode(msgspec.Struct, frozen=True):
    metadata: _Names


class _NodeList(msgspec.Struct, frozen=True):
    items: list[_NamedNode] | None = None


class _FilterResult(msgspec.Struct, frozen=True, rename="pascal"):
    nodes: _NodeList | None = None
    node_names: list[str] | None = None
    failed_nodes: dict[str, str] | None = None
    failed_and_unresolvable_nodes: dict[str, str] | None = None
    error: str = ""


class _HostPriority(msgspec.Struct, frozen=True, rename="pascal"):
    host: str = ""
    score: int = 0


class _BindingResult(msgspec.Struct, frozen=True, rename="pascal"):
    error: str = ""


def extender_args(pod: Pod, *, nodes: Sequence[Node], node_cache_capable: bool) -> dict[str, Any]:
    """The body of filter and prioritize: one of the two lists is null."""
    return {
        "Pod": pod,
        "Nodes": None if node_cache_capable else {"metadata": {}, "items": nodes},
        "NodeNames": [node.name for node in nodes] if node_cache_capable else None,
    }


def binding_args(pod: Pod, *, node: str) -> dict[str, str]:
    """The body of bind."""
    return {
        "PodName": pod.metadata.name,
        "PodNamespace": pod.metadata.namespace,
        "PodUID": pod.uid,
        "Node": node,
    }


class ExtenderClient:
    """The calls. Use it as an async context manager."""

    def __init__(self, settings: ExtenderSettings) -> None:
        self.settings = settings
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> ExtenderClient:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(keepalive_timeout=IDLE_SECONDS, limit=0),
            headers={"User-Agent": "Go-http-client/1.1", "Accept-Encoding": "gzip"},
            skip_auto_headers=["Accept"],
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    def is_interested(self, pod: Pod) -> bool:
        """Whether the pod is shown to this extender at all."""
        return pod.asks_for(self.settings.managed_resource)

    async def filter(self, pod: Pod, nodes: Sequence[Node]) -> Filtered:
        """Which of the nodes can take the pod; raises `ExtenderError`."""
        result = await self._send("filter", self._args(pod, nodes), kind=_FilterResult)
        if result.error:
            raise ExtenderError(result.error)
        if self.settings.node_cache_capable:
            answered = result.node_names
        else:
            answered = [node.metadata.name for node in (result.nodes.items or ())] if result.nodes else None
        asked = {node.name: node for node in nodes}
        for name in answered or ():
            if name not in asked:
                raise ExtenderError(
                    f'extender "{self.settings.url}" claims a filtered node "{name}" '
                    f"which is not found in the input node list"
                )
        return Filtered(
            nodes=[asked[name] for name in answered or ()],
            reasons=(result.failed_nodes or {}) | (result.failed_and_unresolvable_nodes or {}),
        )

    async def prioritize(self, pod: Pod, nodes: Sequence[Node]) -> Mapping[str, int]:
        """What the extender adds to each node's score; raises `ExtenderError`."""
        result = await self._send("prioritize", self._args(pod, nodes), kind=list[_HostPriority])
        return {entry.host: entry.score * self.settings.weight * SCORE_SCALE for entry in result}

    async def bind(self, pod: Pod, *, node: str) -> None:
        """Have the extender bind the pod; raises `ExtenderError`."""
        result = await self._send("bind", binding_args(pod, node=node), kind=_BindingResult)
        if result.error:
            raise ExtenderError(result.error)

    def _args(self, pod: Pod, nodes: Sequence[Node]) -> dict[str, Any]:
        return extender_args(pod, nodes=nodes, node_cache_capable=self.settings.node_cache_capable)

    async def _send(self, verb: str, args: object, *, kind: type[_T]) -> _T:
        assert self._session is not None, "the client is not open"
        url = f"{self.settings.url.rstrip('/')}/{verb}"
        try:
            async with self._session.post(
                url,
                data=msgspec.json.encode(args),
                headers={"Content-Type": "application/json"},
                timeout=aiohttp.ClientTimeout(total=self.settings.timeout),
            ) as answer:
                body = await answer.read()
        except TimeoutError as error:
            raise ExtenderError(f'Post "{url}": context deadline exceeded') from error
        except (aiohttp.ClientError, OSError) as error:
            raise ExtenderError(f'Post "{url}": {error}') from error
        if answer.status != 200:
            raise ExtenderError(f"failed {verb} with extender at URL {url}, code {answer.status}")
        try:
            return msgspec.json.decode(body, type=kind)
        except UNDECODABLE as error:
            raise ExtenderError(f"the extender's answer to {verb} cannot be read: {error}") from error
