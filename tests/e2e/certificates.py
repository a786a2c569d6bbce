"""The keys and certificates of a cluster, made with `openssl`."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.e2e import binaries
from tests.extender.pki import Pair

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
_USES = "extendedKeyUsage=serverAuth,clientAuth\nsubjectAltName=IP:127.0.0.1,DNS:localhost\n"


class Keys:
    """One CA for servers and clients, and the pair that signs service accounts' tokens."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self.ca = Pair(folder / "ca")
        self.accounts = Pair(folder / "accounts")  # .crt holds the public key
        self._uses = folder / "uses.ext"
        self._uses.write_text(_USES)
        _openssl(
            "req",
            "-x509",
            *_KEY,
            "-keyout",
            self.ca.key,
            "-out",
            self.ca.cert,
            "-subj",
            "/CN=ca",
            "-days",
            "2",
        )
        _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", self.accounts.key)
        _openssl("ec", "-in", self.accounts.key, "-pubout", "-out", self.accounts.cert)

    def issue(self, name: str, *, user: str, group: str = "") -> Pair:
        """A certificate whose common name is `user`, as Kubernetes reads users and groups from one."""
        pair = Pair(self._folder / name)
        request = self._folder / f"{name}.csr"
        subject = f"/O={group}/CN={user}" if group else f"/CN={user}"
        _openssl("req", "-new", *_KEY, "-keyout", pair.key, "-out", request, "-subj", subject)
        signer = ("-CA", self.ca.cert, "-CAkey", self.ca.key, "-CAcreateserial", "-days", "2")
        _openssl("x509", "-req", "-in", request, *signer, "-out", pair.cert, "-extfile", self._uses)
        return pair


def _openssl(*arguments: str | Path) -> None:
    subprocess.run([binaries.require("openssl"), *arguments], check=True, capture_output=True)
