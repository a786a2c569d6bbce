"""One extender on a virtual loop: started, asked, crashed at any moment, stopped.

A crash is a SIGKILL: nothing of the process runs any further, while the API server goes on with every
request that had reached it.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import msgspec

from extender.app import create_app, verb_routes
from extender.core import Extender
from gpushare.placement import Policy
from kubeapi.client import Response
from tests.build import NAMES
from tests.extender.cluster import PREFIX
from tests.inprocess import Application, LocalApi, post
from tests.virtual import VirtualLoop

_owner: contextvars.ContextVar[Replica | None] = contextvars.ContextVar("owner", default=None)


def watch_owners(loop: VirtualLoop) -> None:
    """Let the loop note which replica each task belongs to: whose code started it."""

    def task(
        loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        made = asyncio.Task(coroutine, loop=loop, **options)
        owner = _owner.get()
        if owner is not None:
            owner.adopt(made)
        return made

    loop.set_task_factory(task)  # type: ignore[arg-type]  # typeshed wants a generic factory


class Replica:
    """A process of the extender, by the name that faults know it by."""

    def __init__(self, loop: VirtualLoop, app: Application, *, name: str) -> None:
        self.name = name
        self._loop = loop
        self._tasks: set[asyncio.Task[Any]] = set()
        self._api = LocalApi(app, user_agent=name)
        self._api.spawn = self._spawn_server_side
        self._extender: Extender | None = None
        self._app: Application | None = None
        self._life: asyncio.Task[None] | None = None

    @property
    def extender(self) -> Extender:
        assert self._extender is not None
        return self._extender

    @property
    def is_running(self) -> bool:
        return self._life is not None

    @property
    def is_ready(self) -> bool:
        return self._app is not None and self.extender.problem is None

    def start(self) -> None:
        """Start a new process; it is ready once its lists have been answered."""
        assert self._life is None
        self._life = self._spawn(self._live())

    def crash(self) -> None:
        """End it here and now."""
        self._api.request = self._api.lines = _never  # type: ignore[assignment, method-assign]
        for task in list(self._tasks):
            task.cancel()
        while self._tasks:
            self._loop.turn()
        del self._api.request, self._api.lines
        self._life = self._app = None

    def stop(self) -> None:
        """End it with SIGTERM: binds in flight come to their end."""
        assert self._life is not None
        self._life.cancel()
        self._loop.run(asyncio.wait([self._life]))
        while self._tasks:
            self._loop.turn()
        self._life = self._app = None

    def call(self, verb: str, body: object) -> asyncio.Task[Response]:
        """Begin a call of kube-scheduler's."""
        assert self._app is not None
        return self._spawn(post(self._app, f"{PREFIX}/{verb}", msgspec.json.encode(body)))

    def ask(self, verb: str, pod: Mapping[str, Any], *, nodes: Sequence[str]) -> Any:
        """filter or prioritize: they wait for nothing, so the answer is there at once."""
        args = {"Pod": pod, "Nodes": None, "NodeNames": list(nodes)}
        answer = self._loop.run(_result(self.call(verb, args)))
        assert answer.status == 200, answer
        return answer.json()

    def bind(self, pod: Mapping[str, Any], *, node: str) -> asyncio.Task[Response]:
        """Begin a bind."""
        meta = pod["metadata"]
        args = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"]}
        return self.call("bind", args | {"Node": node})

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Note a task of this process."""
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)

    async def _live(self) -> None:
        self._extender = Extender(self._api, names=NAMES, unit="MiB", policy=Policy.BINPACK)
        self._app = create_app(self._extender, verb_routes)
        async with self._extender.running():
            await asyncio.Event().wait()

    def _spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        token = _owner.set(self)
        try:
            return self._loop.create_task(coroutine)
        finally:
            _owner.reset(token)

    def _spawn_server_side(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        token = _owner.set(None)
        try:
            return self._loop.create_task(coroutine)
        finally:
            _owner.reset(token)


async def _never(*args: Any, **options: Any) -> Any:
    await asyncio.Event().wait()


async def _result(task: asyncio.Task[Response]) -> Response:
    return await task
