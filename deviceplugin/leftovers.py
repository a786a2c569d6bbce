"""Memory that pods hold as devices, from before the node came to slots: of the classic plugin, or units mode.

As long as a container holds some, kubelet takes the memory for a plugin's resource and fails every pod that
asks for it, and five minutes after that plugin's end the node looks as if all were well (devicemanager
`isDevicePluginResource`, 1.36). So no card takes new pods until those that hold some are gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable

import msgspec

from deviceplugin.podresources import KubeletSilent, PodResources
from gpushare.cards import Card
from kubeapi.events import ObjectRef, Recorder

log = logging.getLogger(__name__)

REASON = "UnitsStillHeld"
EVERY_SECONDS = 10.0
_PATIENCE_SECONDS = 5.0
_NAMED = 3
"""Pods that the reason names; it stands on every card of the node."""


class Leftovers:
    """Knows which pods hold units. Nobody can get new ones: once none is held, that is the end of it."""

    def __init__(
        self,
        kubelet: PodResources,
        *,
        resource: str,
        node: str,
        events: Recorder,
        changed: Callable[[], None],
        every: float = EVERY_SECONDS,
    ) -> None:
        """`resource` is the memory's; `changed` is told when other pods hold it than before."""
        self.holders: tuple[str, ...] = ()
        """`namespace/name` of the pods that hold units."""
        self._kubelet = kubelet
        self._resource = resource
        self._node = node
        self._events = events
        self._changed = changed
        self._every = every
        self._wake = asyncio.Event()

    @property
    def sentence(self) -> str:
        """Why the cards take no pods."""
        more = f" and {len(self.holders) - _NAMED} more" if len(self.holders) > _NAMED else ""
        return (
            f"pods hold {self._resource} of an earlier device plugin, and until they are gone kubelet fails "
            f"all others that ask for it: {', '.join(self.holders[:_NAMED])}{more}"
        )

    def apply(self, cards: Iterable[Card]) -> tuple[Card, ...]:
        """The cards as they are to be announced: none of them takes pods while units are held."""
        if not self.holders:
            return tuple(cards)
        return tuple(
            msgspec.structs.replace(card, healthy=False, reason=self.sentence) if card.healthy else card
            for card in cards
        )

    def wake(self) -> None:
        """A pod is gone: look again."""
        self._wake.set()

    async def look(self) -> bool:
        """Ask kubelet once; whether it answered."""
        try:
            listed = await self._kubelet.pods(resource=self._resource, timeout=_PATIENCE_SECONDS)
        except KubeletSilent as silence:
            log.warning("kubelet is silent reason=%r", str(silence)[:500])
            return False
        holders = tuple(sorted(pod.key for pod in listed if pod.held))
        if holders != self.holders:
            was, self.holders = self.holders, holders
            if holders:
                log.warning("no card takes pods reason=%r", self.sentence)
                self._events.record(ObjectRef.of_node(self._node), reason=REASON, message=self.sentence)
            else:
                log.info("units of the earlier device plugin are given back, pods=%d", len(was))
            self._changed()
        return True

    async def run(self) -> None:
        """Look again and again until nobody holds any."""
        while not await self.look() or self.holders:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every):
                    await self._wake.wait()
            self._wake.clear()
