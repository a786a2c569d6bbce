"""`gpushare-device-plugin`: reads the settings, runs the plugin, ends on SIGTERM and SIGINT."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence

import gpushare
from deviceplugin.errors import PluginError
from deviceplugin.plugin import Plugin
from deviceplugin.settings import PluginSettings
from deviceplugin.sources import card_source
from deviceplugin.uninstall import Uninstall
from kubeapi import logs
from kubeapi.client import KubeApi
from kubeapi.errors import ApiError
from kubeapi.listen import ListenError, open_socket
from kubeapi.settings import load

PROGRAM = "gpushare-device-plugin"


def main(argv: Sequence[str] | None = None) -> None:
    """Run until a signal, or uninstall.

    Exit code 2 for settings, cards or credentials with which nothing can work; 1 if something is left to
    uninstall.
    """
    settings = load(PluginSettings, program=PROGRAM, argv=argv)
    logs.configure(settings.log_level)
    try:
        asyncio.run(uninstall(settings) if settings.uninstall else run(settings))
    except (PluginError, ApiError, ListenError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        sys.exit(1 if settings.uninstall else 2)


async def uninstall(settings: PluginSettings) -> None:
    """Take off what the plugin wrote. Raises `UninstallError`, or `ApiError` for what cannot work."""
    node = None if settings.all_nodes else settings.node_name
    async with await _connect(settings) as api:
        nodes = await Uninstall(api, names=settings.names, node=node).run()
    print(f"{PROGRAM}: {nodes} {'node' if nodes == 1 else 'nodes'} cleaned")


async def run(settings: PluginSettings) -> None:
    """Run the plugin until SIGTERM or SIGINT. Raises `PluginError` or `ApiError` for what cannot work."""
    listener = open_socket(settings.metrics_listen) if settings.metrics_listen else None
    source = card_source(
        settings.cards,
        sharing=settings.sharing(node=settings.node_name),
        switches=settings.switches,
        thresholds=settings.thresholds,
        interval=settings.health_interval,
    )
    async with await _connect(settings) as api:
        plugin = Plugin(
            api=api,
            source=source,
            node=settings.node_name,
            kubelet_dir=settings.kubelet_dir,
            names=settings.names,
            unit=settings.unit,
            mode=settings.mode,
            slots=settings.slots,
            most_devices=settings.max_devices,
            handover=settings.handover,
            listener=listener,
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


async def _connect(settings: PluginSettings) -> KubeApi:
    agent = f"{PROGRAM}/{gpushare.__version__}"
    return await KubeApi.connect(settings.kubeconfig, user_agent=agent)


if __name__ == "__main__":
    main()
