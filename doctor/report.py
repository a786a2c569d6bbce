"""Findings as text for people and as JSON for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence

from doctor.findings import FEW, Finding, Status

_INDENT = " " * 6


def as_table(findings: Sequence[Finding]) -> str:
    """One line a check; under what is not in order some of the objects, and what to do."""
    width = max(len(finding.check) for finding in findings)
    lines = [line for finding in findings for line in _lines(finding, width=width)]
    return "\n".join([*lines, "", _summary(findings)]) + "\n"


def _lines(finding: Finding, *, width: int) -> Iterator[str]:
    verdict = finding.verdict
    yield f"{verdict.status:<4}  {finding.check:<{width}}  {_one_line(verdict.message)}"
    for thing in verdict.objects[:FEW]:
        yield f"{_INDENT}- {_one_line(thing)}"
    if len(verdict.objects) > FEW:
        yield f"{_INDENT}- and {len(verdict.objects) - FEW} more (--output json lists all)"
    if verdict.remedy:
        yield f"{_INDENT}→ {_one_line(verdict.remedy)}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _summary(findings: Sequence[Finding]) -> str:
    counts = Counter(finding.verdict.status for finding in findings)
    return ", ".join(f"{counts[status]} {status.lower()}" for status in Status)


def as_json(findings: Sequence[Finding]) -> str:
    """A list of {check, status, message, remedy, objects}."""
    values = [
        {
            "check": finding.check,
            "status": finding.verdict.status.value,
            "message": finding.verdict.message,
            "remedy": finding.verdict.remedy,
            "objects": list(finding.verdict.objects),
        }
        for finding in findings
    ]
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


def failed(findings: Sequence[Finding]) -> bool:
    """Whether anything failed; warnings are allowed."""
    return any(finding.verdict.status is Status.FAIL for finding in findings)
