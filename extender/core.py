"""The extender as a whole: state, watches and binder, started and stopped together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

from extender.binder import Binder
from extender.state import ClusterState
from gpushare.errors import GpuShareError
from gpushare.ledger import Ledger
from gpushare.names import Names
from gpushare.objects import Node, Pod
from gpushare.placement import Policy
from kubeapi.client import KubeApi
from kubeapi.reflector import Reflector

LIVE_PODS = "status.phase!=Succeeded,status.phase!=Failed"
"""Field selector of the pods' watch: an ended pod arrives as DELETED, and is never listed again."""


class NotReadyError(GpuShareError):
    """The watches have not synced: nothing may be answered from an empty ledger."""


class Extender:
    """Answers from `ledger`, binds with `binder`; ready once both watches have synced."""

    def __init__(self, api: KubeApi, *, names: Names, unit: str, policy: Policy) -> None:
        self.names = names
        self.policy = policy
        self.ledger = Ledger(names=names, unit=unit)
        self._state = state = ClusterState(self.ledger)
        self.binder = Binder(api=api, state=state, policy=policy)
        self._nodes = Reflector(api, "/api/v1/nodes", kind=Node, view=state.nodes)
        self._pods = Reflector(
            api, "/api/v1/pods", kind=Pod, view=state.pods, selectors={"fieldSelector": LIVE_PODS}
        )

    @property
    def waiting(self) -> Mapping[str, Pod]:
        """Unbound pods that ask for the memory resource, by UID."""
        return self._state.waiting

    @property
    def problem(self) -> str | None:
        """Why the extender is not ready, `None` when it is."""
        for reflector in (self._nodes, self._pods):
            if not reflector.synced.is_set():
                return f"{reflector.path} not synced: {reflector.problem}"
        return None

    def check_ready(self) -> None:
        """Raise `NotReadyError` until both watches have synced."""
        if self.problem:
            raise NotReadyError(f"GPU scheduler extender is not ready: {self.problem}")

    async def synced(self) -> None:
        """Wait until ready."""
        await self._nodes.synced.wait()
        await self._pods.synced.wait()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Extender]:
        """Watch while the context is open; on the way out let binds in flight end first."""
        watches = [asyncio.create_task(reflector.run()) for reflector in (self._nodes, self._pods)]
        try:
            yield self
        finally:
            await self.binder.close()
            for watch in watches:
                watch.cancel()
            await asyncio.gather(*watches, return_exceptions=True)
