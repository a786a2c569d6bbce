"""What the demo knows: the nodes' cards and the pods on them, as the API server tells."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from gpushare.cards import Card, decode_cards
from gpushare.demand import demand_of
from gpushare.names import Names
from gpushare.objects import PodSpec
from kubeapi.backoff import Backoff
from kubeapi.client import KubeApi
from kubeapi.reflector import Reflector
from sandbox.demo.processes import DemoError
from sandbox.scheduler.objects import Collection, Node, Pod

_LOOK_SECONDS = 0.25


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacedPod:
    """A pod that asks for card memory, bound or not, by what its annotations say."""

    namespace: str
    name: str
    node: str
    cards: tuple[int, ...]
    memory: int
    """Units on each of its cards."""
    phase: str
    refusal: str
    """Why it has no node, as its condition says; empty if it has one, or nobody looked yet."""
    annotations: dict[str, str]
    spec: PodSpec

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def is_running(self) -> bool:
        return self.phase == "Running"


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownNode:
    """A node and its cards."""

    name: str
    cards: tuple[Card, ...]
    is_ready: bool
    """Whether kubelet and the plugin have both announced what they announce."""


class Board:
    """Follows the cluster; `changed` is called after every change."""

    def __init__(self, api: KubeApi, *, names: Names, changed: Callable[[], None], alive: Callable[[], None]):
        """`alive` raises when waiting has become pointless."""
        self.names = names
        self._changed = changed
        self._alive = alive
        self._news = asyncio.Event()
        self._nodes: Collection[Node] = Collection(self._note)
        self._pods: Collection[Pod] = Collection(self._note)
        backoffs = [Backoff(first=0.05, longest=0.5) for _ in range(2)]
        self._reflectors = (
            Reflector(api, "/api/v1/nodes", kind=Node, view=self._nodes, backoff=backoffs[0]),
            Reflector(api, "/api/v1/pods", kind=Pod, view=self._pods, backoff=backoffs[1]),
        )

    def watches(self) -> tuple[Reflector[Node], Reflector[Pod]]:
        """To be run by whoever owns the board."""
        return self._reflectors

    def _note(self, before: object, after: object) -> None:
        self._news.set()
        self._changed()

    async def until(self, condition: Callable[[], bool], *, what: str, seconds: float) -> None:
        """Return once the condition holds; raises `DemoError` when it does not within `seconds`."""
        deadline = time.monotonic() + seconds
        while not condition():
            self._alive()
            if time.monotonic() > deadline:
                raise DemoError(f"not within {seconds:.0f} s: {what}")
            self._news.clear()
            try:
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                pass

    def nodes(self) -> list[ShownNode]:
        """Every node that shares cards, by name."""
        shown = []
        for node in sorted(self._nodes.objects.values(), key=lambda node: node.name):
            text = (node.metadata.annotations or {}).get(self.names.cards)
            if text is not None:
                amounts = (node.allocatable.get(name, "0") for name in (self.names.memory, self.names.slot))
                is_ready = all(amount != "0" for amount in amounts)
                shown.append(ShownNode(name=node.name, cards=decode_cards(text).cards, is_ready=is_ready))
        return shown

    def pods(self) -> list[PlacedPod]:
        """Every pod that asks for card memory, by name."""
        pods = (self._placed(pod) for pod in self._pods.objects.values() if pod.asks_for(self.names.memory))
        return sorted(pods, key=lambda pod: pod.key)

    def pod(self, name: str) -> PlacedPod | None:
        """One of them."""
        return next((pod for pod in self.pods() if pod.name == name), None)

    def _placed(self, pod: Pod) -> PlacedPod:
        annotations = pod.metadata.annotations or {}
        indices = annotations.get(self.names.index, "")
        spec = msgspec.convert(pod.spec, PodSpec)
        conditions = pod.status.get("conditions") or ()
        refusals = [
            condition.get("message", "")
            for condition in conditions
            if (condition["type"], condition["status"]) == ("PodScheduled", "False")
        ]
        return PlacedPod(
            namespace=pod.metadata.namespace,
            name=pod.metadata.name,
            node=pod.node_name,
            cards=tuple(int(index) for index in indices.split(",") if index),
            memory=int(annotations.get(self.names.pod_memory, "0").partition(",")[0]),
            phase=pod.status.get("phase", ""),
            refusal="".join(refusals),
            annotations=annotations,
            spec=spec,
        )

    def free(self, node: str) -> tuple[int, ...]:
        """What is left of each card of a node."""
        cards = next((shown.cards for shown in self.nodes() if shown.name == node), ())
        on_node = [pod for pod in self.pods() if pod.node == node]
        return tuple(
            card.memory - sum(pod.memory for pod in on_node if card.index in pod.cards) for card in cards
        )

    def asked(self, pod: PlacedPod) -> tuple[int, ...]:
        """What a pod needs of each of its cards, by its spec."""
        demand = demand_of(pod.spec, self.names)
        return tuple(share.memory for share in demand.cards) if demand else ()
