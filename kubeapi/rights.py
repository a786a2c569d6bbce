"""What a program may ask of the API server, as RBAC says it: each program lists its rights in `rights.py`.

The list is the one place: the chart's roles are compared with it, and tests run the programs with these
rights and no others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class Right:
    """One rule of a role."""

    resource: str
    """As RBAC writes it, a subresource with its slash: `nodes/status`."""
    verbs: tuple[str, ...]
    why: str
    group: str = ""
    """API group; empty for the core's."""
    scope: Literal["cluster", "namespace"] = "cluster"
    """Whether a ClusterRole is needed, or a Role in the program's own namespace will do."""
