"""Certificates of the chart: they fit who shows them and who checks them, and outlive upgrades."""

from __future__ import annotations

import base64
import ssl
import time
from pathlib import Path
from typing import Any

import pytest

from tests.chart.rendering import Object, Release, render
from tests.chart.secrets import upgrade

EXTERNAL: dict[str, Any] = {"scheduler": {"mode": "external"}, "external": {"clusterIP": "10.96.0.77"}}
SECRETS = {"gpushare-ca", "gpushare-extender-tls", "gpushare-scheduler-client", "gpushare-admission-tls"}


@pytest.mark.parametrize(
    ("values", "kubernetes", "names"),
    [
        ({}, "1.36", set()),
        ({}, "1.30", {"gpushare-ca", "gpushare-admission-tls"}),
        (EXTERNAL, "1.36", {"gpushare-ca", "gpushare-extender-tls", "gpushare-scheduler-client"}),
        (EXTERNAL, "1.30", SECRETS),
    ],
)
def test_there_are_certificates_where_somebody_shows_one(
    values: dict[str, Any], kubernetes: str, names: set[str]
) -> None:
    assert {each["metadata"]["name"] for each in render(values, kubernetes=kubernetes).of("Secret")} == names


@pytest.mark.parametrize("host", ["gpushare-extender.gpushare-system.svc", "10.96.0.77"])
def test_kube_scheduler_and_the_extender_trust_each_other(host: str, tmp_path: Path) -> None:
    release = render(EXTERNAL, kubernetes="1.30")
    server = context(ssl.PROTOCOL_TLS_SERVER, release, "gpushare-extender-tls", tmp_path)
    server.verify_mode = ssl.CERT_REQUIRED
    client = context(ssl.PROTOCOL_TLS_CLIENT, release, "gpushare-scheduler-client", tmp_path)

    assert greet(client, server, host=host) == "kube-scheduler"


def test_the_extender_lets_nobody_in_who_shows_another_cas_certificate(tmp_path: Path) -> None:
    release = render(EXTERNAL, kubernetes="1.30")
    stranger = render(EXTERNAL, kubernetes="1.29")
    server = context(ssl.PROTOCOL_TLS_SERVER, release, "gpushare-extender-tls", tmp_path)
    server.verify_mode = ssl.CERT_REQUIRED
    client = context(ssl.PROTOCOL_TLS_CLIENT, stranger, "gpushare-scheduler-client", tmp_path)
    client.load_verify_locations(file_of(release, "gpushare-extender-tls", "ca.crt", tmp_path / "ca"))

    with pytest.raises(ssl.SSLError):
        greet(client, server, host="10.96.0.77")


def test_the_api_server_trusts_the_webhooks_certificate(tmp_path: Path) -> None:
    release = render(kubernetes="1.30")
    server = context(ssl.PROTOCOL_TLS_SERVER, release, "gpushare-admission-tls", tmp_path)
    bundle = tmp_path / "bundle"
    bundle.write_bytes(base64.b64decode(webhook(release)["clientConfig"]["caBundle"]))
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(bundle)
    service = webhook(release)["clientConfig"]["service"]

    greet(client, server, host=f"{service['name']}.{service['namespace']}.svc")


def test_an_upgrade_keeps_what_is_there() -> None:
    first = render(EXTERNAL, kubernetes="1.30")

    later = upgrade({**EXTERNAL, "scheduler": {"mode": "external", "replicas": 3}}, there=first.objects)

    assert data(later) == data(first)
    assert webhook(later)["clientConfig"] == webhook(first)["clientConfig"]


def test_a_new_address_changes_the_certificate_that_names_it_and_no_other() -> None:
    first = render(EXTERNAL, kubernetes="1.30")
    values = {**EXTERNAL, "external": {"clusterIP": "10.96.0.78"}}

    later = upgrade(values, there=first.objects)

    assert changed(first, later) == {"gpushare-extender-tls"}


