"""Where a program listens: addresses as text, and sockets opened before anything else is begun."""

from __future__ import annotations

import socket

from gpushare.errors import GpuShareError


class ListenError(GpuShareError):
    """An address cannot be listened on: taken, not this machine's, or a port that needs privileges."""


def split_address(address: str) -> tuple[str, int]:
    """`HOST:PORT` or `[IPv6]:PORT` in two; raises `ValueError`."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError("must read HOST:PORT, for example 127.0.0.1:9449 or [::]:9449")
    return host, int(port)


def are_one(address: str, other: str) -> bool:
    """Whether no two sockets can listen on both. Names but `localhost` are not looked up."""
    (host, port), (its_host, its_port) = split_address(address), split_address(other)
    if port != its_port or port == 0:  # 0: whichever port is free
        return False
    hosts = {_LOCALHOST.get(host, host), _LOCALHOST.get(its_host, its_host)}
    # `[::]` takes IPv4 too, see `open_socket`; 0.0.0.0 takes no IPv6.
    return len(hosts) == 1 or "::" in hosts or ("0.0.0.0" in hosts and not any(":" in host for host in hosts))


_LOCALHOST = {"localhost": "127.0.0.1"}


def open_socket(address: str) -> socket.socket:
    """Bind `HOST:PORT` and listen; raises `ListenError` naming it. `[::]` takes IPv4 too."""
    host, port = split_address(address)
    is_v6 = ":" in host
    try:
        listener = socket.create_server(
            (host, port),
            family=socket.AF_INET6 if is_v6 else socket.AF_INET,
            backlog=2048,
            dualstack_ipv6=is_v6 and host == "::" and socket.has_dualstack_ipv6(),
        )
    except OSError as error:  # socket.gaierror among them
        raise ListenError(f"cannot listen on {address}: {error.strerror or error}") from error
    # Accepted connections inherit it. asyncio sets it only where the listening socket names its protocol,
    # which create_server's does not, and without it answers wait 40 ms for a delayed acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
