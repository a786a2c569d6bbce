"""Others on the same node that hand out the same cards: noticed on the node object, and said.

NVIDIA's own device plugin gives whole cards to pods that ask for `nvidia.com/gpu`. Neither scheduler knows
what the other has promised, so that a pod's share may lie on a card that another pod has to itself.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

from gpushare.errors import QuantityError
from gpushare.objects import Node
from gpushare.quantities import parse_units
from kubeapi.events import ObjectRef, Recorder

log = logging.getLogger(__name__)

REASON = "CardsHandedOutTwice"

# `gpu`, its shared and time-sliced forms, and MIG profiles (NVIDIA's device plugin 0.19).
_RESOURCE = re.compile(r"nvidia\.com/(gpu|mig-.+?)(\.shared)?")


def rivals_of(node: Node) -> dict[str, int]:
    """The resources by which somebody else announces cards of the node, with how many of each."""
    return {
        resource: count
        for resource, quantity in node.capacity.items()
        if _RESOURCE.fullmatch(resource) and (count := _count(quantity)) > 0
    }


class Rivals:
    """Says so once, and again when it changes."""

    def __init__(self, *, events: Recorder) -> None:
        self.seen: Mapping[str, int] = {}
        """What others announce now: nothing on a node that is ours alone."""
        self._events = events

    def look(self, node: Node) -> None:
        """Take over what the node object says."""
        seen = rivals_of(node)
        if seen and seen.keys() != self.seen.keys():
            some = ", ".join(f"{resource}: {count}" for resource, count in sorted(seen.items()))
            sentence = (
                f"the node also announces {some}, and both would hand out the same cards: let only one "
                "device plugin run here, by their DaemonSets' node selectors"
            )
            log.warning("cards handed out twice node=%s resources=%r", node.name, some)
            self._events.record(ObjectRef.of_node(node.name), reason=REASON, message=sentence)
        elif self.seen and not seen:
            log.info("cards are ours alone node=%s", node.name)
        self.seen = seen


def _count(quantity: str | int | float) -> int:
    try:
        return parse_units(str(quantity))
    except QuantityError:
        return 0
