"""When a card is healthy: a state machine per card that takes what was observed and decides.

Two kinds of news arrive. *Probes* ask the card at regular times: a few failures in a row make it unhealthy,
a few successes in a row healthy again. *Verdicts* leave no doubt (a critical XID, a card that has left the
bus) and take it out at once. Time does not come into it: whoever probes sets the pace.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True, slots=True)
class Thresholds:
    """How many probes in a row turn a card's state."""

    failures: int = 3
    """Failed ones that make a healthy card unhealthy."""
    recoveries: int = 3
    """Good ones that make an unhealthy card healthy."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """Something observed that speaks against a card."""

    text: str
    is_verdict: bool = False
    """Whether it leaves no doubt, so that no second look is needed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Health:
    """One card's state. What happens to it gives a new one."""

    reason: str = ""
    """Why the card is not healthy: what first took it out. Empty while it is healthy."""
    failed: int = 0
    """Probes that failed in a row on a healthy card."""
    passed: int = 0
    """Good probes in a row on an unhealthy card."""

    @property
    def is_healthy(self) -> bool:
        return not self.reason

    def after_success(self, limits: Thresholds) -> Health:
        """A probe went well."""
        if self.is_healthy or self.passed + 1 >= limits.recoveries:
            return Health()
        return replace(self, passed=self.passed + 1)

    def after_fault(self, fault: Fault, *, limits: Thresholds) -> Health:
        """A probe failed, or a verdict came. The first reason stays: what follows mostly follows from it."""
        if not self.is_healthy:
            return Health(reason=self.reason)
        failed = self.failed + 1
        if fault.is_verdict or failed >= limits.failures:
            return Health(reason=fault.text)
        return Health(failed=failed)
