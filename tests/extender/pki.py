"""Certificates for the tests, made with `openssl`; tests that need them are skipped where it is missing."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Self

import pytest

OPENSSL = shutil.which("openssl")
needs_openssl = pytest.mark.skipif(
    OPENSSL is None, reason="openssl, which makes the certificates, is missing"
)

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class Pair:
    """A certificate and its key."""

    def __init__(self, stem: Path) -> None:
        self.cert = stem.with_suffix(".crt")
        self.key = stem.with_suffix(".key")

    def copy_to(self, other: Pair) -> None:
        """Put this pair in another's place."""
        shutil.copy(self.cert, other.cert)
        shutil.copy(self.key, other.key)


class Authority:
    """A CA that signs for 127.0.0.1 and localhost."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        self.pair = Pair(folder / name)
        self._names = folder / "names.ext"
        self._names.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        _openssl(
            "req", "-x509", *_KEY, "-keyout", self.pair.key, "-out", self.pair.cert, "-subj", f"/CN={name}"
        )

    @property
    def cert(self) -> Path:
        return self.pair.cert

    def issue(self, name: str) -> Pair:
        """A certificate whose common name is `name`."""
        pair = Pair(self.folder / f"{self.name}-{name}")
        request = pair.cert.with_suffix(".csr")
        _openssl("req", "-new", *_KEY, "-keyout", pair.key, "-out", request, "-subj", f"/CN={name}")
        signer = ("-CA", self.pair.cert, "-CAkey", self.pair.key, "-CAcreateserial")
        _openssl("x509", "-req", "-in", request, *signer, "-out", pair.cert, "-extfile", self._names)
        return pair

    def trust(self, *, show: Pair | None = None) -> ssl.SSLContext:
        """A client that trusts this CA, and shows a certificate if it has one."""
        context = ssl.create_default_context(cafile=str(self.cert))
        if show is not None:
            context.load_cert_chain(show.cert, show.key)
        return context


class Mount:
    """A ConfigMap or Secret as kubelet mounts it: files are links through `..data`, which is swapped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._versions = 0

    def update(self, **files: bytes | str) -> Self:
        """Write all files (`tls_crt` is `tls.crt`) into a new folder and swap the link, as one step."""
        self._versions += 1
        version = self.folder / f"..{self._versions}"
        version.mkdir()
        for name, content in files.items():
            file = name.replace("_", ".")
            (version / file).write_bytes(content if isinstance(content, bytes) else content.encode())
            if not (self.folder / file).is_symlink():
                (self.folder / file).symlink_to(Path("..data") / file)
        (self.folder / "..data_tmp").symlink_to(version.name)
        (self.folder / "..data_tmp").replace(self.folder / "..data")
        return self


def _openssl(*arguments: str | Path) -> None:
    assert OPENSSL is not None
    subprocess.run([OPENSSL, *arguments], check=True, capture_output=True)


def encrypt(pair: Pair, *, out: Path) -> None:
    """The key under a password."""
    _openssl("pkey", "-in", pair.key, "-aes256", "-passout", "pass:secret", "-out", out)
