"""What a check says: one line for people, the same as a value for programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from doctor.cluster import Cluster, Unseen

FEW = 5
"""Objects that are named; the rest is counted."""


class Status(StrEnum):
    """How bad it is."""

    OK = "OK"
    WARN = "WARN"
    """Works, and will hardly do what was meant, or not for long."""
    FAIL = "FAIL"
    SKIP = "SKIP"
    """Could not be looked at, or does not apply; the message says which."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What a check found."""

    status: Status
    message: str
    remedy: str = ""
    """What to do; empty for OK."""
    objects: tuple[str, ...] = ()
    """Nodes, pods or other objects it is about, with what is wrong with each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A verdict under its check's name."""

    check: str
    verdict: Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One question about a cluster."""

    name: str
    """Stable: docs and scripts go by it."""
    ask: Callable[[Cluster], Verdict]

    def run(self, cluster: Cluster) -> Finding:
        """Answer it. Reads nothing but the snapshot."""
        return Finding(check=self.name, verdict=self.ask(cluster))


def ok(message: str) -> Verdict:
    return Verdict(status=Status.OK, message=message)


def skip(message: str, *, remedy: str = "") -> Verdict:
    return Verdict(status=Status.SKIP, message=message, remedy=remedy)


def warn(message: str, *, remedy: str, objects: Sequence[str] = ()) -> Verdict:
    return Verdict(status=Status.WARN, message=message, remedy=remedy, objects=tuple(objects))


def fail(message: str, *, remedy: str, objects: Sequence[str] = ()) -> Verdict:
    return Verdict(status=Status.FAIL, message=message, remedy=remedy, objects=tuple(objects))


def unseen(part: Unseen) -> Verdict:
    """A part of the cluster could not be read."""
    return skip(part.why, remedy=part.remedy)


def some(things: Sequence[str], *, of: int = 3) -> str:
    """A few names for a sentence: `a, b, c and 7 more`."""
    named = ", ".join(things[:of])
    return named if len(things) <= of else f"{named} and {len(things) - of} more"


def counted(number: int, thing: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
