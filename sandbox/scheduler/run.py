"""`gpushare-sandbox scheduler`: the stand-in in a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
from pathlib import Path

from gpushare.names import DEFAULT_MEMORY_RESOURCE
from kubeapi.client import KubeApi
from sandbox.scheduler.extender import ExtenderClient, ExtenderSettings
from sandbox.scheduler.scheduler import Scheduler, SchedulerSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of the `scheduler` command."""
    defaults = SchedulerSettings()
    parser.add_argument("--kubeconfig", type=Path, required=True, help="the cluster to schedule for")
    parser.add_argument(
        "--extender",
        required=True,
        metavar="URL",
        help="urlPrefix of the extender's filter, prioritize, bind",
    )
    parser.add_argument(
        "--scheduler-name",
        action="append",
        metavar="NAME",
        help=f"whose pods to bind; may be repeated (default {' and '.join(defaults.scheduler_names)})",
    )
    parser.add_argument(
        "--resource",
        default=DEFAULT_MEMORY_RESOURCE,
        help="managed resource: who names it is shown to the extender (default %(default)s)",
    )
    parser.add_argument("--weight", type=int, default=1, help="factor of the extender's scores")
    parser.add_argument(
        "--node-cache-capable",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="send node names (default) or whole nodes",
    )
    parser.add_argument(
        "--first-backoff", type=float, default=defaults.first_backoff, metavar="SECONDS", help="doubles up to"
    )
    parser.add_argument("--longest-backoff", type=float, default=defaults.longest_backoff, metavar="SECONDS")


async def run_scheduler(args: argparse.Namespace) -> None:
    """Schedule until SIGTERM or SIGINT. Raises `ApiError` for an unusable kubeconfig."""
    extender = ExtenderSettings(
        url=args.extender,
        managed_resource=args.resource,
        weight=args.weight,
        node_cache_capable=args.node_cache_capable,
    )
    settings = SchedulerSettings(
        scheduler_names=tuple(args.scheduler_name or SchedulerSettings().scheduler_names),
        first_backoff=args.first_backoff,
        longest_backoff=args.longest_backoff,
    )
    async with (
        await KubeApi.connect(args.kubeconfig, user_agent="gpushare-sandbox-scheduler") as api,
        ExtenderClient(extender) as client,
    ):
        running = asyncio.create_task(Scheduler(api=api, extender=client, settings=settings).run())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, running.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await running
