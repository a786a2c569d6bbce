"""Others on the same node that hand out the same cards: noticed on the node object, and said."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from gpushare.objects import Node
from gpushare.rivals import rivals_of
from kubeapi.events import ObjectRef, Recorder

log = logging.getLogger(__name__)

REASON = "CardsHandedOutTwice"


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
