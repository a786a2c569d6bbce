"""Columns as Go's `text/tabwriter` aligns them with minwidth 0, padding 2 and spaces, the classic tool's way.

A tab ends a cell. A column is a run of neighbouring lines that all have a cell there which a tab ends: so the
text after a line's last tab belongs to no column, and a line without one ends every column.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

PADDING = 2


def row(*cells: object) -> str:
    """A line of these cells, the last one of no column.

    Nodes and pods write some of the texts: what a terminal would take for more than a letter is left out.
    """
    return "\t".join(printable(str(cell)) for cell in cells)


def printable(text: str) -> str:
    """The text with a question mark for each tab, line break or other control character."""
    return text if text.isprintable() else "".join(sign if sign.isprintable() else "?" for sign in text)


def align(lines: Iterable[str]) -> str:
    """The lines, their tabs replaced by what aligns the cells; each ends with a newline."""
    table = [line.split("\t") for line in lines]
    for column in range(max(map(len, table), default=1) - 1):
        for has_cell, run in groupby(table, key=lambda cells: column < len(cells) - 1):
            if has_cell:
                rows = list(run)
                width = max(len(cells[column]) for cells in rows) + PADDING
                for cells in rows:
                    cells[column] = cells[column].ljust(width)
    return "".join("".join(cells) + "\n" for cells in table)
