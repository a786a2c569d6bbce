"""Sockets: connections that answer at once."""

import socket

import pytest

from kubeapi.listen import open_socket


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:0"])
def test_answers_do_not_wait_for_the_peers_acknowledgement(address: str) -> None:
    with (
        open_socket(address) as listener,
        socket.create_connection(listener.getsockname()[:2]) as _,
        listener.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
