"""The process: takes its addresses, starts everything in order, and ends it in order on SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable

from extender.admission import Additions
from extender.core import Extender
from extender.leaderlabel import LeaderLabel
from extender.listeners import Listeners, open_listeners
from extender.reloading import reloads
from extender.settings import ExtenderSettings
from kubeapi.client import KubeApi
from kubeapi.files import EVERY
from kubeapi.leases import Elector, new_identity

log = logging.getLogger(__name__)

AGENT = "gpushare-extender"


async def serve(settings: ExtenderSettings, *, reread: Callable[[], ExtenderSettings]) -> None:
    """Run until SIGTERM or SIGINT; raises `GpuShareError` when it cannot start.

    `reread` answers the settings as flags, environment and file have them now. A second signal ends at once.
    """
    signalled = asyncio.Event()

    def note(number: signal.Signals) -> None:
        if signalled.is_set():
            log.warning("second signal: ending at once")
            os._exit(128 + number)  # process 1 of a container cannot be ended by the signal itself
        signalled.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, note, number)
    await run(settings, reread=reread, signalled=signalled)


async def run(
    settings: ExtenderSettings,
    *,
    reread: Callable[[], ExtenderSettings],
    signalled: asyncio.Event,
    every: float = EVERY,
) -> None:
    """Run until `signalled`, then to the end of what is in hand; files are looked at `every` few seconds."""
    listeners = open_listeners(settings)  # before anything else: a port in use ends a second copy at once
    async with (
        await KubeApi.connect(settings.kubeconfig, user_agent=AGENT) as api,
        _election(settings) as (elector, label),
    ):
        extender = Extender(
            api,
            names=settings.names,
            unit=settings.unit,
            policy=settings.default_policy,
            reserve=settings.reserve,
            elector=elector,
            label=label,
            audit_every=settings.audit_interval,
            additions=Additions(
                slots=settings.add_slots,
                scheduler=settings.set_scheduler_name,
                runtime_class=settings.set_runtime_class_name,
            ),
        )
        async with (
            extender.running(),
            reloads(settings, extender=extender, listeners=listeners, reread=reread, every=every),
        ):
            servers = Listeners(extender, listeners)
            log.info("started api=%s policy=%s addresses=%s", api.host, settings.policy, servers.addresses)
            settling = asyncio.create_task(spare_the_first_list(extender))
            serving = asyncio.create_task(servers.serve())
            ending = asyncio.create_task(signalled.wait())
            await asyncio.wait([serving, ending], return_when=asyncio.FIRST_COMPLETED)
            ending.cancel()
            settling.cancel()
            log.info("stopping grace=%gs", settings.shutdown_grace)
            extender.drain()
            await asyncio.wait([serving], timeout=settings.shutdown_grace)
            servers.stop()
            await serving
    log.info("stopped")


async def spare_the_first_list(extender: Extender) -> None:
    """Once synced, take what is there out of the garbage collector's sight.

    A cluster's nodes and pods are a million objects that stay. Walking through all of them stops every verb
    for tens of milliseconds, again and again: the slowest of 100 binds takes 190 ms with it and 120 without.
    """
    await extender.synced()
    gc.collect()
    gc.freeze()


@contextlib.asynccontextmanager
async def _election(settings: ExtenderSettings) -> AsyncIterator[tuple[Elector | None, LeaderLabel | None]]:
    """The candidate for leadership and its label, on connections where no renewal waits behind binds."""
    if not settings.leader_elect:
        yield None, None
        return
    agent = f"{AGENT}/leader-election"
    async with await KubeApi.connect(settings.kubeconfig, user_agent=agent) as api:
        label = None
        if settings.leader_label:
            pod, namespace = settings.pod_name, settings.pod_namespace
            label = LeaderLabel(api, key=settings.leader_label, pod=pod, namespace=namespace)
        elector = Elector(
            api, name=settings.lease_name, namespace=settings.lease_namespace, identity=new_identity()
        )
        yield elector, label
