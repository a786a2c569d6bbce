"""TLS: who is let in (V9), and certificates that change while the program runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from pathlib import Path

import httpx
import pytest

from extender.tls import ServerTls, TlsError, TlsFiles
from tests.extender.cluster import PREFIX, Cluster
from tests.extender.pki import Authority, Mount, Pair, encrypt, needs_openssl
from tests.extender.serving import ask, free_address, served
from tests.waiting import until

pytestmark = needs_openssl


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pki")


@pytest.fixture(scope="module")
def ours(folder: Path) -> Authority:
    return Authority(folder, "ours")


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Authority:
    return Authority(folder, "theirs")


@pytest.fixture(scope="module")
def server(ours: Authority) -> Pair:
    return ours.issue("server")


@pytest.fixture(scope="module")
def caller(ours: Authority) -> Pair:
    return ours.issue("kube-scheduler")


@pytest.fixture(scope="module")
def stranger(theirs: Authority) -> Pair:
    return theirs.issue("kube-scheduler")


def flags(pair: Pair, ca: Path | None = None) -> list[str]:
    return ["--tls-cert", str(pair.cert), "--tls-key", str(pair.key)] + (
        ["--client-ca", str(ca)] if ca else []
    )


async def refuses(url: str, tls: ssl.SSLContext) -> bool:
    """Whether no answer comes. With TLS 1.3 the client learns of it when it first reads."""
    try:
        await ask("GET", url, tls=tls)
    except (httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError):
        return True
    return False


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_V9_only_callers_with_a_certificate_of_the_client_ca_are_answered(
    cluster: Cluster,
    ours: Authority,
    server: Pair,
    caller: Pair,
    stranger: Pair,
    version: ssl.TLSVersion,
) -> None:
    address, view = free_address(), free_address()
    await cluster.node("n1", cards=[8192])
    pod = await cluster.pod("a", 1000)
    args = {"PodName": "a", "PodNamespace": "default", "PodUID": pod["metadata"]["uid"], "Node": "n1"}
    async with served(cluster, "--listen", address, "--view-listen", view, *flags(server, ours.cert)):
        for show in (None, stranger):
            tls = ours.trust(show=show)
            tls.minimum_version = tls.maximum_version = version
            with pytest.raises((httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError)):
                await ask("POST", f"https://{address}{PREFIX}/bind", tls=tls, body=args)
        plain = await asyncio.gather(ask("GET", f"http://{address}/healthz"), return_exceptions=True)
        assert isinstance(plain[0], httpx.TransportError)
        assert "nodeName" not in (await cluster.live("a"))["spec"]
        tls = ours.trust(show=caller)
        tls.minimum_version = tls.maximum_version = version
        async with asyncio.timeout(10):
            while (await ask("POST", f"https://{address}{PREFIX}/bind", tls=tls, body=args)).json()["Error"]:
                pass  # not synced yet
        assert (await cluster.live("a"))["spec"]["nodeName"] == "n1"
        assert (await ask("GET", f"http://{view}/readyz")).status_code == 200


async def test_without_a_client_ca_nobody_is_asked_and_old_protocols_are_refused(
    cluster: Cluster, ours: Authority, server: Pair
) -> None:
    address = free_address()
    async with served(cluster, "--listen", address, *flags(server)):
        assert (await ask("GET", f"https://{address}/healthz", tls=ours.trust())).text == "ok"
        old = ours.trust()
        old.set_ciphers("DEFAULT:@SECLEVEL=0")
        old.options &= ~ssl.OP_NO_TLSv1_1
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        assert await refuses(f"https://{address}/healthz", old)


async def test_admission_has_the_verbs_certificate_and_asks_for_none(
    cluster: Cluster, ours: Authority, server: Pair
) -> None:
    verbs, admission = free_address(), free_address()
    argv = ["--listen", verbs, "--admission-listen", admission, *flags(server, ours.cert)]
    async with served(cluster, *argv):
        assert (await ask("GET", f"https://{admission}/healthz", tls=ours.trust())).text == "ok"
        assert await refuses(f"https://{verbs}/healthz", ours.trust())


async def test_admission_can_have_its_own_certificate_beside_plain_verbs_on_loopback(
    cluster: Cluster, theirs: Authority
) -> None:
    verbs, admission = free_address(), free_address()
    pair = theirs.issue("webhook")
    own = ["--admission-tls-cert", str(pair.cert), "--admission-tls-key", str(pair.key)]
    async with served(cluster, "--listen", verbs, "--admission-listen", admission, *own):
        assert (await ask("GET", f"https://{admission}/healthz", tls=theirs.trust())).text == "ok"
        assert (await ask("GET", f"http://{verbs}/healthz")).text == "ok"


class Renewed:
    """The program with a Secret's mount for its certificate and client CA."""

    def __init__(self, folder: Path) -> None:
        self.mount = Mount(folder / "secret")
        self.address = free_address()

    def put(self, *, pair: Pair, ca: Authority, key: bytes | None = None) -> None:
        content = {"tls_crt": pair.cert.read_bytes(), "tls_key": key or pair.key.read_bytes()}
        self.mount.update(**content, ca_crt=ca.cert.read_bytes())

    @property
    def argv(self) -> list[str]:
        files = self.mount.folder
        return [
            "--listen", self.address, "--tls-cert", f"{files}/tls.crt", "--tls-key", f"{files}/tls.key",
            "--client-ca", f"{files}/ca.crt",
        ]  # fmt: skip

    @property
    def url(self) -> str:
        return f"https://{self.address}/healthz"

    async def accepts(self, tls: ssl.SSLContext) -> None:
        """Wait until this client is answered."""
        async with asyncio.timeout(10):
            while await refuses(self.url, tls):
                pass


