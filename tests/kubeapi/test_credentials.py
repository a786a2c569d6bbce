"""Credentials that are replaced while a program runs: it goes by the new ones."""

from __future__ import annotations

import datetime
import json
import ssl
import types
from pathlib import Path
from typing import Any

import pytest
from kubernetes.aio.config import incluster_config

from kubeapi import credentials
from kubeapi.client import KubeApi
from kubeapi.errors import ApiUnreachable
from tests.extender.pki import Authority, needs_openssl
from tests.kubeapi.scripted import Script, answer, event, scripted, watch

pytestmark = pytest.mark.asyncio(loop_scope="module")


def kubeconfig(folder: Path, *, server: str, user: dict[str, Any]) -> Path:
    path = folder / "kubeconfig"
    written = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(json.dumps(written))
    return path


async def sent(script: Script, api: KubeApi) -> str:
    """What a request now says who we are."""
    script.then(answer({}))
    await api.request("GET", "/x")
    return script.asked[-1].headers["Authorization"]


class Clock:
    """The monotonic clock of `credentials`, moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(credentials, "_clock", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


async def test_a_token_file_is_read_again_within_a_minute(
    script: Script, tmp_path: Path, clock: Clock
) -> None:
    token = tmp_path / "token"
    token.write_text("one\n")
    path = kubeconfig(tmp_path, server=script.url, user={"tokenFile": str(token)})
    async with await KubeApi.connect(path, user_agent="t") as api:
        assert await sent(script, api) == "Bearer one"
        token.write_text("two\n")
        assert await sent(script, api) == "Bearer one", "not at every request"
        clock.now += credentials.EVERY
        assert await sent(script, api) == "Bearer two"


async def test_a_watch_that_is_opened_anew_shows_the_new_token(
    script: Script, tmp_path: Path, clock: Clock
) -> None:
    token = tmp_path / "token"
    token.write_text("one")
    path = kubeconfig(tmp_path, server=script.url, user={"tokenFile": str(token)})
    async with await KubeApi.connect(path, user_agent="t") as api:
        token.write_text("two")
        clock.now += credentials.EVERY
        script.then(watch(event("ADDED", "a", version=1)))
        assert [line async for line in api.lines("/watch", query={"watch": "1"}, idle=10.0)]
        assert script.asked[-1].headers["Authorization"] == "Bearer two"


async def test_a_token_file_that_is_away_for_a_moment_ends_nothing(
    script: Script, tmp_path: Path, clock: Clock
) -> None:
    token = tmp_path / "token"
    token.write_text("one")
    path = kubeconfig(tmp_path, server=script.url, user={"tokenFile": str(token)})
    async with await KubeApi.connect(path, user_agent="t") as api:
        token.unlink()
        clock.now += credentials.EVERY
        with pytest.raises(ApiUnreachable, match=r"credentials for GET /x.*token"):
            await api.request("GET", "/x")
        token.write_text("two")
        assert await sent(script, api) == "Bearer two", "it is looked for at once, not after a minute"


async def test_a_credential_plugin_is_asked_again_before_its_token_ends(
    script: Script, tmp_path: Path, clock: Clock
) -> None:
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=2)
    plugin, asked = tmp_path / "plugin", tmp_path / "asked"
    status = f'{{"token": "\'"$(wc -l < {asked})"\'", "expirationTimestamp": "{soon:%Y-%m-%dT%H:%M:%SZ}"}}'
    plugin.write_text(
        f"#!/bin/sh\necho x >> {asked}\n"
        f'printf \'%s\' \'{{"apiVersion": "client.authentication.k8s.io/v1", '
        f'"kind": "ExecCredential", "status": {status}}}\'\n'
    )
    plugin.chmod(0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "args": []}}
    path = kubeconfig(tmp_path, server=script.url, user=user)
    async with await KubeApi.connect(path, user_agent="t") as api:
        assert await sent(script, api) == "Bearer 1"
        clock.now += credentials.EVERY
        assert await sent(script, api) == "Bearer 2"


@needs_openssl
async def test_a_pods_token_is_read_again_within_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kubelet replaces it at four fifths of its life, an hour as a rule (1.36)."""
    authority = Authority(tmp_path, "ca")
    pair = authority.issue("api")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(pair.cert, pair.key)
    token = tmp_path / "token"
    token.write_text("one")
    later = datetime.timedelta()

    class Later(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return datetime.datetime.now(tz) + later

    async with scripted(tls=tls) as script:
        monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
        monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(authority.cert))
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", script.url.rpartition(":")[2])
        fake = types.SimpleNamespace(datetime=Later, timedelta=datetime.timedelta)
        monkeypatch.setattr(incluster_config, "datetime", fake)
        async with await KubeApi.connect(None, user_agent="t") as api:
            assert (await sent(script, api)).lower() == "bearer one"
            token.write_text("two")
            later = datetime.timedelta(seconds=61)
            assert (await sent(script, api)).lower() == "bearer two"
