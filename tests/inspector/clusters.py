"""Answers for made-up clusters."""

from __future__ import annotations

from gpushare.inspection import Inspection, inspect
from gpushare.ledger import Ledger
from gpushare.objects import Node, Pod
from tests.build import NAMES


def inspected(*objects: Node | Pod, unit: str = "MiB", only: str | None = None) -> Inspection:
    """What the extender of this unit says of these nodes and pods."""
    ledger = Ledger(names=NAMES, unit=unit)
    waiting = []
    for each in objects:
        if isinstance(each, Node):
            ledger.set_node(each)
        else:
            ledger.set_pod(each)
            if not each.node_name:
                waiting.append(each)
    found = inspect(ledger, waiting=waiting, only=only)
    assert found is not None
    return found
