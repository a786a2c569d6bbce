"""Which address answers what, and what is refused before anything is started."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from extender.listeners import open_listeners
from extender.settings import ExtenderSettings, is_loopback
from kubeapi.configfile import SettingsRefused
from kubeapi.listen import ListenError
from kubeapi.settings import read
from tests.extender.cluster import PREFIX, Cluster
from tests.extender.serving import ask, free_address, served

VERBS = [("POST", f"{PREFIX}/{verb}") for verb in ("filter", "prioritize", "bind")]
ADMISSION = [("POST", "/admission/mutate"), ("POST", "/admission/validate")]
VIEWS = [("GET", f"{PREFIX}/inspect"), ("GET", f"{PREFIX}/inspect/n1"), ("GET", "/version")]
PROBES = [("GET", "/healthz"), ("GET", "/readyz")]


async def answered(address: str) -> set[tuple[str, str]]:
    """What an address has a route for."""
    routes = set()
    for method, path in VERBS + ADMISSION + VIEWS + PROBES:
        answer = await ask(method, f"http://{address}{path}", body={} if method == "POST" else None)
        if answer.text != '{"detail":"Not Found"}':
            routes.add((method, path))
    return routes


async def test_each_address_answers_its_own_and_probes(cluster: Cluster) -> None:
    verbs, admission, view = free_address(), free_address(), free_address()
    async with served(cluster, "--listen", verbs, "--admission-listen", admission, "--view-listen", view):
        assert await answered(verbs) == {*VERBS, *PROBES}
        assert await answered(admission) == {*ADMISSION, *PROBES}
        assert await answered(view) == {*VIEWS, *PROBES}


async def test_what_has_no_address_of_its_own_is_served_on_listen(cluster: Cluster) -> None:
    verbs = free_address()
    async with served(cluster, "--listen", verbs):
        assert await answered(verbs) == {*VERBS, *ADMISSION, *VIEWS, *PROBES}


async def test_views_alone_can_be_moved(cluster: Cluster) -> None:
    verbs, view = free_address(), free_address()
    async with served(cluster, "--listen", verbs, "--view-listen", view, "--admission-listen", ""):
        assert await answered(verbs) == {*VERBS, *ADMISSION, *PROBES}
        assert await answered(view) == {*VIEWS, *PROBES}


@pytest.mark.parametrize("flag", ["--listen", "--admission-listen", "--view-listen"])
async def test_I3_a_port_in_use_on_any_address_is_named_before_anything_starts(
    cluster: Cluster, flag: str
) -> None:
    others = {other: free_address() for other in ("--listen", "--admission-listen", "--view-listen")}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        argv = [text for pair in (others | {flag: address}).items() for text in pair]
        with pytest.raises(ListenError, match=f"^{flag}: cannot listen on {address}: Address already in use"):
            async with served(cluster, *argv):
                pass
    assert cluster.api.open_watches == 0
    for listener in open_listeners(settings(*argv)):  # what it had taken before is free again
        listener.socket.close()


@pytest.mark.parametrize(
    ("flags", "fault"),
    [
        (
            {"--listen": "127.0.0.1:39999", "--view-listen": "127.0.0.1:39999"},
            "--view-listen 127.0.0.1:39999 is the address of --listen: give it another, or leave it out",
        ),
        (
            {"--listen": "127.0.0.1:39999", "--admission-listen": "localhost:39999"},
            "--admission-listen localhost:39999 is the address of --listen",
        ),
        (
            {"--listen": "127.0.0.1:39999", "--view-listen": "[::]:39999"},
            r"--view-listen \[::\]:39999 is the address of --listen",
        ),
        (
            {"--admission-listen": "[::1]:9443", "--view-listen": "[::]:9443"},
            "--view-listen .* is the address of --admission-listen",
        ),
    ],
)
def test_I3_one_address_for_two_things_names_both(flags: dict[str, str], fault: str) -> None:
    with pytest.raises(SettingsRefused, match=fault):
        settings("--insecure", *(text for pair in flags.items() for text in pair))


@pytest.mark.parametrize(
    ("listen", "view"),
    [
        ("127.0.0.1:39999", "[::]:39998"),
        ("127.0.0.1:39999", "127.0.0.2:39999"),
        ("127.0.0.1:39999", "[::1]:39999"),
        ("127.0.0.1:0", "127.0.0.1:0"),
    ],
)
def test_I3_addresses_that_differ_are_taken(listen: str, view: str) -> None:
    assert settings("--listen", listen, "--view-listen", view).view_listen == view


def settings(*argv: str) -> ExtenderSettings:
    return read(ExtenderSettings, program="gpushare-extender", argv=argv)


def refusal(*argv: str) -> str:
    with pytest.raises(SettingsRefused) as caught:
        settings(*argv)
    (fault,) = caught.value.faults
    return fault


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("127.0.0.1:1", True),
        ("127.9.8.7:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.1:1", False),
        ("128.0.0.1:1", False),
        ("[::ffff:127.0.0.1]:1", False),
        ("[fd00::1]:1", False),
        ("localhost.example:1", False),
        ("node-1:1", False),
    ],
)
def test_plain_http_for_the_verbs_and_for_admission_stays_on_loopback(address: str, loopback: bool) -> None:  # noqa: FBT001
    assert is_loopback(address) is loopback
    if loopback:
        settings("--listen", address)
        settings("--admission-listen", address)
    else:
        said = refusal("--listen", address)
        assert said.startswith(f"--listen {address} lets anybody who can reach it bind pods")
        assert "--insecure" in said
        one_sided = refusal("--listen", address, "--tls-cert", "/c", "--tls-key", "/k")
        assert one_sided == said, "encrypted is not enough: nobody was asked who they are"
        assert refusal("--admission-listen", address).startswith(
            f"--admission-listen {address} needs a certificate"
        )
    assert settings("--listen", address, "--insecure").listen == address
    assert settings("--admission-listen", address, "--insecure").admission_listen == address
    assert settings("--view-listen", address).view_listen == address


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--tls-cert", "/c"], "--tls-cert and --tls-key need each other"),
        (["--tls-key", "/k"], "--tls-cert and --tls-key need each other"),
        (["--client-ca", "/ca"], "--client-ca needs --tls-cert and --tls-key"),
        (["--admission-tls-cert", "/c"], "--admission-tls-cert and --admission-tls-key need each other"),
        (
            ["--admission-tls-cert", "/c", "--admission-tls-key", "/k"],
            "--admission-tls-cert needs --admission-listen",
        ),
        (["--view-listen", "nowhere"], "--view-listen (or GPUSHARE_VIEW_LISTEN): must read HOST:PORT"),
        (["--reserve", "-1"], "--reserve (or GPUSHARE_RESERVE): Input should be greater than or equal to 0"),
        (["--shutdown-grace", "nan"], "--shutdown-grace (or GPUSHARE_SHUTDOWN_GRACE)"),
        (["--lease-name", ""], "--lease-name (or GPUSHARE_LEASE_NAME): must not be empty"),
    ],
)
def test_flags_that_cannot_be_meant_are_refused(argv: list[str], words: str) -> None:
    assert refusal(*argv).startswith(words)


async def test_L12_the_reserve_is_given_to_nobody(cluster: Cluster) -> None:
    await cluster.node("n1", cards=[8192])
    address = free_address()
    async with served(cluster, "--listen", address, "--reserve", "1024"):
        args = {"Pod": await cluster.pod("a", 7169), "NodeNames": ["n1"]}
        answer: dict[str, Any] = {}
        async with asyncio.timeout(10):
            while "n1" not in (answer.get("FailedAndUnresolvableNodes") or {}):  # not synced yet
                answer = (await ask("POST", f"http://{address}{PREFIX}/filter", body=args)).json()
        args = {"Pod": await cluster.pod("b", 7168), "NodeNames": ["n1"]}
        answer = (await ask("POST", f"http://{address}{PREFIX}/filter", body=args)).json()
        assert answer["NodeNames"] == ["n1"]
