"""Long loops that let others run: whatever goes over all pods or all nodes must not hold up a verb."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable
from typing import TypeVar

T = TypeVar("T")

SLICE = 0.002
"""Seconds of work before others may run."""


async def in_slices(items: Iterable[T]) -> AsyncGenerator[T]:
    """Yield the items, giving way to the event loop whenever a slice of time is used up."""
    begun = time.perf_counter()
    for item in items:
        yield item
        if time.perf_counter() - begun > SLICE:
            await asyncio.sleep(0)
            begun = time.perf_counter()
