"""`gpushare-sandbox demo`: the command."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kubeapi.errors import ApiError
from sandbox.demo.cluster import Cluster
from sandbox.demo.processes import DemoError, Processes
from sandbox.demo.screen import Screen
from sandbox.demo.script import CARD, LATE_NODE, NODES, Script, Story, sample_files
from sandbox.demo.verdict import Seen, as_json, faults

_LONGEST_FOLDER = 40
"""Bytes: the sockets below it have 107 for their whole path."""
_LOOK_SECONDS = 0.5
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FOREIGN = ("http_proxy", "https_proxy", "all_proxy", "node_name")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of the `demo` command."""
    parser.add_argument(
        "--output",
        choices=("table", "json"),
        default="table",
        help="a live table (default), or only the result as JSON with the progress on standard error",
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="keep the cluster up, its page too, until Ctrl-C (make demo KEEP=1)",
    )


async def run_demo(args: argparse.Namespace) -> int:
    """Play the demo; the exit code is 0 only if every pod got what it asked for."""
    _drop_foreign_settings()
    sample_files()
    task = asyncio.current_task()
    assert task is not None
    caught: list[int] = []

    def end(number: int) -> None:
        caught.append(number)
        task.cancel()

    for number in _ENDING:
        asyncio.get_running_loop().add_signal_handler(number, end, number)
    try:
        return await _play(as_json_only=args.output == "json", keep=args.keep)
    except asyncio.CancelledError:
        if not caught:
            raise
        return 128 + caught[0]


async def _play(*, as_json_only: bool, keep: bool) -> int:
    with _folder() as folder:
        logs = folder / "logs"
        logs.mkdir()
        _log_to(logs / "demo.log")
        with Processes(logs) as processes:
            screen = Screen.on(stderr=as_json_only)
            try:
                async with Cluster(folder=folder, processes=processes, screen=screen) as cluster:
                    with screen:
                        story, seen, wrong = await _act(cluster, screen=screen)
                    if as_json_only:
                        print(json.dumps(as_json(seen), indent=2), flush=True)
                    else:
                        screen.end(cluster.board, sentences=() if wrong else story.sentences)
                    if keep and not wrong:
                        await _stay(cluster, screen=screen)
                    elif not wrong:
                        screen.say("the cluster and its page end here: make demo KEEP=1 keeps them up")
            except (DemoError, ApiError, TimeoutError) as error:
                wrong = [str(error) or "a part of the cluster did not answer in time"]
            if wrong:
                print(processes.tails(), file=sys.stderr)
    for fault in wrong:
        print(f"gpushare-sandbox demo: {fault}", file=sys.stderr)
    return 1 if wrong else 0


async def _act(cluster: Cluster, *, screen: Screen) -> tuple[Story, Seen, list[str]]:
    """Start everything, play, and look at the result."""
    screen.say("starting API server, extender and three nodes, each a process")
    await cluster.start()
    for name, cards in NODES.items():
        cluster.add_node(name, cards=cards)
    await cluster.nodes_ready(list(NODES))
    screen.say(f"all of it as a page: {cluster.page}")
    await cluster.schedule()
    cluster.add_node(LATE_NODE, cards=[CARD] * 4)  # comes up while the first pods arrive
    story = await Script(cluster=cluster, screen=screen).play()
    seen = Seen(
        nodes=cluster.board.nodes(),
        pods=cluster.board.pods(),
        booked=await cluster.inspect(),
        environments=cluster.environments(),
    )
    return story, seen, faults(seen, story=story, names=cluster.names)


async def _stay(cluster: Cluster, *, screen: Screen) -> None:
    """Keep the cluster up until a signal, which is its good end; raises `DemoError` if a part ends itself."""
    screen.say(f"the cluster stays up until Ctrl-C: {cluster.page}")
    screen.say(f"for kubectl: export KUBECONFIG={cluster.kubeconfig}")
    try:
        while True:
            cluster.check()
            await asyncio.sleep(_LOOK_SECONDS)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()


def _drop_foreign_settings() -> None:
    """Forget variables that would change the programs' settings, or send local calls to a proxy."""
    for key in list(os.environ):
        if key.startswith("GPUSHARE_") or key.lower() in _FOREIGN:
            del os.environ[key]


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A folder for the run, with a path short enough for sockets; gone afterwards."""
    parent = tempfile.gettempdir()
    if len(os.fsencode(parent)) > _LONGEST_FOLDER:
        parent = "/tmp"
    folder = Path(tempfile.mkdtemp(prefix="gs-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _log_to(path: Path) -> None:
    """Send the log of the demo's own process to a file: the screen belongs to the table."""
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level="INFO", handlers=[handler], force=True)
