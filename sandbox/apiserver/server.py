"""The server: one process, one event loop, HTTP/1.1 on one address."""

import asyncio
import functools
import socket
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

import uvicorn
import yaml
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from sandbox.apiserver.admission import Admission
from sandbox.apiserver.app import App
from sandbox.apiserver.controls import Controls
from sandbox.apiserver.faults import Faults
from sandbox.apiserver.handlers import Handlers
from sandbox.apiserver.kinds import Manifest, kind_of
from sandbox.apiserver.registry import Registry
from sandbox.apiserver.store import HISTORY_LIMIT, Store
from sandbox.apiserver.watch import Watch

BOOKMARK_INTERVAL_S = 60.0
_KEEP_ALIVE_S = 300
_CLOSE_PATIENCE_S = 0.3


class _Protocol(HttpToolsProtocol):
    """uvicorn's HTTP, with a way for the application to cut the connection."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"]["abort"] = self.transport.abort


class ApiServer:
    """A Kubernetes API server for tests and demos: ``async with ApiServer() as api: … api.url …``."""

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        mutating_webhook: str | None = None,
        validating_webhook: str | None = None,
        history_limit: int = HISTORY_LIMIT,
        bookmark_interval_s: float = BOOKMARK_INTERVAL_S,
    ) -> None:
        """``port`` 0 takes a free one; ``history_limit`` is in changes per collection."""
        self._host, self._port = host, port
        self._watches: set[Watch] = set()
        self._state = ServerState()
        self._server: asyncio.Server | None = None
        self.store = Store(history_limit=history_limit)
        self.admission = Admission(mutating=mutating_webhook, validating=validating_webhook)
        self.registry = Registry(store=self.store, admission=self.admission)
        self.faults = Faults(
            expire_history=self.store.expire_history,
            cut_watches=self._cut_watches,
            changed=self.store.wake_watches,
        )
        handlers = Handlers(
            registry=self.registry, bookmark_interval_s=bookmark_interval_s, frozen=self.faults.freezes
        )
        controls = Controls(faults=self.faults, admission=self.admission)
        self.app = App(
            handlers=handlers,
            registry=self.registry,
            controls=controls,
            faults=self.faults,
            watches=self._watches,
        )
        """The ASGI application, for clients in the same process."""

    @property
    def url(self) -> str:
        """Where it listens, without a trailing slash."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    async def start(self) -> None:
        """Listen; raises OSError when the address is taken."""
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        listener = socket.create_server((self._host, self._port), family=family, backlog=2048)
        # Inherited by every connection: without it an answer's body waits 40 ms for the client's ACK.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._port = listener.getsockname()[1]
        config = uvicorn.Config(
            self.app,
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            ws="none",
        )
        config.load()
        protocol = functools.partial(_Protocol, config=config, server_state=self._state, app_state={})
        self._server = await asyncio.get_running_loop().create_server(protocol, sock=listener)

    async def stop(self) -> None:
        """End every watch and connection, and stop listening."""
        if self._server is None:
            return
        self._server.close()
        self.faults.clear()
        for watch in list(self._watches):
            watch.end()
        for connection in list(self._state.connections):
            connection.shutdown()
        tasks = set(self._state.tasks)
        if tasks:
            _, unfinished = await asyncio.wait(tasks, timeout=_CLOSE_PATIENCE_S)
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)
        for connection in list(self._state.connections):
            connection.transport.abort()
        self._server = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig for kubectl and other clients; answers its path."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "sandbox", "cluster": {"server": self.url}}],
            "users": [{"name": "sandbox", "user": {}}],
            "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "sandbox"}}],
            "current-context": "sandbox",
        }
        path.write_text(yaml.safe_dump(config))
        return path

    def load(self, plural: str, manifests: Iterable[Manifest]) -> int:
        """Create many complete objects at once, with no rule applied: see ``Store.load``."""
        return self.store.load(kind_of(plural), manifests)

    def objects(self, plural: str) -> list[Manifest]:
        """Every object of a resource as it is now, in order of namespace and name."""
        return [record.manifest() for record in self.store.page(kind_of(plural)).records]

    @property
    def open_watches(self) -> int:
        """How many watches are open."""
        return len(self._watches)

    def send_bookmarks(self) -> None:
        """Send a bookmark now on every watch that allows them."""
        for watch in self._watches:
            watch.send_bookmark()

    def _cut_watches(self, client: str) -> int:
        chosen = [watch for watch in self._watches if watch.caller.is_client(client)]
        for watch in chosen:
            watch.cut()
        return len(chosen)
