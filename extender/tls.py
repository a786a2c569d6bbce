"""TLS for the listeners: certificates that can be replaced while connections are open.

New files are first read into a context of their own. Only when certificate, key and client CA are there and
belong together does it take the old one's place, so a pair that is half written harms nobody. Each handshake
gets the newest context; connections that are open keep theirs.
"""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from pathlib import Path

from gpushare.errors import GpuShareError
from kubeapi.files import FileWatch

log = logging.getLogger(__name__)


class TlsError(GpuShareError):
    """Certificate, key or client CA cannot be used."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TlsFiles:
    """PEM files."""

    cert: Path
    """The certificate, then those that lead to its CA."""
    key: Path
    """Its private key, not encrypted."""
    client_ca: Path | None = None
    """Callers must show a certificate of one of these CAs; without it nobody is asked for one."""

    @property
    def paths(self) -> tuple[Path, ...]:
        return (self.cert, self.key, *([self.client_ca] if self.client_ca else []))


class ServerTls:
    """What one listener shows, and whom it lets in."""

    def __init__(self, files: TlsFiles) -> None:
        """Raises `TlsError` naming the file."""
        self.files = files
        self.watch = FileWatch(*files.paths)
        self._current = _read(files)
        self.context = _read(files)
        """The context to listen with."""
        self.context.sni_callback = self._choose

    def reload(self) -> None:
        """Use what is in the files now; if that cannot be used, go on with what was and log why."""
        try:
            self._current = _read(self.files)
        except TlsError as error:
            log.error("certificate unchanged, the new one cannot be used: %s", error)  # noqa: TRY400 — the sentence says it
        else:
            log.info("certificate read cert=%s client_ca=%s", self.files.cert, self.files.client_ca)

    def _choose(self, handshake: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> int | None:
        """OpenSSL calls this for every handshake, with and without a server name."""
        if self.files.client_ca and handshake.session_reused:
            # TLS 1.2 by session ID, which Python cannot switch off: the CA that vouched may be gone.
            return ssl.ALERT_DESCRIPTION_HANDSHAKE_FAILURE
        handshake.context = self._current
        return None


def _read(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_TICKET  # a resumed session is not asked for its certificate again
    context.num_tickets = 0
    for path in files.paths:
        _check_readable(path)
    try:
        context.load_cert_chain(files.cert, files.key, password=lambda: _refuse_encrypted(files.key))
    except (ssl.SSLError, ValueError) as error:
        if getattr(error, "reason", "") == "KEY_VALUES_MISMATCH":
            raise TlsError(
                f"the key in {files.key} is not that of the certificate in {files.cert}"
            ) from error
        raise TlsError(f"no certificate and key in PEM in {files.cert} and {files.key}: {error}") from error
    if files.client_ca:
        try:
            context.load_verify_locations(files.client_ca)
        except ssl.SSLError as error:
            raise TlsError(f"no CA certificate in PEM in {files.client_ca}: {error}") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _check_readable(path: Path) -> None:
    try:
        path.read_bytes()
    except OSError as error:
        raise TlsError(f"{path}: {error.strerror or error}") from error


def _refuse_encrypted(path: Path) -> str:
    raise TlsError(f"the key in {path} is encrypted: there is nobody to type a password")
