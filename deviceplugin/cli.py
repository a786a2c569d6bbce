"""`gpushare-device-plugin`: reads the settings, runs the plugin, ends on SIGTERM and SIGINT."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import gpushare
from deviceplugin.errors import PluginError
from deviceplugin.plugin import Plugin
from deviceplugin.settings import PluginSettings
from deviceplugin.sources import card_source
from kubeapi import logs
from kubeapi.client import KubeApi
from kubeapi.errors import ApiError
from kubeapi.settings import load

PROGRAM = "gpushare-device-plugin"


def main(argv: Sequence[str] | None = None) -> None:
    """Run until a signal; exit code 2 for settings or a cards file that make no sense."""
    settings = load(PluginSettings, program=PROGRAM, argv=argv)
    logs.configure(settings.log_level)
    try:
        asyncio.run(run(settings))
    except (PluginError, ApiError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        sys.exit(2)


async def run(settings: PluginSettings) -> None:
    """Run the plugin until SIGTERM or SIGINT. Raises `PluginError` or `ApiError` for what cannot work."""
    source = card_source(
        settings.cards,
        sharing=settings.sharing(node=settings.node_name),
        switches=settings.switches,
        thresholds=settings.thresholds,
        interval=settings.health_interval,
    )
    kubeconfig = Path(settings.kubeconfig) if settings.kubeconfig else None
    agent = f"{PROGRAM}/{gpushare.__version__}"
    async with await KubeApi.connect(kubeconfig, user_agent=agent) as api:
        plugin = Plugin(
            api=api,
            source=source,
            node=settings.node_name,
            kubelet_dir=settings.kubelet_dir,
            names=settings.names,
            unit=settings.unit,
            slots=settings.slots,
        )
        work = asyncio.create_task(plugin.run())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, work.cancel)
        try:
            await work
        except asyncio.CancelledError:
            if not work.cancelled():
                raise


if __name__ == "__main__":
    main()
