"""Keeps the node object right: the cards annotation and the capacities that the plugin owns.

A node that registers anew may lose both, and others may overwrite them: whatever the watch shows to differ
from the cards is written again, and nothing else is written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

import msgspec

from deviceplugin.inventory import Inventory
from gpushare.cards import NodeCards, encode_cards
from gpushare.errors import QuantityError
from gpushare.names import Names
from gpushare.objects import UNDECODABLE, Node
from gpushare.quantities import parse_units
from kubeapi.backoff import Backoff
from kubeapi.client import MERGE_PATCH, KubeApi
from kubeapi.errors import ApiError

log = logging.getLogger(__name__)

NODES = "/api/v1/nodes"

LONGEST_PAUSE = 10.0
"""Seconds until what somebody else overwrote is written again, at the latest."""

_CALM_SECONDS = 30.0
"""Without a write for so long, nobody is overwriting ours: the next one is made at once."""


class NodePublisher:
    """Publishes one node's cards; a `View` for the reflector that watches this node."""

    def __init__(
        self,
        api: KubeApi,
        *,
        node: str,
        names: Names,
        inventory: Inventory,
        capacity: Callable[[NodeCards], Mapping[str, int]],
        seen: Callable[[Node], None] = lambda node: None,
        backoff: Backoff | None = None,
    ) -> None:
        """`capacity` are the node's capacities with these cards, as far as they are the plugin's.

        `seen` is told of every state of the node.
        """
        self.problem: str | None = "nothing published yet"
        """Why the node object may not be right, `None` while it is."""
        self._api = api
        self._path = f"{NODES}/{node}"
        self._name = node
        self._names = names
        self._inventory = inventory
        self._capacity = capacity
        self._seen = seen
        self._backoff = backoff or Backoff(first=0.1, longest=LONGEST_PAUSE)
        self._node: Node | None = None
        self._was_listed = False
        self._listing = False
        self._wake = asyncio.Event()
        self._last_write = float("-inf")

    def wake(self) -> None:
        """Something changed that the node object may have to follow."""
        self._wake.set()

    # The view that the node's watch feeds.

    def begin(self) -> None:
        self._listing = True
        self._node = None

    def put(self, obj: Node) -> None:
        if self._listing or not _is_older(obj, than=self._node):
            self._node = obj
            self._seen(obj)
        self.wake()

    def end(self) -> None:
        self._listing = False
        self._was_listed = True
        self.wake()

    def drop(self, obj: Node) -> None:
        self._node = None
        self.wake()

    # Writing.

    async def run(self) -> None:
        """Compare and write until cancelled; what fails is tried again."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._listing or not self._was_listed or self._inventory.cards is None:
                continue
            if self._node is None:
                self.problem = f"node {self._name} is not known to the API server"
                log.warning("not published node=%s reason='no such node; check --node-name'", self._name)
                continue
            try:
                await self._correct(self._node)
            except (ApiError, *UNDECODABLE) as error:
                delay = self._backoff.next()
                self.problem = str(error)
                log.warning(
                    "not published node=%s retry_in=%.1fs reason=%r", self._name, delay, str(error)[:500]
                )
                await asyncio.sleep(delay)
                self.wake()

    async def _correct(self, node: Node) -> None:
        cards = self._inventory.cards
        assert cards is not None  # `run` looks
        capacity = self._capacity(cards)
        text = encode_cards(cards)
        is_written = False
        if node.annotations.get(self._names.cards) != text:
            await self._patience()
            await self._write(self._path, {"metadata": {"annotations": {self._names.cards: text}}})
            is_written = True
        if any(_units(node, resource) != units for resource, units in capacity.items()):
            if not is_written:
                await self._patience()
            status = {"capacity": {resource: str(units) for resource, units in capacity.items()}}
            await self._write(f"{self._path}/status", {"status": status})
            is_written = True
        if is_written:
            self._last_write = asyncio.get_running_loop().time()
            log.info(
                "published node=%s cards=%d unit=%s capacity=%s",
                self._name,
                len(cards.cards),
                cards.unit,
                ",".join(f"{resource}:{units}" for resource, units in capacity.items()),
            )
        self.problem = None

    async def _patience(self) -> None:
        """Do not fight: somebody who keeps overwriting ours is answered at a slowing pace."""
        if asyncio.get_running_loop().time() - self._last_write > _CALM_SECONDS:
            self._backoff.reset()
        else:
            await asyncio.sleep(self._backoff.next())

    async def _write(self, path: str, patch: dict[str, object]) -> None:
        answer = await self._api.request("PATCH", path, body=patch, content_type=MERGE_PATCH)
        self.put(msgspec.json.decode(answer.checked().body, type=Node))


def _units(node: Node, resource: str) -> int | None:
    try:
        return parse_units(str(node.capacity[resource]))
    except (KeyError, QuantityError):
        return None


def _is_older(node: Node, *, than: Node | None) -> bool:
    """Whether the watch shows a state from before our own write; versions compare as numbers (1.35)."""
    try:
        return than is not None and int(node.metadata.resource_version) < int(than.metadata.resource_version)
    except ValueError:
        return False
