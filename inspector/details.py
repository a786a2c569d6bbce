"""`-d`: a block a node, a row a pod, a column a card; then what the pods' containers may use.

The classic columns come first and as they were; STATE and CONTAINERS follow them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from gpushare.inspection import InspectedContainer, InspectedNode, Inspection
from inspector.problems import sections, state, state_without_card
from inspector.summary import UNKNOWN_ADDRESS, allocated, pending, percent, total
from inspector.tabwriter import align, row

_FEWEST_DASHES = 10


@dataclass(kw_only=True)
class _Pod:
    """One pod on one node."""

    name: str
    namespace: str
    state: str
    units: dict[int | None, int] = field(default_factory=dict)
    """By card; `None` for what it asks for without a card of the node."""
    containers: dict[str, list[InspectedContainer]] = field(default_factory=dict)
    """By card, by the name in the column's head."""


def details(inspection: Inspection) -> str:
    """The text of all blocks, the cluster's total, and what needs attention."""
    blocks = [_block(node) for node in inspection.nodes if node.total_gpu or node.unreadable or node.missing]
    end = ["", "", f"Allocated/Total GPU Memory In Cluster:\t{total(inspection)}\t", *sections(inspection)]
    return "".join(blocks) + align(end)


def _block(node: InspectedNode) -> str:
    lines = ["", row("NAME:", node.name), row("IPADDRESS:", node.address or UNKNOWN_ADDRESS)]
    if node.closed:
        lines.append(row("CLOSED:", node.closed))
    is_pending = pending(node) is not None
    cards: list[int | None] = [card.id for card in node.devs]
    head = ["NAME", "NAMESPACE", *(f"GPU{index}(Allocated)" for index in cards)]
    if is_pending:
        head.append("Pending(Allocated)")
        cards.append(None)
    lines += ["", row(*head, "STATE", "CONTAINERS")]
    for pod in _pods(node):
        amounts = (pod.units.get(card, 0) for card in cards)
        lines.append(row(pod.name, pod.namespace, *amounts, pod.state, _containers(pod)))
    used = allocated(node)
    lines.append(f"Allocated :\t{used} ({percent(used, node.total_gpu)}%)\t")
    lines.append(f"Total :\t{node.total_gpu} \t")
    text = align(lines)
    return text + "-" * max(_FEWEST_DASHES, *map(len, text.splitlines())) + "\n"


def _pods(node: InspectedNode) -> Iterator[_Pod]:
    """The node's pods, those on the first card first."""
    pods: dict[str, _Pod] = {}
    held = [(card.id, pod) for card in node.devs for pod in card.pods]
    for card, pod in [*held, *((None, pod) for pod in node.missing)]:
        shown = pods.setdefault(
            pod.uid,
            _Pod(name=pod.name, namespace=pod.namespace, state=state(pod, is_missing=card is None)),
        )
        if card is None:
            shown.state = state(pod, is_missing=True)
        shown.units[card] = shown.units.get(card, 0) + pod.used_gpu
        shown.containers[f"GPU{pod.card}"] = pod.containers
    yield from pods.values()
    for unread in node.unreadable:
        yield _Pod(
            name=unread.name,
            namespace=unread.namespace,
            state=state_without_card(unread),
            units={None: unread.used_gpu},
        )


def _containers(pod: _Pod) -> str:
    """`main=3000,side=500`, or by card where the pod has several: `GPU0: main=3000 GPU1: main=3000`."""
    texts = {
        card: ",".join(f"{each.name}={each.used_gpu}" for each in containers)
        for card, containers in pod.containers.items()
    }
    if len(texts) == 1:
        return next(iter(texts.values()))
    return " ".join(f"{card}: {text}" for card, text in texts.items()) or "-"
