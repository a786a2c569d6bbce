"""Where the extender answers what: one HTTP server per address, on one event loop.

What has no address of its own is served on `--listen`; what has one is served there and nowhere else. So
binding can be kept on loopback or behind client certificates while probes and monitoring reach the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Generator
from dataclasses import dataclass

import uvicorn
from fastapi import FastAPI

from extender.app import Routes, admission_routes, create_app, verb_routes, view_routes
from extender.core import Extender
from extender.settings import ExtenderSettings
from extender.tls import ServerTls
from extender.ui.page import ui_routes
from kubeapi.listen import ListenError, open_socket

log = logging.getLogger(__name__)

KEEP_ALIVE = 100
"""Seconds an idle connection is kept. kube-scheduler keeps its own for 90 s (Go's default transport) and
gets an EOF on one that we closed first."""

LAST_ANSWERS = 5
"""Seconds that requests in hand have when the server stops: a bind takes 3.9 s at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Listener:
    """An open address and what is answered on it."""

    flag: str
    socket: socket.socket
    routes: tuple[Routes, ...]
    tls: ServerTls | None = None

    @property
    def url(self) -> str:
        host, port = self.socket.getsockname()[:2]
        scheme = "https" if self.tls else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def open_listeners(settings: ExtenderSettings) -> list[Listener]:
    """Read the certificates and take the addresses; raises `TlsError`, or `ListenError` naming the flag."""
    routes: list[Routes] = [verb_routes]
    views = (view_routes, ui_routes) if settings.ui else (view_routes,)
    verbs_tls, admission_tls = settings.verbs_tls, settings.admission_tls
    with contextlib.ExitStack() as undo:

        def take(flag: str, address: str, *routes: Routes, tls: ServerTls | None) -> Listener:
            try:
                opened = undo.enter_context(open_socket(address))
            except ListenError as error:
                raise ListenError(f"{flag}: {error}") from error
            return Listener(flag=flag, socket=opened, routes=routes, tls=tls)

        others = []
        if settings.admission_listen:
            tls = ServerTls(admission_tls) if admission_tls else None
            others.append(take("--admission-listen", settings.admission_listen, admission_routes, tls=tls))
        else:
            routes.append(admission_routes)
        if settings.view_listen:
            others.append(take("--view-listen", settings.view_listen, *views, tls=None))
        else:
            routes += views
        tls = ServerTls(verbs_tls) if verbs_tls else None
        verbs = take("--listen", settings.listen, *routes, tls=tls)
        undo.pop_all()
    return [verbs, *others]


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handling, which ends the process by the signal instead of with code 0."""

    def __init__(self, config: uvicorn.Config, *, ending: asyncio.Event) -> None:
        """`ending` is set for answers that would go on for ever."""
        super().__init__(config)
        self._ending = ending

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    def stop(self) -> None:
        """Accept nothing new; `serve` returns once the requests in hand are answered, streams ended."""
        self.should_exit = True
        self._ending.set()


def _is_news(record: logging.LogRecord) -> bool:
    """Not the traceback of a request that uvicorn gave up because it stops: it has said so in a line."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def http_server(app: FastAPI, *, tls: ServerTls | None = None) -> HttpServer:
    """The server, configured for kube-scheduler's connections.

    Streams of `app` go by its `state.ending`.
    """
    app.state.ending = ending = asyncio.Event()
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    return HttpServer(
        uvicorn.Config(
            app,
            loop="uvloop",
            http="httptools",
            lifespan="off",
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=LAST_ANSWERS,
            access_log=False,
            log_config=None,
            ssl_context_factory=(lambda _config, _default: tls.context) if tls else None,
        ),
        ending=ending,
    )


class Listeners:
    """The servers of an extender, started and stopped together."""

    def __init__(self, extender: Extender, listeners: list[Listener]) -> None:
        self._listeners = listeners
        self._servers = [http_server(create_app(extender, *each.routes), tls=each.tls) for each in listeners]

    @property
    def addresses(self) -> str:
        """Every address with its flag, for the log."""
        return " ".join(f"{each.flag}={each.url}" for each in self._listeners)

    async def serve(self) -> None:
        """Answer until `stop` has been called and the requests in hand are answered."""
        await asyncio.gather(
            *(
                server.serve(sockets=[each.socket])
                for server, each in zip(self._servers, self._listeners, strict=True)
            )
        )

    def stop(self) -> None:
        """Accept nothing new."""
        for server in self._servers:
            server.stop()
