"""A second look before a pod is told that there is no room.

kube-scheduler tries a waiting pod again on the very event that makes room, which it has from a watch of its
own. Where that is ahead of ours the pod would be refused what is there, and then wait until something else
happens or five minutes have passed (kube-scheduler 1.36). So a refusal waits a moment for what the watches
may be about to show.

kube-scheduler places pods one after the other: such waits may take a tenth of the time, and no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from extender.wire import FilterResult

PATIENCE = 0.05
"""Seconds. On two busy cores kube-scheduler was up to 0.04 s ahead."""

_SHARE = 0.1
_MOST = 4 * PATIENCE
_PAUSE = 0.002


class SecondLook:
    """Waits for news of the watches."""

    def __init__(self, *, versions: Callable[[], object]) -> None:
        """`versions` answers something else whenever a watch has shown something."""
        self._versions = versions
        self._allowance = _MOST
        self._since = 0.0

    async def __call__(self, look: Callable[[], FilterResult], *, first: FilterResult) -> FilterResult:
        """Look again at each piece of news until a node fits, for `PATIENCE` at most; the last answer.

        Once the waits have used up their share of the time, `first` stands. Raises what `look` raises.
        """
        clock = asyncio.get_running_loop().time
        begin = clock()
        self._allowance = min(_MOST, self._allowance + _SHARE * (begin - self._since))
        self._since = begin
        if self._allowance < PATIENCE:
            return first
        result = first
        seen = self._versions()
        while result.none_fits_yet and clock() < begin + PATIENCE:
            await asyncio.sleep(_PAUSE)
            if (now := self._versions()) != seen:
                seen = now
                result = look()
        self._allowance -= clock() - begin
        return result
