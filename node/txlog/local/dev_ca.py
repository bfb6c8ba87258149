"""Creates an authority and certificates for a local cluster whose manifests require TLS and supply none.

They are in ``tls/`` of the state folder: ``ca.crt`` and ``ca.key``, and for each master a folder with the layout of a
Secret. The supervisor renews expiring certificates while the cluster runs; masters then reload them.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import trustme
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from txlog.auth.tls import CA_FILE, CERTIFICATE_FILE, KEY_FILE
from txlog.config.atomic_file import write_atomically

CA_KEY_FILE: Final = "ca.key"
ORGANISATION: Final = "TxLog, of one local cluster"
CERTIFICATE_VALID_DAYS: Final = 90
RENEW_BEFORE_DAYS: Final = 30
"""A certificate is renewed so many days before it expires."""
CLOCK_SKEW_MINUTES: Final = 10
"""A certificate is valid from so many minutes ago, for clocks that are slow."""
CERTIFICATE_HOSTS: Final = ("localhost", "127.0.0.1", "::1")


def make_certificates(folder: Path, nodes: Iterable[str]) -> list[str]:
    """Creates a certificate for each master without a valid one of this authority; returns the names of those masters.
    ``OSError`` and ``ValueError`` when the folder's files cannot be written or read."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority = _load_or_create_ca(folder)
    made = []
    for node in nodes:
        place = folder / node
        if _is_valid_for(place, authority):
            continue
        place.mkdir(mode=0o700, exist_ok=True)
        now = datetime.datetime.now(datetime.UTC)
        own = authority.issue_cert(
            node,
            *CERTIFICATE_HOSTS,
            common_name=node,
            organization_name=ORGANISATION,
            not_before=now - datetime.timedelta(minutes=CLOCK_SKEW_MINUTES),
            not_after=now + datetime.timedelta(days=CERTIFICATE_VALID_DAYS),
        )
        # A master that reads between the two writes finds a key that does not match, and reads again.
        write_atomically(place / KEY_FILE, own.private_key_pem.bytes(), 0o600)
        write_atomically(place / CERTIFICATE_FILE, own.cert_chain_pems[0].bytes(), 0o600)
        write_atomically(place / CA_FILE, authority.cert_pem.bytes(), 0o600)
        made.append(node)
    return made


def _load_or_create_ca(folder: Path) -> trustme.CA:
    certificate, key = folder / CA_FILE, folder / CA_KEY_FILE
    if certificate.exists() and key.exists():
        return trustme.CA.from_pem(certificate.read_bytes(), key.read_bytes())
    made = trustme.CA(path_length=0, organization_name=ORGANISATION)
    write_atomically(key, made.private_key_pem.bytes(), 0o600)
    write_atomically(certificate, made.cert_pem.bytes(), 0o600)
    return made


def _is_valid_for(place: Path, authority: trustme.CA) -> bool:
    issuer = authority.cert_pem.bytes()
    try:
        if not (place / KEY_FILE).exists() or (place / CA_FILE).read_bytes() != issuer:
            return False
        own = x509.load_pem_x509_certificate((place / CERTIFICATE_FILE).read_bytes())
        own.verify_directly_issued_by(x509.load_pem_x509_certificate(issuer))
    except (OSError, ValueError, InvalidSignature):
        return False
    return own.not_valid_after_utc - datetime.datetime.now(datetime.UTC) > datetime.timedelta(days=RENEW_BEFORE_DAYS)
