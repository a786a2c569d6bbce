"""Waiting for something to become true, with a deadline: never a sleep that hopes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

DEADLINE = 10.0


async def until(condition: Callable[[], object], *, seconds: float = DEADLINE, what: str = "") -> None:
    """Return once `condition()` is true; fail naming `what` when `seconds` have passed."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s: {what or condition}"
        await asyncio.sleep(0.005)