def test_a_certificate_is_made_anew_once_two_thirds_of_its_life_are_over() -> None:
    first = render({**EXTERNAL, "certificates": {"validityDays": 90}}, kubernetes="1.30")
    secret = first.one("Secret", "gpushare-extender-tls")
    due = int(secret["metadata"]["annotations"]["gpushare/renew-after"])
    secret["metadata"]["annotations"]["gpushare/renew-after"] = str(int(time.time()) - 1)

    later = upgrade(EXTERNAL, there=[*(each for each in first.objects if each != secret), secret])

    assert due - time.time() == pytest.approx(60 * 86400, abs=3600)
    assert changed(first, later) == {"gpushare-extender-tls"}


def test_without_its_secret_everything_is_of_a_new_ca() -> None:
    first = render(EXTERNAL, kubernetes="1.30")
    there = [each for each in first.objects if each["metadata"]["name"] != "gpushare-ca"]

    assert changed(first, upgrade(EXTERNAL, there=there)) == SECRETS


def test_no_pod_mounts_the_cas_key() -> None:
    for owner, spec in render(EXTERNAL, kubernetes="1.30").pod_specs():
        mounted = [volume.get("secret", {}).get("secretName") for volume in spec.get("volumes", ())]
        assert "gpushare-ca" not in mounted, owner
        assert "gpushare-scheduler-client" not in mounted, owner


def test_cert_manager_makes_the_same_ones() -> None:
    release = render({**EXTERNAL, "certificates": {"mode": "cert-manager"}}, kubernetes="1.30")
    server = release.one("Certificate", "gpushare-extender-tls")["spec"]

    assert release.of("Secret") == []
    assert {each["spec"]["secretName"] for each in release.of("Certificate")} == SECRETS
    assert "gpushare-extender.gpushare-system.svc" in server["dnsNames"]
    assert server["ipAddresses"] == ["10.96.0.77"]
    assert "server auth" in server["usages"]
    assert "client auth" in release.one("Certificate", "gpushare-scheduler-client")["spec"]["usages"]
    for each in release.of("ValidatingWebhookConfiguration") + release.of("MutatingWebhookConfiguration"):
        assert each["metadata"]["annotations"]["cert-manager.io/inject-ca-from"] == (
            "gpushare-system/gpushare-admission-tls"
        )


def test_cert_manager_can_use_an_issuer_that_is_there() -> None:
    issuer = {"name": "gpus", "kind": "ClusterIssuer"}
    release = render({**EXTERNAL, "certificates": {"mode": "cert-manager", "issuerRef": issuer}})

    assert release.of("Issuer") == []
    assert [each["spec"]["issuerRef"] for each in release.of("Certificate")] == [issuer, issuer]


def context(protocol: int, release: Release, secret: str, folder: Path) -> ssl.SSLContext:
    """What the holder of that Secret speaks with, trusting its ca.crt."""
    made = ssl.SSLContext(protocol)
    files = {
        key: file_of(release, secret, key, folder / f"{secret}-{key}")
        for key in ("tls.crt", "tls.key", "ca.crt")
    }
    made.load_cert_chain(files["tls.crt"], files["tls.key"])
    made.load_verify_locations(files["ca.crt"])
    return made


def file_of(release: Release, secret: str, key: str, path: Path) -> Path:
    path.write_bytes(base64.b64decode(release.one("Secret", secret)["data"][key]))
    return path


def greet(client: ssl.SSLContext, server: ssl.SSLContext, *, host: str) -> str | None:
    """One handshake in memory; answers the common name that the client showed."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    caller = client.wrap_bio(back, there, server_hostname=host)
    called = server.wrap_bio(there, back, server_side=True)
    for _ in range(10):
        for side in (caller, called):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    called.do_handshake()
    shown: Any = called.getpeercert() or {}
    return next(
        (value for part in shown.get("subject", ()) for key, value in part if key == "commonName"), None
    )


def webhook(release: Release) -> Object:
    (found,) = release.of("ValidatingWebhookConfiguration")
    return dict(found["webhooks"][0])


def data(release: Release) -> dict[str, Any]:
    return {each["metadata"]["name"]: each["data"] for each in release.of("Secret")}


def changed(first: Release, later: Release) -> set[str]:
    """The Secrets whose certificate is another."""
    was, now = data(first), data(later)
    return {name for name in was | now if was[name]["tls.crt"] != now[name]["tls.crt"]}
