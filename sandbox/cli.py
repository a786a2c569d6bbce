"""The console script ``gpushare-sandbox``.

Each sub-command imports its module when it runs, so that none pays for the others.
"""

import argparse
import asyncio
import importlib
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

_PORT_MAX = 65535

# Command → its module, with `add_arguments` and the coroutine function `run_<command>`, and its help.
_MODULES = {
    "node": ("sandbox.kubelet.run", "run one node: a kubelet stand-in on real unix sockets"),
    "scheduler": ("sandbox.scheduler.run", "run the kube-scheduler stand-in against an extender"),
    "demo": ("sandbox.demo.run", "start a whole cluster on this machine and watch pods arrive on cards"),
}


def main(arguments: list[str] | None = None) -> int:
    """Run a sub-command; answers the exit code."""
    parser = argparse.ArgumentParser(prog="gpushare-sandbox", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_api(commands)
    arguments = sys.argv[1:] if arguments is None else arguments
    for command, (module, summary) in _MODULES.items():
        _add_module(commands, command, module=module, summary=summary, is_chosen=command in arguments[:1])
    options = parser.parse_args(arguments)
    return int(options.run(options))


def _add_api(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("api", help="run the API server alone, for any Kubernetes client")
    parser.add_argument(
        "--listen",
        type=address,
        default=("127.0.0.1", 0),
        metavar="HOST:PORT",
        help="port 0 takes a free one (default 127.0.0.1:0)",
    )
    parser.add_argument(
        "--kubeconfig-out", type=Path, metavar="FILE", help="write a kubeconfig for clients there"
    )
    parser.add_argument("--mutating-webhook", metavar="URL", help="called for every new pod; may patch it")
    parser.add_argument("--validating-webhook", metavar="URL", help="called for every new pod; may refuse it")
    parser.set_defaults(run=_run_api)


def _add_module(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    command: str,
    *,
    module: str,
    summary: str,
    is_chosen: bool,
) -> None:
    parser = commands.add_parser(command, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
    if not is_chosen:
        return
    room = importlib.import_module(module)
    room.add_arguments(parser)
    run = getattr(room, f"run_{command}")
    parser.set_defaults(run=lambda options: _run_module(run, options))


def _run_module(
    run: Callable[[argparse.Namespace], Coroutine[Any, Any, int | None]], options: argparse.Namespace
) -> int:
    from gpushare.errors import GpuShareError
    from kubeapi import logs

    logs.configure("info")
    try:
        return asyncio.run(run(options)) or 0
    except (GpuShareError, OSError, ValueError) as error:
        print(f"gpushare-sandbox {options.command}: {error}", file=sys.stderr)
        return 1


def address(text: str) -> tuple[str, int]:
    """HOST:PORT, or [IPv6]:PORT."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > _PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def _run_api(options: argparse.Namespace) -> int:
    import uvloop

    from sandbox.apiserver import ApiServer

    host, port = options.listen
    server = ApiServer(
        host=host,
        port=port,
        mutating_webhook=options.mutating_webhook,
        validating_webhook=options.validating_webhook,
    )

    async def serve() -> int:
        stopped = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        try:
            await server.start()
        except OSError as error:
            print(f"cannot listen on {host} port {port}: {error.strerror or error}", file=sys.stderr)
            return 1
        try:
            if options.kubeconfig_out:
                server.kubeconfig(options.kubeconfig_out)
        except OSError as error:
            print(f"cannot write {options.kubeconfig_out}: {error.strerror or error}", file=sys.stderr)
            return 1
        else:
            print(f"API server ready on {server.url}", flush=True)
            await stopped.wait()
        finally:
            await server.stop()
        return 0

    return uvloop.run(serve())


if __name__ == "__main__":
    sys.exit(main())
