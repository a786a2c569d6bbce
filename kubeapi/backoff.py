"""How long to wait before trying again."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(kw_only=True, slots=True)
class Backoff:
    """Doubling delays in seconds with jitter, so that many clients do not come back together."""

    first: float = 0.2
    longest: float = 10.0
    _next: float = field(default=0.0, init=False)

    def next(self) -> float:
        """The delay before the next try; between half and all of the current step."""
        step = self._next or self.first
        self._next = min(self.longest, step * 2)
        return step * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Something worked: start over."""
        self._next = 0.0
