"""The ASGI application: reads a request, lets ordered faults strike, and writes the answer or the watch."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

from sandbox.apiserver.controls import PREFIX, Controls
from sandbox.apiserver.errors import ApiError, InternalError
from sandbox.apiserver.faults import Caller, Dropped, Faults
from sandbox.apiserver.handlers import Answer, Handlers
from sandbox.apiserver.proxy import Passed, is_proxied, passing
from sandbox.apiserver.registry import Registry
from sandbox.apiserver.routes import Request, parse_query
from sandbox.apiserver.watch import Watch

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]

logger = logging.getLogger(__name__)


class App:
    """One application per server. ``scope["state"]["abort"]`` cuts the connection of a request."""

    def __init__(
        self,
        *,
        handlers: Handlers,
        registry: Registry,
        controls: Controls,
        faults: Faults,
        watches: set[Watch],
    ) -> None:
        self._handlers = handlers
        self._registry = registry
        self._controls = controls
        self._faults = faults
        self._watches = watches
        self.heard: list[Callable[[Request], None]] = []
        """Called with every request before it is carried out: what they raise (`ApiError`) is its answer."""

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        """One request."""
        request = await _read(scope, receive)
        if request is None:
            return
        async with contextlib.AsyncExitStack() as held:
            try:
                answer = await self._answer(request, held)
            except Dropped:
                await _abort(scope, receive)
                return
            if isinstance(answer, Watch):
                await self._stream(answer, scope, receive, send)
            elif isinstance(answer, Passed):
                await _pass_on(answer, scope, receive, send)
            else:
                await _write(answer, send)

    async def _answer(self, request: Request, held: contextlib.AsyncExitStack) -> Answer | Watch | Passed:
        headers = request.headers
        caller = Caller(
            method=request.method,
            path=request.path,
            user_agent=headers.get("user-agent", ""),
            client=headers.get("x-sandbox-client", ""),
        )
        try:
            if request.path.startswith(PREFIX):
                return self._controls.answer(request)
            for hear in self.heard:
                hear(request)
            await self._faults.strike(caller, when="before")
            try:
                if is_proxied(request):
                    return await held.enter_async_context(passing(request, registry=self._registry))
                return await self._handlers.answer(request, caller)
            finally:
                await self._faults.strike(caller, when="after")
        except Dropped:
            raise
        except ApiError as error:
            return _refusal(error)
        except Exception:  # the last line of defence: a bug here must not look like a broken client
            logger.exception("method=%s path=%s failed", request.method, request.path)
            return _refusal(InternalError.of("the sandbox failed; its log says why"))

    async def _stream(self, watch: Watch, scope: _Message, receive: _Receive, send: _Send) -> None:
        self._watches.add(watch)
        gone = asyncio.create_task(_disconnected(receive))
        gone.add_done_callback(lambda _: watch.end())
        try:
            await send(_start(200, (("content-type", "application/json"),)))
            async with contextlib.aclosing(watch.chunks()) as chunks:
                async for chunk in chunks:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            if watch.is_cut:
                await _abort(scope, receive)
            else:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._watches.discard(watch)
            gone.cancel()


async def _pass_on(answer: Passed, scope: _Message, receive: _Receive, send: _Send) -> None:
    """Write another server's answer as it comes, for as long as there is a reader."""

    async def copy() -> None:
        await send(_start(answer.status, answer.headers))
        async for chunk in answer.chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    copying, gone = asyncio.create_task(copy()), asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait((copying, gone), return_when=asyncio.FIRST_COMPLETED)
        if copying.done() and copying.exception() is not None:
            await _abort(scope, receive)  # the other server broke off: so does this answer
    finally:
        copying.cancel()
        gone.cancel()


async def _read(scope: _Message, receive: _Receive) -> Request | None:
    """The whole request; None when the client left before its end."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    return Request(
        method=scope["method"],
        path=scope["path"],
        target=_target(scope),
        query=parse_query(scope["query_string"]),
        headers={name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]},
        body=bytes(body),
    )


def _target(scope: _Message) -> str:
    path: bytes = scope["raw_path"]
    query: bytes = scope["query_string"]
    return (path + b"?" + query if query else path).decode("latin-1")


async def _write(answer: Answer, send: _Send) -> None:
    headers = (
        ("content-type", answer.media_type),
        ("content-length", str(len(answer.body))),
        *answer.headers,
    )
    await send(_start(answer.status, headers))
    await send({"type": "http.response.body", "body": answer.body, "more_body": False})


def _start(status: int, headers: tuple[tuple[str, str], ...]) -> _Message:
    encoded = [(name.encode(), value.encode("latin-1", errors="replace")) for name, value in headers]
    return {"type": "http.response.start", "status": status, "headers": encoded}


def _refusal(error: ApiError) -> Answer:
    headers = () if error.retry_after is None else (("retry-after", str(error.retry_after)),)
    return Answer(status=error.code, body=msgspec.json.encode(error.status()), headers=headers)


async def _abort(scope: _Message, receive: _Receive) -> None:
    scope["state"]["abort"]()
    await _disconnected(receive)


async def _disconnected(receive: _Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
