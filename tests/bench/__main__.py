"""Measure what was named (all of it by default) and print a table each, with what the design promises.

usage: python -m tests.bench [verbs] [bind] [startup] [rush]
"""

from __future__ import annotations

import asyncio
import sys

from tests.bench import bind, rush, startup, verbs

MEASUREMENTS = {"verbs": verbs.main, "bind": bind.main, "startup": startup.main, "rush": rush.main}


def main() -> None:
    chosen = sys.argv[1:] or list(MEASUREMENTS)
    if unknown := set(chosen) - set(MEASUREMENTS):
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(MEASUREMENTS)}")
    for name in chosen:
        asyncio.run(MEASUREMENTS[name]())


if __name__ == "__main__":
    main()
