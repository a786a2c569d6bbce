"""Measure what was named (all of it by default) and print a table each, with what the design promises.

usage: python -m tests.bench [verbs] [bind] [startup] [rush] [pages] [node]
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

from tests.bench import bind, node, pages, rush, startup, verbs

MEASUREMENTS: dict[str, Callable[[], None]] = {
    "verbs": lambda: asyncio.run(verbs.main()),
    "bind": lambda: asyncio.run(bind.main()),
    "startup": lambda: asyncio.run(startup.main()),
    "rush": lambda: asyncio.run(rush.main()),
    "pages": lambda: asyncio.run(pages.main()),
    "node": node.main,
}


def main() -> None:
    chosen = sys.argv[1:] or list(MEASUREMENTS)
    if unknown := set(chosen) - set(MEASUREMENTS):
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(MEASUREMENTS)}")
    for name in chosen:
        MEASUREMENTS[name]()


if __name__ == "__main__":
    main()
