"""`-o wide`: a row a card, with what the classic table leaves out; then what needs attention."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpushare.cards import UNITS, UNLIMITED_SLOTS
from gpushare.inspection import InspectedCard, InspectedNode, Inspection
from inspector.problems import sections
from inspector.summary import UNKNOWN_ADDRESS, total
from inspector.tabwriter import align, row

UNKNOWN = "-"

_COLUMNS = (
    "NODE",
    "IPADDRESS",
    "GPU",
    "MODEL",
    "UUID",
    "HEALTH",
    "PODS",
    "SLOTS(Used/Total)",
    "ALLOCATED",
    "TOTAL",
    "FREE",
    "IN USE",
    "UNIT",
)


def wide(inspection: Inspection, *, used: Mapping[tuple[str, str], float]) -> str:
    """The table's text. `used` are the bytes really in use, by node and UUID, as far as they are known."""
    head = row(*_COLUMNS)
    rows = (_row(node, card, used) for node in inspection.nodes for card in node.devs)
    end = ["", "Allocated/Total GPU Memory In Cluster:", f"{total(inspection)}"]
    return align([head, *rows, *end, *_ill(inspection), *sections(inspection)])


def _row(node: InspectedNode, card: InspectedCard, used: Mapping[tuple[str, str], float]) -> str:
    in_use = used.get((node.name, card.uuid))
    slots = UNKNOWN if card.total_slots == UNLIMITED_SLOTS else f"{card.used_slots}/{card.total_slots}"
    cells = (
        node.name,
        node.address or UNKNOWN_ADDRESS,
        card.id,
        card.model or UNKNOWN,
        card.uuid or UNKNOWN,
        "Healthy" if card.healthy else "Unhealthy",
        len(card.pods),
        slots,
        card.used_gpu,
        card.total_gpu,
        card.free_gpu,
        UNKNOWN if in_use is None or node.unit not in UNITS else f"{in_use / UNITS[node.unit]:.0f}",
        node.unit or UNKNOWN,
    )
    return row(*cells)


def _ill(inspection: Inspection) -> Iterator[str]:
    ill = [
        row(node.name, card.id, card.reason or UNKNOWN)
        for node in inspection.nodes
        for card in node.devs
        if not card.healthy
    ]
    if ill:
        yield from ("", "UNHEALTHY CARD OF\tGPU\tREASON", *ill)
