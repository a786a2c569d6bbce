"""What needs saying besides the tables: closed nodes, pods whose card nobody knows, pods that wait."""

from __future__ import annotations

from collections.abc import Iterator

from gpushare.inspection import InspectedNode, InspectedPod, Inspection, UnreadablePod, WaitingPod
from inspector.tabwriter import printable, row

MOST_NOTES = 10
"""Notes beside the classic table: those who look for more ask for `-d` or `-o wide`."""


def notes(inspection: Inspection) -> list[str]:
    """What the classic table cannot say, a line each, for standard error."""
    found = [*_closed(inspection), *_foreign(inspection)]
    if not inspection.nodes:
        found.append(f"no node shares cards as {inspection.resource}")
    if len(found) > MOST_NOTES:
        found = [*found[:MOST_NOTES], f"and {len(found) - MOST_NOTES} more: see -o wide"]
    waiting = len(inspection.waiting)
    if waiting:
        found.append(
            f"{'1 pod waits' if waiting == 1 else f'{waiting} pods wait'} for GPU memory: -d says why"
        )
    return found


def state(pod: InspectedPod, *, is_missing: bool = False) -> str:
    """What has become of a pod that has a card: one of the words in `--help`."""
    if is_missing:
        return "MissingCard"
    if pod.standing == "reserved":
        return "Binding"
    return "Assigned" if pod.assigned else "WaitingForKubelet"


def state_without_card(pod: UnreadablePod) -> str:
    """The same for one whose card nobody can tell."""
    return "NoAllocation" if pod.state == "no_allocation" else "UnreadableAllocation"


def sections(inspection: Inspection) -> Iterator[str]:
    """Lines for `inspector.tabwriter`: what needs attention, each section after an empty line."""
    closed = [row(node.name, node.closed) for node in inspection.nodes if node.closed]
    if closed:
        yield from ("", "CLOSED NODE\tREASON", *closed)
    lost = [line for node in inspection.nodes for line in _lost(node)]
    if lost:
        yield from ("", "POD WITHOUT CARD\tNAMESPACE\tNODE\tALLOCATED\tSTATE\tPROBLEM", *lost)
    if inspection.waiting:
        yield from ("", "WAITING POD\tNAMESPACE\tASKED\tCARDS\tSINCE\tREASON", *_waiting(inspection))


def why(pod: WaitingPod) -> str:
    """Why a pod waits, in one line."""
    if pod.problem is not None:
        return f"never fits: {pod.problem}"
    if pod.reasons is None:
        return "not looked into: too many different requests wait"
    refusals = ", ".join(f"{each.nodes} {each.reason}" for each in pod.reasons)
    if pod.fitting:
        have = "1 node has" if pod.fitting == 1 else f"{pod.fitting} nodes have"
        return f"{have} room, see the pod's events" + (f"; {refusals}" if refusals else "")
    return refusals or "no node shares GPU cards"


def _closed(inspection: Inspection) -> Iterator[str]:
    for node in inspection.nodes:
        if node.closed:
            yield printable(f"node {node.name}: {node.closed}")


def _foreign(inspection: Inspection) -> Iterator[str]:
    for node in inspection.nodes:
        if node.total_gpu and node.unit != inspection.unit:
            yield f"node {node.name} counts {node.unit}: it is not part of the cluster's total"


def _lost(node: InspectedNode) -> Iterator[str]:
    for pod in node.unreadable:
        cells = (pod.name, pod.namespace, node.name, pod.used_gpu, state_without_card(pod), pod.problem)
        yield row(*cells)
    for held in node.missing:
        problem = f"the node has no card {held.card} any more"
        cells = (held.name, held.namespace, node.name, held.used_gpu, state(held, is_missing=True), problem)
        yield row(*cells)


def _waiting(inspection: Inspection) -> Iterator[str]:
    for pod in inspection.waiting:
        cells = (pod.name, pod.namespace, pod.used_gpu, pod.slots, pod.since or "-", why(pod))
        yield row(*cells)
