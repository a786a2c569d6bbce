"""What a card source counts beside the cards: plain numbers for whoever shows them, by UUID."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class CardCounts:
    """Kept up to date by the source; read by others."""

    used: dict[str, int] = field(default_factory=dict)
    """Bytes in use on a card when it was last asked; missing for one that did not answer or cannot tell."""
    xids: Counter[tuple[str, int]] = field(default_factory=Counter)
    """XIDs seen since the start by UUID and code, ignored ones too."""
    failed_probes: Counter[str] = field(default_factory=Counter)
    """Looks since the start in which a shared card did not answer well."""
