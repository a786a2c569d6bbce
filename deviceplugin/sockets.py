"""Unix sockets in kubelet's folder: taking a name without robbing whoever has it, and noticing who goes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from pathlib import Path

import grpc.aio

from deviceplugin.errors import SocketPathError

_LONGEST_PATH = 107  # bytes that Linux has room for in a unix socket's address, less the closing zero

Identity = tuple[int, int]


def check_socket_path(path: Path) -> None:
    """Raise `SocketPathError` if no unix socket can have this path."""
    length = len(os.fsencode(path))
    if length > _LONGEST_PATH:
        raise SocketPathError(
            f"{path} has {length} bytes and a unix socket's path can have {_LONGEST_PATH}: "
            "choose a shorter --kubelet-dir"
        )


def folder_missing(socket: Path) -> str | None:
    """What to do where the folder of one of kubelet's sockets is not there; `None` where it is."""
    if socket.parent.is_dir():
        return None
    return f"{socket.parent} is missing: mount kubelet's folder there, or say with --kubelet-dir where it is"


def missing(socket: Path) -> str | None:
    """What to do where one of kubelet's own sockets is not there; `None` where it is."""
    if socket.exists():
        return None
    return folder_missing(socket) or (
        f"{socket} is missing: kubelet is not up, or what is mounted there is not kubelet's folder "
        "(--kubelet-dir)"
    )


def identity(path: Path) -> Identity | None:
    """Tells a file from another that was later made in its place; inode numbers are used again."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


async def listen(server: grpc.aio.Server, path: Path) -> Identity | None:
    """Start a server that listens on `path`, in the place of whatever is there; returns its identity.

    gRPC removes a socket's path when it stops, whoever has taken the path since. So it is given a name of
    its own, and the socket is moved into place: a name that it does not know it cannot remove. Raises
    OSError, and RuntimeError where gRPC cannot bind.
    """
    draft = path.with_name(f".{secrets.token_hex(4)}")
    server.add_insecure_port(f"unix:{draft}")
    await server.start()
    own = identity(draft)
    draft.rename(path)
    return own


def remove(path: Path, *, own: Identity | None) -> None:
    """Remove a socket, unless another has taken its place."""
    if own is not None and identity(path) == own:
        path.unlink(missing_ok=True)


class Peer:
    """A connection to whoever serves a socket: it ends when they do."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def at(cls, path: Path) -> Peer | None:
        """Connect; `None` where nobody listens."""
        try:
            return cls(*await asyncio.open_unix_connection(path))
        except OSError:
            return None

    async def gone(self) -> None:
        """Return when the other side has hung up; however this ends, it is closed afterwards."""
        try:
            with contextlib.suppress(OSError):
                while await self._reader.read(1024):
                    pass
        finally:
            self.close()

    def close(self) -> None:
        """Hang up."""
        self._writer.close()
