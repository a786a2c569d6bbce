"""Which XIDs (the driver's error codes) count against a card, and what operators may switch.

The switches are those of NVIDIA's own device plugin, read the same way: `DP_DISABLE_HEALTHCHECKS` is `all`,
`xids` or numbers that come on top of the application faults below; `DP_ENABLE_HEALTHCHECKS` is `all` or
numbers, and wins over anything disabled. Two differences, both on purpose: here there are probes besides
XIDs, so `xids` switches only the XIDs off and `all` the probes too; and a word that is none of these is
refused instead of ignored.
"""

from __future__ import annotations

from dataclasses import dataclass

from deviceplugin.errors import SettingError

APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})
"""Faults of the program that ran, not of the card: engine exception, page fault, stopped processing,
preemptive cleanup, video processor exception, context switch timeout (NVIDIA's XID catalogue)."""

_EVERYTHING = ("all", "xids")


@dataclass(frozen=True, kw_only=True, slots=True)
class HealthSwitches:
    """What counts against a card."""

    ignored: frozenset[int] = APPLICATION_XIDS
    ignores_xids: bool = False
    """Whether all XIDs are ignored but those in `watched`."""
    watched: frozenset[int] = frozenset()
    """XIDs that count whatever is ignored."""
    watches_all: bool = False
    probes: bool = True
    """Whether failed probes and lost cards count."""

    @classmethod
    def parse(cls, *, disable: str = "", enable: str = "") -> HealthSwitches:
        """Read the values of the two variables; raises `SettingError` for a word that is neither
        `all`, `xids` nor a number."""
        off, on = _words(disable), _words(enable)
        return cls(
            ignored=APPLICATION_XIDS | _numbers(off),
            ignores_xids=any(word in _EVERYTHING for word in off),
            watched=_numbers(on),
            watches_all=any(word in _EVERYTHING for word in on),
            probes="all" not in off or "all" in on,
        )

    def counts(self, xid: int) -> bool:
        """Whether this XID makes its card unhealthy."""
        if self.watches_all or xid in self.watched:
            return True
        return not self.ignores_xids and xid not in self.ignored


def _words(text: str) -> list[str]:
    words = [word.strip() for word in text.lower().split(",")]
    return [_checked(word) for word in words if word]


def _checked(word: str) -> str:
    if word in _EVERYTHING or (word.isascii() and word.isdigit()):
        return word
    raise SettingError(f"{word!r} is neither 'all', 'xids' nor the number of an XID")


def _numbers(words: list[str]) -> frozenset[int]:
    return frozenset(int(word) for word in words if word not in _EVERYTHING)
