"""What people see: a live table on a terminal, one line per event elsewhere."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sandbox.demo.board import Board, PlacedPod

_BAR = 16
_PAUSE_SECONDS = 0.4
_WIDTH = 112
"""Columns where there is no terminal to ask."""


class Screen:
    """Shows a board. A context manager, since a live table has to be taken down again."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = (
            Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        )
        self._began = time.monotonic()
        self._caption = ""
        self._told: set[str] = set()

    @classmethod
    def on(cls, *, stderr: bool) -> Screen:
        """A screen on one of the process's two outputs."""
        console = Console(stderr=stderr)
        return cls(console if console.is_terminal else Console(stderr=stderr, width=_WIDTH))

    def __enter__(self) -> Screen:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._began

    def say(self, text: str) -> None:
        """What happens now."""
        self._caption = text
        self._line(Text(text, style="bold"))

    def show(self, board: Board) -> None:
        """The board changed."""
        for pod in board.pods():
            if (pod.is_running or pod.refusal) and pod.key not in self._told:
                self._told.add(pod.key)
                self._line(_arrival(pod))
        if self._live:
            self._live.update(table(board, caption=self._caption), refresh=True)

    async def pause(self) -> None:
        """Let people look: what takes milliseconds is too fast to follow."""
        if self._live:
            await asyncio.sleep(_PAUSE_SECONDS)

    def _line(self, text: Text) -> None:
        self._console.print(Text(f"{self.seconds:5.1f} s  ", style="dim") + text, soft_wrap=True)

    def end(self, board: Board, *, sentences: tuple[str, ...]) -> None:
        """The last table, and what was shown."""
        self._console.print(table(board))
        for number, sentence in enumerate(sentences, start=1):
            self._console.print(Text(f"{number}. {sentence}"))
        for pod in board.pods():
            if pod.refusal:
                self._console.print(Text(f"   Warning  FailedScheduling  {pod.refusal}"))
        self._console.print(Text(f"All of it in {self.seconds:.1f} s.", style="dim"))


def _arrival(pod: PlacedPod) -> Text:
    name = pod.name.ljust(18)
    if not pod.node:
        return Text(f"  {name} refused: {pod.refusal}", style="red")
    cards = " and ".join(map(str, pod.cards))
    plural = "s" if len(pod.cards) > 1 else ""
    each = " each" if plural else ""
    return Text(f"  {name} {pod.memory:>6} MiB{each} → {pod.node}, card{plural} {cards}")


def table(board: Board, *, caption: str = "") -> Table:
    """Nodes × cards: how full, and who is on it."""
    shown = Table(caption=caption or None, caption_justify="left")
    for heading in ("node", "card", "", "booked / total MiB", "pods"):
        shown.add_column(
            heading, justify="right" if "total" in heading else "left", no_wrap=heading != "pods"
        )
    pods = board.pods()
    for node in board.nodes():
        for card in node.cards:
            here = [pod for pod in pods if pod.node == node.name and card.index in pod.cards]
            booked = sum(pod.memory for pod in here)
            shown.add_row(
                node.name if card.index == 0 else "",
                str(card.index),
                _bar(booked, of=card.memory),
                f"{booked:>5} / {card.memory}",
                ", ".join(f"{pod.name} {pod.memory}" for pod in here),
                end_section=card is node.cards[-1],
            )
    return shown


def _bar(booked: int, *, of: int) -> Text:
    filled = round(_BAR * booked / of)
    return Text("█" * filled, style="green") + Text("░" * (_BAR - filled), style="dim")
