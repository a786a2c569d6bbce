"""`kubectl inspect gpushare`: the command.

kubectl finds it by its name, `kubectl-inspect-gpushare`, and hands on all that follows `inspect gpushare`.
The table, or what was asked for instead, is all there is on standard output; remarks are on standard error.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

import yaml

from gpushare import __version__
from gpushare.errors import GpuShareError, ResourceNameError
from gpushare.inspection import Inspection
from gpushare.names import Names
from inspector.details import details
from inspector.problems import notes
from inspector.source import DEFAULT_NAMESPACE, Source
from inspector.summary import summary
from inspector.usage import used_bytes
from inspector.wide import wide
from kubeapi.client import KubeApi
from kubeapi.errors import ApiError, ApiRefused

PROGRAM = "kubectl-inspect-gpushare"

_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # the former is ten times faster, where it is built

_REST = 3.0  # times as long as a look took: a large cluster is not asked without a break
_CLEAR = "\x1b[H\x1b[2J"  # cursor home, screen empty
_EPILOG = f"""\
states (-d, -o wide):
  Assigned               kubelet was given the card
  WaitingForKubelet      bound to node and card, kubelet has not asked yet
  Binding                the bind is in flight
  NoAllocation           bound, but nobody chose a card: it bypassed the scheduler. Closes its node
  UnreadableAllocation   bound, and what it says of its card makes no sense. Closes its node
  MissingCard            its card is not on the node any more
The PENDING column of the table sums up what pods in the last three states ask for.

exit codes:
  0  the answer was printed (with --watch: until Ctrl-C)
  1  no such node, or neither the extender nor the API server answered
  2  usage

The answer is the extender's own, asked for through the API server (get of services/proxy), or, where that is
not possible, computed from lists of nodes and pods; a remark says so. gpushare is looked for by the labels of
its Service, else in namespace {DEFAULT_NAMESPACE}.
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command and exit with its code."""
    options = parse(argv)
    gc.disable()  # it would go through 200,000 objects again and again, none of them garbage
    try:
        code = asyncio.run(run(options))
    except KeyboardInterrupt:
        code = 0 if options.watch else 130
    except BrokenPipeError:  # whoever read has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the flags; what makes no sense ends the program with code 2."""
    options = _parser().parse_intermixed_args(argv)
    _check(options)
    return options


async def run(options: argparse.Namespace) -> int:
    """Print what was asked for and return the exit code; with `--watch` until cancelled."""
    if options.watch:
        return await _watch(options, screen=sys.stdout)
    try:
        async with await _connect(options) as api:
            _show(*await _Look(api, options).once())
    except GpuShareError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kubectl inspect gpushare",
        description="Show which pod sits on which GPU card, and what is left.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("nodes", metavar="NODE", nargs="*", help="only these nodes")
    parser.add_argument(
        "-d", dest="details", action="store_true", help="list the pods of every node and card"
    )
    parser.add_argument(
        "-o", "--output", choices=("table", "wide", "json", "yaml"), default="table", help="default: table"
    )
    parser.add_argument("-w", "--watch", action="store_true", help="print again whenever it has changed")
    parser.add_argument(
        "--interval", type=float, default=2.0, metavar="SECONDS", help="between two looks (default: 2)"
    )
    parser.add_argument("--context", help="context of the kubeconfig")
    parser.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="default: $KUBECONFIG, then ~/.kube/config"
    )
    parser.add_argument("-n", "--namespace", help="where gpushare runs")
    parser.add_argument(
        "--resource", help="memory resource (default: the extender's own, else aliyun.com/gpu-mem)"
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    return parser


def _check(options: argparse.Namespace) -> None:
    if options.details and options.output == "wide":
        _parser().error("-d is a table of its own: leave out -o wide")
    if not options.interval > 0:
        _parser().error("--interval must be more than 0 seconds")
    if options.resource is not None:
        try:
            Names.of(options.resource)
        except ResourceNameError as error:
            _parser().error(str(error))


async def _watch(options: argparse.Namespace, *, screen: TextIO) -> int:
    """Print whenever something has changed, until cancelled. What fails after the first time is tried again,
    with new credentials: those of a kubeconfig's command may have run out."""
    shown: object = None
    while True:
        try:
            async with await _connect(options) as api:
                look = _Look(api, options)
                while True:
                    begun = time.monotonic()
                    text, remarks = await look.once()
                    took = time.monotonic() - begun
                    if shown != (text, remarks):
                        _redraw(text, remarks, screen=screen, is_first=shown is None)
                        shown = text, remarks
                    gc.collect()
                    await asyncio.sleep(max(options.interval, _REST * took))
        except GpuShareError as error:
            print(f"error: {error}", file=sys.stderr, flush=True)
            if shown is None:
                return 1
            await asyncio.sleep(options.interval)


async def _connect(options: argparse.Namespace) -> KubeApi:
    return await KubeApi.connect_as_user(
        user_agent=f"{PROGRAM}/{__version__}", kubeconfig=options.kubeconfig, context=options.context
    )


class _Look:
    """Asks and writes down what was answered, as often as wanted."""

    def __init__(self, api: KubeApi, options: argparse.Namespace) -> None:
        self._api = api
        self._options = options
        self._remarks: list[str] = []
        self._source = Source(
            api, namespace=options.namespace, resource=options.resource, say=self._remarks.append
        )

    async def once(self) -> tuple[str, list[str]]:
        """The text to print, and the remarks that belong to it. Raises `GpuShareError`."""
        self._remarks.clear()
        nodes = list(dict.fromkeys(self._options.nodes))
        try:
            text = await self._text(await self._source.inspect(nodes))
        except ApiRefused as error:  # why the first way failed is half of the story
            raise ApiError(" ".join([*self._remarks, f"failed: {error}"])) from error
        return text, list(self._remarks)

    async def _text(self, inspection: Inspection) -> str:
        match self._options.output:
            case "json":
                return inspection.model_dump_json(by_alias=True, indent=2) + "\n"
            case "yaml":
                dumped: str = yaml.dump(inspection.model_dump(by_alias=True), Dumper=_DUMPER, sort_keys=False)
                return dumped
            case "wide":
                nodes = {node.name for node in inspection.nodes}
                say: Callable[[str], None] = self._remarks.append
                used = await used_bytes(self._api, namespace=self._options.namespace, nodes=nodes, say=say)
                return wide(inspection, used=used)
            case _ if self._options.details:
                return details(inspection)
        self._remarks.extend(notes(inspection))
        return summary(inspection)


def _redraw(text: str, remarks: Sequence[str], *, screen: TextIO, is_first: bool) -> None:
    if screen.isatty():
        screen.write(_CLEAR)
    elif not is_first:
        screen.write("\n")
    _show(text, remarks)


def _show(text: str, remarks: Sequence[str]) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
    with contextlib.suppress(BrokenPipeError):
        for remark in remarks:
            print(remark, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
