"""Who else announces cards of a node: NVIDIA's own device plugin gives whole cards to pods.

Neither scheduler knows what the other has promised, so that a pod's share may lie on a card that another pod
has to itself.
"""

from __future__ import annotations

import re

from gpushare.errors import QuantityError
from gpushare.objects import Node
from gpushare.quantities import parse_units

# `gpu`, its shared and time-sliced forms, and MIG profiles (NVIDIA's device plugin 0.19).
_RESOURCE = re.compile(r"nvidia\.com/(gpu|mig-.+?)(\.shared)?")


def rivals_of(node: Node) -> dict[str, int]:
    """The resources by which somebody else announces cards of the node, with how many of each."""
    return {
        resource: count
        for resource, quantity in node.capacity.items()
        if _RESOURCE.fullmatch(resource) and (count := _count(quantity)) > 0
    }


def _count(quantity: str | int | float) -> int:
    try:
        return parse_units(str(quantity))
    except QuantityError:
        return 0
