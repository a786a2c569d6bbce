"""`gpushare-sandbox node`: one node in a process of its own."""

import argparse
import asyncio
import signal
from pathlib import Path

from kubeapi.client import KubeApi
from sandbox.kubelet.node import Node, NodeSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of the `node` command."""
    parser.add_argument("--kubeconfig", type=Path, required=True, help="the cluster to join")
    parser.add_argument("--node-name", required=True, help="name of the Node object")
    parser.add_argument(
        "--kubelet-dir",
        type=Path,
        required=True,
        help="folder for device-plugins/ and pod-resources/; keep its path short",
    )
    parser.add_argument(
        "--stop-seconds", type=float, default=0.0, help="how long the containers of a deleted pod take to end"
    )


async def run_node(args: argparse.Namespace) -> None:
    """Run a node until SIGTERM or SIGINT; prints one line when it is ready.

    Raises `SocketPathError` for a folder whose path is too long, and `ApiError` for an unusable kubeconfig.
    """
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    settings = NodeSettings(
        name=args.node_name, kubelet_dir=args.kubelet_dir.absolute(), stop_seconds=args.stop_seconds
    )
    async with await KubeApi.connect(args.kubeconfig, user_agent="gpushare-sandbox-node") as api:
        node = Node(api=api, settings=settings)
        await node.start()
        announcement = asyncio.create_task(_announce(node))
        await ended.wait()
        announcement.cancel()
        await node.stop()


async def _announce(node: Node) -> None:
    await node.ready()
    print(f"node {node.settings.name} ready, kubelet folder {node.settings.kubelet_dir}", flush=True)
