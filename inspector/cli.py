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
import re
import select
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
from gpushare.release import NAMESPACE
from inspector.details import details
from inspector.errors import OutputError
from inspector.patience import Patience
from inspector.problems import notes
from inspector.source import Source
from inspector.summary import summary
from inspector.usage import used_bytes
from inspector.wide import wide
from kubeapi.client import KubeApi

PROGRAM = "kubectl-inspect-gpushare"

_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # the former is ten times faster, where it is built

_REST = 3.0  # times as long as a look took: a large cluster is not asked without a break
# Kubernetes' DNS-1123 label (namespaces) and subdomain (nodes) with their longest lengths (1.36).
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_MAX, _SUBDOMAIN_MAX = 63, 253
_BETWEEN = {"json": "", "yaml": "---\n"}
"""What parts two documents of a watch; tables have an empty line."""
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
  1  no such node, neither the extender nor the API server answered, or the output cannot be written
  2  usage

The answer is the extender's own, asked for through the API server (get of services/proxy), or, where that is
not possible, computed from lists of nodes and pods; a remark says so. gpushare is looked for by the labels of
its Service, else in namespace {NAMESPACE}.
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command and exit with its code."""
    options = parse(argv)
    if not sys.stdout:  # None where it was closed before we were started
        _tell("error: standard output is closed")
        sys.exit(1)
    gc.disable()  # it would go through 200,000 objects again and again, none of them garbage
    try:
        code = asyncio.run(run(options))
    except KeyboardInterrupt:
        code = 0 if options.watch else 130
    except BrokenPipeError:  # whoever read has seen enough
        _drop_output()
        code = 0
    except OutputError as error:
        _fail(error)
        _drop_output()
        code = 1
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
        _fail(error)
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
    parser.add_argument(
        "-w",
        "--watch",
        action="store_true",
        help="print again whenever it has changed (json: a document a line; yaml: --- between documents)",
    )
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
    for node in options.nodes:
        if not _is_name(node, _SUBDOMAIN, longest=_SUBDOMAIN_MAX):
            _parser().error(f"{node!r} cannot be a node's name (a DNS subdomain: a-z, 0-9, '-', '.')")
    if options.namespace is not None and not _is_name(options.namespace, _LABEL, longest=_LABEL_MAX):
        _parser().error(f"{options.namespace!r} cannot be a namespace's name (a DNS label: a-z, 0-9, '-')")
    if not options.interval > 0:
        _parser().error("--interval must be more than 0 seconds")
    if options.resource is not None:
        try:
            Names.of(options.resource)
        except ResourceNameError as error:
            _parser().error(str(error))


def _is_name(text: str, pattern: str, *, longest: int) -> bool:
    return len(text) <= longest and re.fullmatch(pattern, text) is not None


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
                        between = "" if shown is None else _BETWEEN.get(options.output, "\n")
                        _redraw(text, remarks, screen=screen, between=between)
                        shown = text, remarks
                    gc.collect()
                    _check_reader(screen)
                    await asyncio.sleep(max(options.interval, _REST * took))
        except GpuShareError as error:
            _fail(error)
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
        self._patience = Patience(tell=_tell)
        self._source = Source(
            api,
            namespace=options.namespace,
            resource=options.resource,
            say=self._remarks.append,
            patience=self._patience,
        )

    async def once(self) -> tuple[str, list[str]]:
        """The text to print, and the remarks that belong to it. Raises `GpuShareError`."""
        self._remarks.clear()
        nodes = list(dict.fromkeys(self._options.nodes))
        text = await self._text(await self._source.inspect(nodes))
        return text, list(self._remarks)

    async def _text(self, inspection: Inspection) -> str:
        match self._options.output:
            case "json":
                indent = None if self._options.watch else 2
                return inspection.model_dump_json(by_alias=True, indent=indent) + "\n"
            case "yaml":
                dumped: str = yaml.dump(inspection.model_dump(by_alias=True), Dumper=_DUMPER, sort_keys=False)
                return dumped
            case "wide":
                nodes = {node.name for node in inspection.nodes}
                say: Callable[[str], None] = self._remarks.append
                with self._patience.waiting("the device plugins' metrics"):
                    used = await used_bytes(
                        self._api, namespace=self._options.namespace, nodes=nodes, say=say
                    )
                return wide(inspection, used=used)
            case _ if self._options.details:
                return details(inspection)
        self._remarks.extend(notes(inspection))
        return summary(inspection)


def _redraw(text: str, remarks: Sequence[str], *, screen: TextIO, between: str) -> None:
    _show((_CLEAR if screen.isatty() else between) + text, remarks)


def _show(text: str, remarks: Sequence[str]) -> None:
    """Raises `BrokenPipeError` when nobody reads any more, and `OutputError`."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"standard output cannot be written: {error.strerror or error}") from error
    for remark in remarks:
        _tell(remark)


def _check_reader(screen: TextIO) -> None:
    """Raise `BrokenPipeError` when nobody reads any more: the next write would, but may be hours away."""
    poll = select.poll()
    poll.register(screen.fileno(), 0)  # what is wrong is told without being asked for
    if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0)):
        raise BrokenPipeError


def _tell(remark: str) -> None:
    with contextlib.suppress(OSError, AttributeError):  # full, or closed (None): nowhere to complain to
        sys.stderr.write(f"{remark}\n")
        sys.stderr.flush()


def _fail(error: Exception) -> None:
    for line in str(error).splitlines():
        _tell(f"error: {line}")


def _drop_output() -> None:
    """Let what is still buffered go nowhere, instead of failing once more at the very end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
