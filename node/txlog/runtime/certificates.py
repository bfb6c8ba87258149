"""A master's certificates: read from a folder, tried before they count, and read again when a file has changed.

A folder is what Kubernetes mounts of a Secret of type ``kubernetes.io/tls``: ``tls.crt`` (its own certificate
first, then what is between it and the CA), ``tls.key``, and ``ca.crt`` (whom to trust). Whether they are right is asked
of OpenSSL itself, in a handshake of both ends in memory: what would fail between masters fails here first, by name.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from txlog.model.errors import BadInput
from txlog.runtime.events import EventLog
from txlog.runtime.marks import Marks, marks_of

LOOK_S: Final = 1.0
CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
AUTHORITY: Final = "ca.crt"
FILE_BYTES_MAX: Final = 1 << 20
ROUNDS_MAX: Final = 20
"""Of a handshake in memory; it takes three."""


class BadCertificates(BadInput):
    """Files that are not right. The message names the file, and says what is expected."""


class _Read(NamedTuple):
    server: ssl.SSLContext
    client: ssl.SSLContext | None
    expires: float


class Certificates:
    """Of one folder. ``node``: they are for masters among each other, must name that master, and both ends show one;
    None: for clients, who show none. :class:`BadCertificates` when they are not right at the start; later what was read
    before counts on, and the log says so (``CertificatesNotRead``)."""

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
        self._marks = self._look()
        self._now = self._read()
        self._looked = clock()

    @property
    def server(self) -> ssl.SSLContext:
        """For a connection that somebody opens to this master."""
        self._look_again()
        return self._now.server

    @property
    def client(self) -> ssl.SSLContext:
        """For a connection to another master. Whether it is the right one is asked of :func:`names_of`."""
        self._look_again()
        assert self._now.client is not None, "certificates for clients are no master's to show"
        return self._now.client

    def count_for(self, shaken_with: ssl.SSLContext | None) -> bool:
        """Whether a connection with a handshake of that context was judged by what counts now."""
        self._look_again()
        return shaken_with in (self._now.server, self._now.client)

    @property
    def expires(self) -> float:
        """When this master's own ends; seconds since 1970."""
        return self._now.expires

    def _look(self) -> Marks:
        return marks_of(self._folder / name for name in (CERTIFICATE, KEY, AUTHORITY))

    def _look_again(self) -> None:
        if self._clock() - self._looked < LOOK_S:
            return
        self._looked = self._clock()
        marks = self._look()
        if marks == self._marks:
            return
        self._marks = marks
        try:
            self._now = self._read()
        except BadCertificates as wrong:
            self._log.error("CertificatesNotRead", message=f"{wrong}; those of before count on")
            return
        self._log.info("CertificatesRead", folder=str(self._folder), expires=int(self._now.expires))

    def _read(self) -> _Read:
        certificate, key = self._folder / CERTIFICATE, self._folder / KEY
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if self._node is None:
            server.minimum_version = ssl.TLSVersion.TLSv1_2
            _load(server, certificate, key)
            expires, _ = _tried(server, _trusting_itself(certificate), certificate)
            return _Read(server, None, expires)
        authority = self._folder / AUTHORITY
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname = False  # a master is known by its name, wherever it is
        trusted = _text(authority)
        for context in (server, client):
            context.verify_mode = ssl.CERT_REQUIRED
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            _load(context, certificate, key)
            _trust(context, trusted, authority)
        server.num_tickets = 0  # nobody comes in by what was trusted once
        expires, names = _tried(server, client, certificate)
        if self._node not in names:
            raise BadCertificates(
                f"{certificate}: expected the DNS name {self._node}, its master's; it names {_listed(names)}"
            )
        return _Read(server, client, expires)


class Tls(NamedTuple):
    """What a master was given: None speaks plainly."""

    clients: Certificates | None = None
    peers: Certificates | None = None


PLAIN: Final = Tls()


def serves(folder: Path, host: str) -> None:
    """:class:`BadCertificates` unless a client that trusts the folder's authority takes its certificate for that
    host's."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _trust(client, _text(folder / AUTHORITY), folder / AUTHORITY)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(server, folder / CERTIFICATE, folder / KEY)
    _tried(server, client, folder / CERTIFICATE, host)


def names_of(certificate: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The DNS names of a certificate that was verified, as ``getpeercert`` tells it. A wildcard names nobody."""
    alternatives = certificate.get("subjectAltName", ()) if certificate else ()
    return tuple(str(value) for kind, value in alternatives if kind == "DNS")


def whose(certificate: Mapping[str, Any] | None) -> str:
    """For people."""
    return _listed(names_of(certificate))


def refusal_of(failed: Exception) -> tuple[str, str]:
    """A handshake that failed: its name, and what to say of it."""
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


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names[:10]) or "no DNS name"


def _text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            raw = opened.read(FILE_BYTES_MAX + 1)
        if len(raw) > FILE_BYTES_MAX:
            raise BadCertificates(f"{file}: expected at most {FILE_BYTES_MAX} bytes")
        return raw.decode("ascii", "replace")
    except OSError as wrong:
        raise BadCertificates(f"{file}: {wrong.strerror}") from None


def _load(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Both from where they are now: a link may be turned meanwhile."""
    for file in (certificate, key):
        _text(file)
    try:
        context.load_cert_chain(certificate.resolve(), key.resolve(), password=_no_password)
    except _Encrypted:
        raise BadCertificates(f"{key}: expected a key without a password") from None
    except ssl.SSLError as wrong:
        if wrong.reason == "KEY_VALUES_MISMATCH":
            raise BadCertificates(f"{key}: it is not the key of {certificate.name}") from None
        raise BadCertificates(
            f"{certificate}, {key.name}: expected a certificate and its key as PEM ({wrong.reason or wrong})"
        ) from None
    except OSError as wrong:
        raise BadCertificates(f"{certificate}, {key.name}: {wrong.strerror}") from None


class _Encrypted(Exception):
    """OpenSSL would ask for a password at the terminal."""


def _no_password() -> str:
    raise _Encrypted


def _trust(context: ssl.SSLContext, trusted: str, file: Path) -> None:
    try:
        context.load_verify_locations(cadata=trusted)
    except (ssl.SSLError, ValueError) as wrong:
        raise BadCertificates(f"{file}: expected certificates as PEM ({wrong})") from None


def _trusting_itself(certificate: Path) -> ssl.SSLContext:
    """Who issued it is for clients to judge; that it is valid today is ours to know."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _trust(context, _text(certificate), certificate)
    return context


def _tried(
    server: ssl.SSLContext, client: ssl.SSLContext, certificate: Path, host: str | None = None
) -> tuple[float, tuple[str, ...]]:
    """A handshake of both in memory: when the server's certificate ends, and its names. ``host``: whom the client wants
    to speak to."""
    one, other = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(one, other, server_hostname=host), server.wrap_bio(other, one, server_side=True)]
    waiting = list(ends)
    for _ in range(ROUNDS_MAX):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as wrong:
                raise BadCertificates(
                    f"{certificate}: whoever connects would refuse it: {wrong.verify_message}"
                ) from None
            except ssl.SSLError as wrong:
                raise BadCertificates(f"{certificate}: no handshake succeeds with it: {wrong.reason}") from None
        if not waiting:
            break
    assert not waiting, "a handshake in memory waits for nobody"
    shown = ends[0].getpeercert()
    assert shown is not None, "its certificate was verified"
    return float(ssl.cert_time_to_seconds(str(shown["notAfter"]))), names_of(shown)
