"""HTTP without sockets: exchanges with an ASGI application in the same process, on the same event loop.

`LocalApi` is a `KubeApi` to the sandbox's API server. It fails as the real client does: the server may go on
with a request whose client has given up.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import urlencode

import msgspec

from kubeapi.client import DEFAULT_TIMEOUT, KubeApi, Response
from kubeapi.errors import ApiUnreachable

Message = MutableMapping[str, Any]
Application = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]

_ABORTED: Message = {"type": "aborted"}


class Aborted(Exception):  # noqa: N818 — the connection was cut, which tests order
    """The server cut the connection."""


class Exchange:
    """One request and its answer."""

    def __init__(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self._scope: Message = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": urlencode(query or {}).encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "state": {"abort": lambda: self._messages.put_nowait(_ABORTED)},
        }
        self._request: Message | None = {"type": "http.request", "body": body, "more_body": False}
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self._gone = asyncio.Event()

    async def serve(self, app: Application) -> None:
        """The server's side. An application that raises cuts the connection, and raises here."""
        try:
            await app(self._scope, self._receive, self._send)
        finally:
            self._messages.put_nowait(_ABORTED)

    async def started(self) -> int:
        """The status, once there is one. Raises `Aborted`."""
        head = await self._next()
        self.headers = {name.decode().lower(): value.decode() for name, value in head["headers"]}
        self.status = head["status"]
        return self.status

    async def chunks(self) -> AsyncGenerator[bytes]:
        """The body as it comes. Raises `Aborted`."""
        while True:
            message = await self._next()
            if message.get("body"):
                yield message["body"]
            if not message.get("more_body", False):
                return

    async def answer(self) -> Response:
        """The whole answer. Raises `Aborted`."""
        await self.started()
        body = b"".join([chunk async for chunk in self.chunks()])
        retry_after = self.headers.get("retry-after")
        return Response(
            status=self.status, body=body, retry_after=None if retry_after is None else float(retry_after)
        )

    def leave(self) -> None:
        """The client goes away."""
        self._gone.set()

    async def _next(self) -> Message:
        message = await self._messages.get()
        if message is _ABORTED:
            self._gone.set()
            raise Aborted
        return message

    async def _receive(self) -> Message:
        if self._request is not None:
            request, self._request = self._request, None
            return request
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        self._messages.put_nowait(message)


async def post(app: Application, path: str, body: bytes) -> Response:
    """POST to an application as kube-scheduler does."""
    exchange = Exchange("POST", path, headers={"Content-Type": "application/json"}, body=body)
    await exchange.serve(app)
    return await exchange.answer()


class LocalApi(KubeApi):
    """The API server's client of one program, by its User-Agent."""

    def __init__(self, app: Application, *, user_agent: str) -> None:
        self._app = app
        self._agent = user_agent
        self._serving: set[asyncio.Task[None]] = set()
        self.spawn: Callable[[Any], asyncio.Task[None]] = asyncio.create_task
        """Starts the server's side of a request, which outlives its client."""

    @property
    def host(self) -> str:
        return "http://local"

    async def close(self) -> None:
        """Nothing is kept open between requests."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object | None = None,
        content_type: str = "application/json",
        timeout: float = DEFAULT_TIMEOUT,  # noqa: ASYNC109 — as in the class it stands in for
    ) -> Response:
        content = b"" if body is None else msgspec.json.encode(body)
        try:
            async with self._begin(method, path, query, content_type, content) as exchange:
                async with asyncio.timeout(timeout):
                    return await exchange.answer()
        except (Aborted, TimeoutError) as error:
            raise ApiUnreachable(f"API server is out of reach: {error!r}") from error

    async def lines(
        self,
        path: str,
        *,
        query: Mapping[str, str],
        idle: float,
        opened: Callable[[], None] | None = None,
    ) -> AsyncGenerator[bytes]:
        try:
            async with self._begin("GET", path, query, "application/json", b"") as exchange:
                async with asyncio.timeout(DEFAULT_TIMEOUT):
                    await exchange.started()
                if exchange.status >= 400:
                    body = b"".join([chunk async for chunk in exchange.chunks()])
                    Response(status=exchange.status, body=body).checked()
                if opened is not None:
                    opened()
                async with contextlib.aclosing(exchange.chunks()) as chunks:
                    while True:
                        try:
                            async with asyncio.timeout(idle):
                                chunk = await anext(chunks)
                        except StopAsyncIteration:
                            return
                        for line in chunk.splitlines():
                            yield line
        except (Aborted, TimeoutError) as error:
            raise ApiUnreachable(f"watch is cut: {error!r}") from error

    @contextlib.asynccontextmanager
    async def _begin(
        self, method: str, path: str, query: Mapping[str, str] | None, content_type: str, body: bytes
    ) -> AsyncIterator[Exchange]:
        headers = {"Content-Type": content_type, "User-Agent": self._agent}
        exchange = Exchange(method, path, query=query, headers=headers, body=body)
        task = self.spawn(exchange.serve(self._app))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        try:
            yield exchange
        finally:
            exchange.leave()
