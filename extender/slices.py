"""Long loops that let others run: whatever goes over all pods or all nodes must not hold up a verb."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable
from typing import TypeVar

T = TypeVar("T")

SLICE = 0.002
"""Seconds of work before others may run."""


async def in_slices(items: Iterable[T], *, rest: float = 0.0) -> AsyncGenerator[T]:
    """Yield the items, giving way to the event loop whenever a slice of time is used up.

    A request takes several turns of the loop, and waits for a slice at each. Work that has time rests for
    `rest` seconds after a slice, and delays a request by one slice at most.
    """
    begun = time.perf_counter()
    for item in items:
        yield item
        if time.perf_counter() - begun > SLICE:
            await asyncio.sleep(rest)
            begun = time.perf_counter()
