"""Faults to order: what a test can make the API server do to a client.

A rule names the requests it is for and what happens to them; it wears out after ``count`` of them. Whether
a write was applied when its answer is lost makes all the difference to a client, so most actions exist
``before`` and ``after``. Frozen watches stay open and say nothing until their rule is removed.
"""

import asyncio
import contextlib
import re
from collections.abc import Callable
from typing import Literal

import msgspec

from sandbox.apiserver.errors import ApiError

Action = Literal["delay", "hold", "drop", "answer", "freeze"]
_REASONS = {409: "Conflict", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}


class Rule(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One fault. Without a criterion it is for every request."""

    action: Action
    when: Literal["before", "after"] = "before"
    """Whether it strikes before the request is carried out or after it, on its answer."""
    method: str = ""
    path: str = ""
    """Regular expression, searched for in the path."""
    client: str = ""
    """Part of the User-Agent, or the whole ``X-Sandbox-Client`` header."""
    count: int | None = None
    """How many requests it is for; None for all until it is removed."""
    seconds: float = 0.0
    """For ``delay``; it ends earlier when the rule is removed."""
    status: int = 500
    """For ``answer``."""
    retry_after: int | None = None
    """For ``answer``: seconds in the Retry-After header."""
    message: str = "a fault was ordered"
    """For ``answer``."""

    def __post_init__(self) -> None:
        try:
            re.compile(self.path)
        except re.error as error:
            raise ValueError(f"path is no regular expression: {error}") from error
        if not 400 <= self.status <= 599:
            raise ValueError("status is not an error's (400 to 599)")
        if self.count is not None and self.count < 1:
            raise ValueError("count is less than 1")


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """What rules can see of a request."""

    method: str
    path: str
    user_agent: str = ""
    client: str = ""

    def matches(self, rule: Rule) -> bool:
        """Whether the rule is for this request."""
        return (
            (not rule.method or rule.method.upper() == self.method)
            and (not rule.path or re.search(rule.path, self.path) is not None)
            and self.is_client(rule.client)
        )

    def is_client(self, name: str) -> bool:
        """Whether a name means this client; an empty one means every client."""
        return not name or name == self.client or name in self.user_agent


class Fault:
    """A rule in force. ``await fault.struck()`` tells a test that a request has run into it."""

    def __init__(self, *, number: int, rule: Rule) -> None:
        self.number = number
        self.rule = rule
        self.hits = 0
        self._hit = asyncio.Event()
        self._released = asyncio.Event()

    async def struck(self) -> None:
        """Wait for the first request that it strikes."""
        await self._hit.wait()

    async def released(self) -> None:
        """Wait until the rule is removed."""
        await self._released.wait()

    def release(self) -> None:
        """Let go of every request that it holds."""
        self._released.set()

    def strike(self) -> None:
        """Count a request."""
        self.hits += 1
        self._hit.set()

    @property
    def worn_out(self) -> bool:
        """Whether it has struck as often as it was ordered to."""
        return self.rule.count is not None and self.hits >= self.rule.count


class Dropped(Exception):  # noqa: N818 - not an error of this program: the fault that was ordered
    """The connection is to be cut without an answer."""


class Faults:
    """The rules in force, and the switches that act at once."""

    def __init__(
        self,
        *,
        expire_history: Callable[[], None],
        cut_watches: Callable[[str], int],
        changed: Callable[[], None],
    ) -> None:
        self._expire_history = expire_history
        self._cut_watches = cut_watches
        self._changed = changed
        self._faults: dict[int, Fault] = {}
        self._numbers = 0

    def add(self, rule: Rule) -> Fault:
        """Put a rule in force."""
        self._numbers += 1
        fault = self._faults[self._numbers] = Fault(number=self._numbers, rule=rule)
        self._changed()
        return fault

    def remove(self, number: int) -> bool:
        """End a rule: held requests go on and frozen watches thaw. False if there is no such rule."""
        fault = self._faults.pop(number, None)
        if fault is None:
            return False
        fault.release()
        self._changed()
        return True

    def clear(self) -> None:
        """End every rule."""
        for number in list(self._faults):
            self.remove(number)

    def in_force(self) -> list[Fault]:
        """Every rule that has not been removed, worn out or not."""
        return list(self._faults.values())

    def expire_history(self) -> None:
        """The next watch from an older version answers 410."""
        self._expire_history()

    def cut_watches(self, *, client: str = "") -> int:
        """End the watches of one client, or all, as a broken connection does. Answers how many."""
        return self._cut_watches(client)

    def freezes(self, caller: Caller) -> bool:
        """Whether this client's watches are to stay silent for now."""
        return any(
            fault.rule.action == "freeze" and caller.matches(fault.rule) for fault in self._faults.values()
        )

    async def strike(self, caller: Caller, *, when: Literal["before", "after"]) -> None:
        """Do to a request what the rules order; raises Dropped or ApiError."""
        for fault in list(self._faults.values()):
            rule = fault.rule
            if rule.action == "freeze" or rule.when != when or fault.worn_out or not caller.matches(rule):
                continue
            fault.strike()
            if rule.action == "delay":
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(fault.released(), rule.seconds)
            elif rule.action == "hold":
                await fault.released()
            elif rule.action == "drop":
                raise Dropped
            else:
                reason = _REASONS.get(rule.status, "")
                raise ApiError(rule.message, code=rule.status, reason=reason, retry_after=rule.retry_after)
