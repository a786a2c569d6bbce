"""What a measurement says: its figures, and whether what the design promises holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

console = Console(width=110)


@dataclass(frozen=True, kw_only=True)
class Promise:
    """One figure and the most it may be."""

    what: str
    figure: float
    most: float
    unit: str

    def show(self) -> None:
        holds = "holds" if self.figure <= self.most else "DOES NOT HOLD"
        console.print(f"{self.what} ≤ {self.most:g} {self.unit}: {self.figure:.2f} {self.unit}, {holds}")


def show(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print a table."""
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*row)
    console.print(table)
