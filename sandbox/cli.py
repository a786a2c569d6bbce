"""The console script ``gpushare-sandbox``.

Each sub-command imports its module when it runs, so that none pays for the others.
"""

import argparse
import asyncio
import signal
import sys
from pathlib import Path

_PORT_MAX = 65535


def main(arguments: list[str] | None = None) -> int:
    """Run a sub-command; answers the exit code."""
    parser = argparse.ArgumentParser(prog="gpushare-sandbox", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_api(commands)
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