async def test_a_new_certificate_and_client_ca_are_used_without_dropping_connections(
    cluster: Cluster, tmp_path: Path, ours: Authority, theirs: Authority, server: Pair, caller: Pair
) -> None:
    renewed = Renewed(tmp_path)
    renewed.put(pair=server, ca=ours)
    old = ours.trust(show=caller)
    new = theirs.trust(show=theirs.issue("new-caller"))
    async with served(cluster, *renewed.argv), httpx.AsyncClient(verify=old, timeout=10) as http:
        assert (await http.get(renewed.url)).text == "ok"
        (connection,) = http._transport._pool.connections  # type: ignore[attr-defined]
        assert await refuses(renewed.url, new)
        renewed.put(pair=theirs.issue("new-server"), ca=theirs)
        await renewed.accepts(new)
        assert await refuses(renewed.url, old)  # its CA no longer counts
        assert (await http.get(renewed.url)).text == "ok"  # on the connection that was open
        assert http._transport._pool.connections == [connection]  # type: ignore[attr-defined]


async def test_a_half_written_pair_is_logged_and_what_was_goes_on(
    cluster: Cluster,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    ours: Authority,
    server: Pair,
    caller: Pair,
) -> None:
    """The files are written in place, one after the other, as cert tools on a host do."""
    pair = Pair(tmp_path / "tls")
    server.copy_to(pair)
    after = ours.issue("after")
    address = free_address()
    url = f"https://{address}/healthz"
    tls = ours.trust(show=caller)

    def complaints() -> list[str]:
        return [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]

    async def subject() -> str:
        _, writer = await asyncio.open_connection(*address.split(":"), ssl=tls, server_hostname="localhost")
        certificate = writer.get_extra_info("peercert")
        writer.close()
        return str(certificate["subject"][0][0][1])

    async with served(cluster, "--listen", address, *flags(pair, ours.cert)):
        pair.cert.write_bytes(after.cert.read_bytes())
        await until(complaints, what="the mismatch is logged")
        assert complaints() == [
            "certificate unchanged, the new one cannot be used: "
            f"the key in {pair.key} is not that of the certificate in {pair.cert}"
        ]
        assert (await ask("GET", url, tls=tls)).text == "ok"
        assert await subject() == "server"
        pair.key.write_bytes(after.key.read_bytes())
        async with asyncio.timeout(10):
            while await subject() != "after":
                pass
        for path in (pair.cert, pair.key):
            path.unlink()
        await until(lambda: len(complaints()) > 1, what="the missing file is logged")
        assert "No such file" in complaints()[-1]
        assert (await ask("GET", url, tls=tls)).text == "ok"


def test_a_resumed_session_is_not_let_in_without_its_certificate(
    folder: Path, ours: Authority, server: Pair, caller: Pair
) -> None:
    """Sessions outlive a CA: TLS 1.2 offers them by ID, whatever the tickets are set to."""
    tls = ServerTls(TlsFiles(cert=server.cert, key=server.key, client_ca=ours.cert))
    client = ours.trust(show=caller)
    client.maximum_version = ssl.TLSVersion.TLSv1_2

    def shake(session: ssl.SSLSession | None) -> ssl.SSLSession | None:
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        theirs = client.wrap_bio(to_client, to_server, server_hostname="localhost", session=session)
        mine = tls.context.wrap_bio(to_server, to_client, server_side=True)
        steps = [theirs.do_handshake, mine.do_handshake] * 4 + [theirs.unwrap, mine.unwrap]
        for step in steps:  # a session that does not end well cannot be resumed
            with contextlib.suppress(ssl.SSLWantReadError):
                step()
        assert theirs.version() == "TLSv1.2"
        return theirs.session

    session = shake(None)
    assert session is not None
    with pytest.raises(ssl.SSLError, match=r"(?i)callback.failed"):
        shake(session)


def unusable(*, cert: Path, key: Path, client_ca: Path | None = None) -> str:
    with pytest.raises(TlsError) as caught:
        ServerTls(TlsFiles(cert=cert, key=key, client_ca=client_ca))
    return str(caught.value)


def test_files_that_cannot_be_used_are_named(
    tmp_path: Path, ours: Authority, server: Pair, caller: Pair
) -> None:
    missing, empty, secret = tmp_path / "missing", tmp_path / "empty", tmp_path / "secret"
    empty.touch()
    encrypt(server, out=secret)
    assert unusable(cert=missing, key=server.key) == f"{missing}: No such file or directory"
    assert unusable(cert=server.cert, key=missing) == f"{missing}: No such file or directory"
    assert unusable(cert=server.cert, key=server.key, client_ca=tmp_path) == f"{tmp_path}: Is a directory"
    assert f"no certificate and key in PEM in {empty}" in unusable(cert=empty, key=server.key)
    assert f"{server.cert} and {empty}" in unusable(cert=server.cert, key=empty)
    assert f"the key in {caller.key} is not that of" in unusable(cert=server.cert, key=caller.key)
    assert f"the key in {secret} is encrypted" in unusable(cert=server.cert, key=secret)
    said = unusable(cert=server.cert, key=server.key, client_ca=empty)
    assert f"no CA certificate in PEM in {empty}" in said


async def test_an_unusable_file_ends_the_start(cluster: Cluster, tmp_path: Path, server: Pair) -> None:
    address, missing = free_address(), tmp_path / "missing.key"
    argv = ["--listen", address, "--tls-cert", str(server.cert), "--tls-key", str(missing)]
    with pytest.raises(TlsError, match=f"{missing}: No such file"):
        async with served(cluster, *argv):
            pass
    with socket.create_server(("127.0.0.1", int(address.split(":")[1]))):
        pass  # nobody listens
