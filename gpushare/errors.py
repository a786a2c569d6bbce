"""Every error of the vocabulary, as one tree.

    GpuShareError
    ├── ResourceNameError   a memory resource whose name Kubernetes would not take
    ├── QuantityError       a text that is not a whole, non-negative Kubernetes quantity
    ├── DemandError         a pod whose request can never be served, whatever the node
    ├── PolicyError         a pod that asks for a placement policy nobody knows
    ├── CardsError          a node annotation (or cards file) that does not describe cards
    ├── AllocationError     a bound pod whose allocation is missing, unreadable or foreign
    │   └── NoAllocationError   … is missing
    └── NoRoomError         a node that cannot take a pod now

The sentences are complete: the HTTP and gRPC sides only pass them on.
"""

from __future__ import annotations


class GpuShareError(Exception):
    """Root of all errors that gpushare raises on purpose; `str(error)` is a sentence for the user."""


_QUOTED = 80  # characters of a foreign text that a sentence repeats


def quoted(value: object) -> str:
    """Return `repr(value)` for a sentence, cut short: annotations may be 256 KiB long."""
    text = repr(value[: _QUOTED + 1] if isinstance(value, str | bytes) else value)
    return text if len(text) <= _QUOTED + 2 else f"{text[:_QUOTED]}…"


class ResourceNameError(GpuShareError):
    """The configured memory resource is not an extended resource's name."""


class QuantityError(GpuShareError):
    """A quantity is malformed, negative or not a whole number of units."""

    def __init__(self, text: object, problem: str) -> None:
        self.text = text
        self.problem = problem
        super().__init__(f"quantity {quoted(text)} {problem}")


class DemandError(GpuShareError):
    """A container's request makes no sense by itself: no node could ever serve it."""

    def __init__(self, container: str, problem: str) -> None:
        self.container = container
        self.problem = problem
        super().__init__(f"container {quoted(container)}: {problem}")


class PolicyError(GpuShareError):
    """A pod's policy annotation names no policy."""


class CardsError(GpuShareError):
    """The description of a node's cards cannot be read. An unreadable value is an error, never zero."""


class AllocationError(GpuShareError):
    """A bound pod's allocation is missing, unreadable, or made for another node."""


class NoAllocationError(AllocationError):
    """A bound pod has no allocation at all: it bypassed the scheduler, or somebody removed it."""


class NoRoomError(GpuShareError):
    """A node cannot take a pod: carries what was asked and what each card has left, in units."""

    def __init__(
        self, *, node: str, asked: tuple[int, ...], free: tuple[tuple[int, int], ...], reason: str
    ) -> None:
        self.node = node
        self.asked = asked
        self.free = free
        self.reason = reason
        per_card = ", ".join(f"card {index}: {units}" for index, units in free) or "no cards"
        wanted = " + ".join(str(units) for units in asked)
        super().__init__(f"node {node} cannot take {wanted} units ({reason}); free per card: {per_card}")
