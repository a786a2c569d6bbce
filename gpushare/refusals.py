"""Why a node cannot take a pod.

kube-scheduler counts equal texts over all nodes and prints the counts in the pod's event, so the texts are
a small fixed set without numbers. Only a node that is closed because of one pod names that pod.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """The fixed texts, complete for an operator who reads `kubectl describe pod`."""

    NO_ROOM = "no single GPU card has enough memory left"
    TOO_FEW_CARDS = "not enough GPU cards with enough memory left"
    NO_SLOT = "GPU cards with enough memory left have no slot left"
    TOO_LARGE = "GPU memory request is larger than any card of the node"
    MORE_CARDS_THAN_NODE = "request needs more or larger GPU cards than the node has"
    TOO_FEW_SLOTS = "pod has more containers on one GPU card than a card of the node has slots"
    NOT_SHARED = "node shares no GPU cards"
    UNHEALTHY = "GPU cards large enough are not healthy"
    UNIT_MISMATCH = "node counts GPU memory in another unit than the scheduler"
    UNREADABLE_CARDS = "node publishes unreadable GPU cards"
    UNKNOWN_NODE = "node is not known to the GPU scheduler yet"
    CLOSED = "node takes no GPU pods until one of its pods is gone:"


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """A node's answer to a demand it cannot take."""

    reason: Reason
    unresolvable: bool = False
    """Whether no other pod's going could help: kube-scheduler then looks for no victims here."""
    detail: str = ""
    """Which pod closes the node and what is wrong with it, or what is unreadable about the cards."""

    def __str__(self) -> str:
        """The text for kube-scheduler."""
        return f"{self.reason} {self.detail}" if self.reason is Reason.CLOSED else str(self.reason)

    def explain(self) -> str:
        """The text for somebody who looks at this one node."""
        return (
            str(self) if self.reason is Reason.CLOSED or not self.detail else f"{self.reason}: {self.detail}"
        )
