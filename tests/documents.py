"""The documents as tests read them: code blocks by language, code spans, headings, tables.

The convention that CONTRIBUTING.md states: `console` is run, `sh` needs a cluster or machines and is read,
`text` is what programs print, `yaml` is parsed and, where it is a manifest, validated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
LANGUAGES = ("console", "sh", "text", "yaml", "python")

_BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
_SPAN = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\((?!https?:)([^)\s]+)\)")


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block."""

    document: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.document.name}:{self.line}"


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command of a block, with continued lines joined."""

    block: Block
    text: str
    output: str = ""
    """What a `console` block shows after it."""

    def __str__(self) -> str:
        return f"{self.block}: {self.text}"


def blocks(document: Path, *languages: str) -> list[Block]:
    """The document's blocks of these languages, or all."""
    text = document.read_text()
    found = (
        Block(
            document=document,
            line=text.count("\n", 0, match.start()) + 1,
            language=match[1],
            text=match[2],
        )
        for match in _BLOCK.finditer(text)
    )
    return [block for block in found if not languages or block.language in languages]


def commands(block: Block) -> list[Command]:
    """The commands of a `console` block (lines after `$ `) or of an `sh` block (all lines)."""
    joined = re.sub(r"\\\n *", "", block.text)
    if block.language != "console":
        return [Command(block=block, text=line) for line in joined.splitlines() if line.strip()]
    found: list[Command] = []
    for line in joined.splitlines(keepends=True):
        if line.startswith("$ "):
            found.append(Command(block=block, text=line[2:].rstrip("\n")))
        elif found:
            last = found.pop()
            found.append(Command(block=block, text=last.text, output=last.output + line))
    return found


def prose(document: Path) -> str:
    """The document without its fenced blocks."""
    return _BLOCK.sub("", document.read_text())


def spans(document: Path) -> Iterator[str]:
    """What stands in backticks, outside of blocks."""
    yield from _SPAN.findall(prose(document))


def links(document: Path) -> Iterator[str]:
    """Targets of links within the repository."""
    yield from _LINK.findall(prose(document))


def anchors(document: Path) -> set[str]:
    """The document's headings as GitHub makes anchors of them."""
    headings = re.findall(r"^#+ (.*)$", prose(document), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def section(document: Path, heading: str) -> str:
    """A section's text, down to the next heading of its level or above."""
    marks, _, _ = heading.partition(" ")
    found = re.search(
        rf"^{re.escape(heading)}\n(.*?)(?=^#{{1,{len(marks)}}} |\Z)",
        document.read_text(),
        flags=re.DOTALL | re.MULTILINE,
    )
    assert found, f"{document.name} has no heading {heading!r}"
    return found[1]


def rows(table: str) -> list[list[str]]:
    """The cells of every row below a table's head."""
    lines = [line for line in table.splitlines() if line.startswith("|")]
    body = [line for line in lines if not re.fullmatch(r"[|\-: ]+", line)]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] for line in body[1:]]
