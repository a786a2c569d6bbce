"""One reader's server-sent events.

`begin` and `nodes` … `complete` tell the whole cluster; after that `nodes` tells what changed, `waiting`
what waits and `state` whether this replica answers kube-scheduler. `beat` says that the line is up. What a
reader does not take is not made: the next event is computed when the last one is on its way.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping

import msgspec
from fastapi.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from extender.core import Extender
from extender.ui.picture import Change, Picture, WaitingBoard
from gpushare import __version__

log = logging.getLogger(__name__)

MOST_READERS = 32
EVERY = 1.0
"""Seconds from one look at what has changed to the next."""
BEAT = 5.0
"""Seconds of silence at most: the page counts itself as not live after 12."""
PATIENCE = 30.0
"""Seconds a reader has to take an event before it is given up."""
AGAIN = (1000, 4000)
"""Milliseconds after which a browser comes back when the line is cut, by lot: not all of them at once."""


class Audience:
    """Who reads: every stream costs a look at all nodes a second, so there are so many at most."""

    def __init__(self, *, empty: Callable[[], None] = lambda: None) -> None:
        """`empty` is called whenever the last one has left."""
        self.readers = 0
        self._empty = empty

    @property
    def is_full(self) -> bool:
        return self.readers >= MOST_READERS

    @contextlib.contextmanager
    def seat(self) -> Iterator[None]:
        """Counts as a reader while the context is open."""
        self.readers += 1
        try:
            yield
        finally:
            self.readers -= 1
            if not self.readers:
                self._empty()


class EventStream(StreamingResponse):
    """The answer: ends with its reader, or when that one stops taking what it is sent."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes], *, audience: Audience, headers: Mapping[str, str]):
        super().__init__(events, headers=headers)
        self._audience = audience

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._audience.seat():
            await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        async def patiently(message: Message) -> None:
            async with asyncio.timeout(PATIENCE):
                await send(message)

        try:
            await super().stream_response(patiently)
        except TimeoutError:
            log.info("page reader given up: it takes nothing")


def _problem(extender: Extender) -> str | None:
    """Why kube-scheduler is not answered here. A replica that stands by may be ready all the same."""
    return extender.unready or extender.problem


async def events(extender: Extender, *, board: WaitingBoard, ending: asyncio.Event) -> AsyncGenerator[bytes]:
    """All of one reader's events, until `ending`."""
    picture = Picture(extender.ledger, texts=extender.texts)
    problem = _problem(extender)
    names, unit = extender.names, extender.ledger.unit
    yield b"retry: %d\n\n" % random.randint(*AGAIN)
    yield event("begin", {"version": __version__, "resource": names.memory, "unit": unit})
    yield event("state", {"problem": problem})
    told = waiting = None
    spoke = time.monotonic()
    while not ending.is_set():
        news = []
        async for change in picture.changes():
            yield event("nodes", written(change))
            spoke = time.monotonic()
        if told is None:
            news.append(event("complete", {}))
        if (found := await board.look()) != waiting:
            waiting = found
            news.append(event("waiting", found))
        if (now := _problem(extender)) != problem:
            problem = now
            news.append(event("state", {"problem": problem}))
        if not news and time.monotonic() - spoke >= BEAT:
            news.append(event("beat", {}))
        if news:
            told = spoke = time.monotonic()
            yield b"".join(news)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EVERY):
                await ending.wait()


async def refusal(reason: str) -> AsyncGenerator[bytes]:
    """The events of a reader too many. The status stays 200: a browser does not show scripts another one."""
    yield event("refused", {"reason": reason})


def written(change: Change) -> bytes:
    """A change as JSON."""
    return b'{"nodes":[%b],"gone":%b}' % (b",".join(change.nodes), msgspec.json.encode(change.gone))


def event(name: str, content: bytes | Mapping[str, object]) -> bytes:
    """One event as it goes over the wire; `bytes` are JSON already. JSON has no line breaks of its own."""
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return b"event: %b\ndata: %b\n\n" % (name.encode(), text)
