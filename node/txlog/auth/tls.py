"""A master's certificates: read from a folder, tested before use, and read again when a file has changed.

The folder is a mounted Kubernetes Secret of type ``kubernetes.io/tls``. It has ``tls.crt`` (the certificate, then the
intermediate ones up to the CA), ``tls.key``, and ``ca.crt`` (the trusted authority). OpenSSL itself tests them, in a
handshake of both ends in memory. An error that would occur between masters thus occurs here first, by name.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from txlog.auth.file_fingerprint import FileFingerprint, fingerprint_files
from txlog.model.errors import BadInput
from txlog.telemetry.event_log import EventLog

RELOAD_CHECK_S: Final = 1.0
CERTIFICATE_FILE: Final = "tls.crt"
KEY_FILE: Final = "tls.key"
CA_FILE: Final = "ca.crt"
FILE_BYTES_MAX: Final = 1 << 20
HANDSHAKE_ROUNDS_MAX: Final = 20
"""Rounds of a handshake in memory; it takes three."""


class BadCertificates(BadInput):
    """Certificate files that are not valid. The message names the file and the expectation."""


class _LoadedContexts(NamedTuple):
    server: ssl.SSLContext
    client: ssl.SSLContext | None
    expires: float


class Certificates:
    """The certificates of one folder. With ``node`` they are for connections between masters: they must name that
    master, and both ends show one. None: for clients, which show none. :class:`BadCertificates` if they are not valid
    at the start. Later the previous ones stay in use, and the master logs ``CertificatesNotRead``."""

    def __init__(
        self,
        folder: Path,
        log: EventLog,
        *,
        node: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._node = node
        self._log = log
        self._clock = clock
        self._fingerprint = self._fingerprint_files()
        self._current = self._load()
        self._last_reload_check = clock()

    @property
    def server_context(self) -> ssl.SSLContext:
        """The context for an incoming connection."""
        self._reload_if_changed()
        return self._current.server

    @property
    def client_context(self) -> ssl.SSLContext:
        """The context for a connection to another master. :func:`dns_names` checks whether it is the right master."""
        self._reload_if_changed()
        assert self._current.client is not None, "certificates for clients are no master's to show"
        return self._current.client

    def is_current(self, shaken_with: ssl.SSLContext | None) -> bool:
        """Whether the handshake with that context was checked against the current certificates."""
        self._reload_if_changed()
        return shaken_with in (self._current.server, self._current.client)

    @property
    def expires(self) -> float:
        """When this master's own certificate expires; seconds since 1970."""
        return self._current.expires

    def _fingerprint_files(self) -> FileFingerprint:
        return fingerprint_files(self._folder / name for name in (CERTIFICATE_FILE, KEY_FILE, CA_FILE))

    def _reload_if_changed(self) -> None:
        if self._clock() - self._last_reload_check < RELOAD_CHECK_S:
            return
        self._last_reload_check = self._clock()
        marks = self._fingerprint_files()
        if marks == self._fingerprint:
            return
        self._fingerprint = marks
        try:
            self._current = self._load()
        except BadCertificates as wrong:
            self._log.error("CertificatesNotRead", message=f"{wrong}; those of before count on")
            return
        self._log.info("CertificatesRead", folder=str(self._folder), expires=int(self._current.expires))

    def _load(self) -> _LoadedContexts:
        certificate, key = self._folder / CERTIFICATE_FILE, self._folder / KEY_FILE
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if self._node is None:
            server.minimum_version = ssl.TLSVersion.TLSv1_2
            _load_chain(server, certificate, key)
            expires, _ = _try_handshake(server, _self_trusting_context(certificate), certificate)
            return _LoadedContexts(server, None, expires)
        authority = self._folder / CA_FILE
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname = False  # a master is known by its name, wherever it is
        trusted = _read_text(authority)
        for context in (server, client):
            context.verify_mode = ssl.CERT_REQUIRED
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            _load_chain(context, certificate, key)
            _load_authority(context, trusted, authority)
        server.num_tickets = 0  # no client may resume a session that was trusted under an earlier certificate
        expires, names = _try_handshake(server, client, certificate)
        if self._node not in names:
            raise BadCertificates(
                f"{certificate}: expected the DNS name {self._node}, its master's; it names {_join_names(names)}"
            )
        return _LoadedContexts(server, client, expires)


class TlsConfig(NamedTuple):
    """The TLS configuration of a master. None means plain connections."""

    clients: Certificates | None = None
    peers: Certificates | None = None


NO_TLS: Final = TlsConfig()


