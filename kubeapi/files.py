"""Notices that files have changed, by reading them again.

Reading a few small files every two seconds costs some ten microseconds, and it sees what notifications miss:
a ConfigMap or Secret, where kubelet swaps a symlink beside the file (`..data`), a folder that was made anew,
a network mount. It needs none of the node's inotify instances, of which other programs leave few.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

EVERY = 2.0
"""Seconds between two looks."""


class FileWatch:
    """Remembers what is in some files. Make it before they are read for use, and no change is missed."""

    def __init__(self, *paths: Path) -> None:
        self._paths = paths
        self._seen = self._contents()

    async def run(self, changed: Callable[[], None], *, every: float = EVERY) -> None:
        """Call `changed` each time something else is in them; a file that cannot be read counts as empty."""
        while True:
            await asyncio.sleep(every)
            if (now := self._contents()) != self._seen:
                self._seen = now
                changed()

    def _contents(self) -> list[bytes]:
        return [_content(path) for path in self._paths]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
