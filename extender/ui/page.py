"""The files and the routes of the page. Everything only reads."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from extender.core import Extender
from extender.ui.picture import WaitingBoard
from extender.ui.stream import MOST_READERS, Audience, EventStream, events, refusal

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
"""Nothing but this server's own files is ever loaded or run, whatever a pod is called."""

_STATIC = Path(__file__).parent / "static"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@dataclass(frozen=True, kw_only=True, slots=True)
class _File:
    content: bytes
    media_type: str
    etag: str

    @classmethod
    def read(cls, path: Path) -> _File:
        content = path.read_bytes()
        etag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
        return cls(content=content, media_type=_TYPES[path.suffix], etag=etag)


def ui_routes(extender: Extender) -> APIRouter:
    """The page, its files and its stream."""
    routes = APIRouter(include_in_schema=False)
    files = {path.name: _File.read(path) for path in sorted(_STATIC.iterdir()) if path.suffix in _TYPES}
    audience = Audience(empty=extender.texts.forget)
    board = WaitingBoard(extender.ledger, waiting=extender.waiting)

    @routes.api_route("/ui", methods=["GET", "HEAD"])
    async def moved() -> Response:
        """Relative, so that it holds behind any proxy."""
        return Response(status_code=307, headers={"Location": "ui/"} | HEADERS)

    @routes.api_route("/ui/events", methods=["GET", "HEAD"])
    async def stream(request: Request) -> Response:
        """What is on the cards, and then what changes."""
        headers = HEADERS | {
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",
        }  # nginx would hold it back
        if request.method == "HEAD":
            return Response(media_type=EventStream.media_type, headers=headers)
        ending: asyncio.Event = request.app.state.ending
        content = events(extender, board=board, ending=ending)
        if audience.is_full:
            content = refusal(f"{MOST_READERS} pages are open already, which is the most")
        return EventStream(content, audience=audience, headers=headers)

    @routes.api_route("/ui/{name:path}", methods=["GET", "HEAD"])
    async def file(name: str, request: Request) -> Response:
        """A file of the page."""
        found = files.get(name or "index.html")
        if found is None:
            return PlainTextResponse(f"there is no {name!r} here", status_code=404, headers=HEADERS)
        headers = HEADERS | {"ETag": found.etag, "Cache-Control": "no-cache"}
        if request.headers.get("If-None-Match") == found.etag:
            return Response(status_code=304, headers=headers)
        return Response(found.content, media_type=found.media_type, headers=headers)

    return routes
