"""Creates an authority and certificates for a local cluster whose manifests require TLS and supply none.

They are in ``tls/`` of the state folder: ``ca.crt`` and ``ca.key``, and for each master a folder with the layout of a
Secret. The supervisor renews expiring certificates while the cluster runs; masters then reload them.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from txlog.auth.tls import CA_FILE, CERTIFICATE_FILE, KEY_FILE

CA_VALID_DAYS: Final = 3650
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
    authority, key = _load_or_create_ca(folder)
    made = []
    for node in nodes:
        place = folder / node
        if _is_valid_for(place, authority):
            continue
        place.mkdir(mode=0o700, exist_ok=True)
        own_key, own = _issue_certificate(node, authority, key)
        # A master that reads between the two writes finds a key that does not match, and reads again.
        _write_private_file(place / KEY_FILE, _key_to_pem(own_key))
        _write_private_file(place / CERTIFICATE_FILE, own.public_bytes(serialization.Encoding.PEM))
        _write_private_file(place / CA_FILE, authority.public_bytes(serialization.Encoding.PEM))
        made.append(node)
    return made


def _load_or_create_ca(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    certificate, key_file = folder / CA_FILE, folder / "ca.key"
    if certificate.exists() and key_file.exists():
        key = serialization.load_pem_private_key(key_file.read_bytes(), password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError(f"{key_file}: expected a key that TxLog made")
        return x509.load_pem_x509_certificate(certificate.read_bytes()), key
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "TxLog, of one local cluster")])
    made = _certificate_builder(name, name, key, key, CA_VALID_DAYS)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    made = made.add_extension(_key_usage(signs_certificates=True), critical=True)
    signed = made.sign(key, hashes.SHA256())
    _write_private_file(key_file, _key_to_pem(key))
    _write_private_file(certificate, signed.public_bytes(serialization.Encoding.PEM))
    return signed, key


def _issue_certificate(
    node: str, authority: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    own = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, node)])
    addresses = [x509.IPAddress(ipaddress.ip_address(host)) for host in CERTIFICATE_HOSTS[1:]]
    alternatives = [x509.DNSName(node), x509.DNSName(CERTIFICATE_HOSTS[0]), *addresses]
    both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    made = _certificate_builder(name, authority.subject, own, key, CERTIFICATE_VALID_DAYS)
    made = made.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    made = made.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    made = made.add_extension(_key_usage(signs_certificates=False), critical=True)
    return own, made.add_extension(both, critical=False).sign(key, hashes.SHA256())


def _certificate_builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuers: ec.EllipticCurvePrivateKey,
    days: int,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    of_issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuers.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=CLOCK_SKEW_MINUTES))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(of_issuer, critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _is_valid_for(place: Path, authority: x509.Certificate) -> bool:
    try:
        if not (place / KEY_FILE).exists() or (place / CA_FILE).read_bytes() != authority.public_bytes(
            serialization.Encoding.PEM
        ):
            return False
        own = x509.load_pem_x509_certificate((place / CERTIFICATE_FILE).read_bytes())
        own.verify_directly_issued_by(authority)
    except (OSError, ValueError, InvalidSignature):
        return False
    return own.not_valid_after_utc - datetime.datetime.now(datetime.UTC) > datetime.timedelta(days=RENEW_BEFORE_DAYS)


def _key_to_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    how = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, how, serialization.NoEncryption())


def _write_private_file(file: Path, content: bytes) -> None:
    new = file.with_name(file.name + ".new")
    new.touch(mode=0o600)
    new.write_bytes(content)
    os.replace(new, file)