def check_hostname(folder: Path, host: str) -> None:
    """:class:`BadCertificates` unless a client that trusts the folder's authority accepts its certificate for that
    host."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _load_authority(client, _read_text(folder / CA_FILE), folder / CA_FILE)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load_chain(server, folder / CERTIFICATE_FILE, folder / KEY_FILE)
    _try_handshake(server, client, folder / CERTIFICATE_FILE, host)


def dns_names(certificate: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The DNS names of a verified certificate, from the result of ``getpeercert``. A wildcard names no master."""
    alternatives = certificate.get("subjectAltName", ()) if certificate else ()
    return tuple(str(value) for kind, value in alternatives if kind == "DNS")


def describe_names(certificate: Mapping[str, Any] | None) -> str:
    """The names of a certificate, as text for people."""
    return _join_names(dns_names(certificate))


def describe_handshake_failure(failed: Exception) -> tuple[str, str]:
    """The name and the message of a failed handshake."""
    reason = str(getattr(failed, "reason", None) or "")
    if isinstance(failed, ssl.SSLCertVerificationError):
        what = str(failed.verify_message)
        expired = "expired" in what or "not yet valid" in what
        return ("ExpiredCertificate" if expired else "ForeignCertificate"), f"its certificate is refused: {what}"
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "NoCertificate", "it showed no certificate"
    if reason == "WRONG_VERSION_NUMBER":
        return "NoTls", "it does not speak TLS there"
    if "ALERT" in reason:
        return "CertificateRefused", f"it ended the handshake: {reason.lower().replace('_', ' ')}"
    if isinstance(failed, TimeoutError):
        return "NoHandshake", "it did not finish the handshake in time"
    return "NoHandshake", f"{type(failed).__name__}: {reason or failed}"


def _join_names(names: tuple[str, ...]) -> str:
    return ", ".join(names[:10]) or "no DNS name"


def _read_text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            raw = opened.read(FILE_BYTES_MAX + 1)
        if len(raw) > FILE_BYTES_MAX:
            raise BadCertificates(f"{file}: expected at most {FILE_BYTES_MAX} bytes")
        return raw.decode("ascii", "replace")
    except OSError as wrong:
        raise BadCertificates(f"{file}: {wrong.strerror}") from None


def _load_chain(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Loads both from their resolved paths, because Kubernetes may switch the link meanwhile."""
    for file in (certificate, key):
        _read_text(file)
    try:
        context.load_cert_chain(certificate.resolve(), key.resolve(), password=_refuse_password)
    except _EncryptedKey:
        raise BadCertificates(f"{key}: expected a key without a password") from None
    except ssl.SSLError as wrong:
        if wrong.reason == "KEY_VALUES_MISMATCH":
            raise BadCertificates(f"{key}: it is not the key of {certificate.name}") from None
        raise BadCertificates(
            f"{certificate}, {key.name}: expected a certificate and its key as PEM ({wrong.reason or wrong})"
        ) from None
    except OSError as wrong:
        raise BadCertificates(f"{certificate}, {key.name}: {wrong.strerror}") from None


class _EncryptedKey(Exception):
    """The key is encrypted; OpenSSL would prompt for a password at the terminal."""


def _refuse_password() -> str:
    raise _EncryptedKey


def _load_authority(context: ssl.SSLContext, trusted: str, file: Path) -> None:
    try:
        context.load_verify_locations(cadata=trusted)
    except (ssl.SSLError, ValueError) as wrong:
        raise BadCertificates(f"{file}: expected certificates as PEM ({wrong})") from None


def _self_trusting_context(certificate: Path) -> ssl.SSLContext:
    """A context that trusts this certificate itself: clients judge the issuer; this master checks that it is valid
    today."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _load_authority(context, _read_text(certificate), certificate)
    return context


def _try_handshake(
    server: ssl.SSLContext, client: ssl.SSLContext, certificate: Path, host: str | None = None
) -> tuple[float, tuple[str, ...]]:
    """A handshake of both ends in memory; returns when the server's certificate expires, and its names. ``host``: the
    host that the client wants to reach."""
    one, other = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(one, other, server_hostname=host), server.wrap_bio(other, one, server_side=True)]
    waiting = list(ends)
    for _ in range(HANDSHAKE_ROUNDS_MAX):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as wrong:
                raise BadCertificates(f"{certificate}: clients would refuse it: {wrong.verify_message}") from None
            except ssl.SSLError as wrong:
                raise BadCertificates(f"{certificate}: no handshake succeeds with it: {wrong.reason}") from None
        if not waiting:
            break
    assert not waiting, "a handshake in memory waits for no other process"
    shown = ends[0].getpeercert()
    assert shown is not None, "its certificate was verified"
    return float(ssl.cert_time_to_seconds(str(shown["notAfter"]))), dns_names(shown)
