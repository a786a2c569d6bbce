"""The classic table: a row a node, a column a card, then the cluster's total.

Scripts read it, so nothing is added to it and no column changes its place. It differs where the classic tool
could only be wrong: sizes are each card's own, columns are named after the cards' real indices (a MIG
instance's is 103, say), and the unit is the one published.
"""

from __future__ import annotations

from gpushare.inspection import InspectedNode, Inspection
from inspector.tabwriter import align, row

UNKNOWN_ADDRESS = "unknown"
_DASHES_MORE = 20  # than the first node's row has characters, before it is aligned


def summary(inspection: Inspection) -> str:
    """The table's text. Nodes without any readable card are not in it."""
    nodes = [node for node in inspection.nodes if node.total_gpu]
    columns = sorted({card.id for node in nodes for card in node.devs})
    is_pending = any(pending(node) is not None for node in nodes)
    head = ["NAME", "IPADDRESS", *(f"GPU{index}(Allocated/Total)" for index in columns)]
    head += ["PENDING(Allocated)"] if is_pending else []
    lines = [row(*head, f"GPU Memory({inspection.unit})" if inspection.unit else "GPU Memory")]
    dashes = 0
    for node in nodes:
        lines.append(_row(node, columns=columns, cluster_unit=inspection.unit, is_pending=is_pending))
        dashes = dashes or len(lines[-1]) + 1 + _DASHES_MORE
    return align([*lines, "-" * dashes, "Allocated/Total GPU Memory In Cluster:", f"{total(inspection)}\t"])


def pending(node: InspectedNode) -> int | None:
    """Units that pods on the node ask for without a card of it; `None` where there are no such pods."""
    amounts = [pod.used_gpu for pod in node.unreadable] + [pod.used_gpu for pod in node.missing]
    return sum(amounts) if amounts else None


def allocated(node: InspectedNode) -> int:
    """Units of the node that are gone: what is booked on its cards, and what is pending."""
    return node.used_gpu + (pending(node) or 0)


def total(inspection: Inspection) -> str:
    """`used/total (percent)` over the nodes that count in the cluster's unit; whole percent, rounded down."""
    nodes = [node for node in inspection.nodes if node.total_gpu and node.unit == inspection.unit]
    used, size = sum(map(allocated, nodes)), sum(node.total_gpu for node in nodes)
    return f"{used}/{size} ({percent(used, size)}%)"


def percent(used: int, size: int) -> int:
    """Whole percent, rounded down; 0 of nothing."""
    return used * 100 // size if size else 0


def _row(node: InspectedNode, *, columns: list[int], cluster_unit: str, is_pending: bool) -> str:
    cards = {card.id: f"{card.used_gpu}/{card.total_gpu}" for card in node.devs}
    foreign = "" if node.unit == cluster_unit else f"({node.unit})"
    cells = [node.name, node.address or UNKNOWN_ADDRESS]
    cells += [cards[index] + foreign if index in cards else "0/0" for index in columns]
    if is_pending:
        units = pending(node)
        cells.append("" if units is None else f"{units}{foreign}")
    return row(*cells, f"{allocated(node)}/{node.total_gpu}{foreign}")
