"""Certificates for tests: an authority, and what it issues, right or wrong in each way that there is."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = datetime.timedelta(days=1)


def pem_of(key: ec.EllipticCurvePrivateKey, password: bytes | None = None) -> bytes:
    how = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)


class Authority:
    def __init__(self, name: str = "a test's authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        made = self._begun(self._name, self._key, now - DAY, now + 10 * DAY)
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        self.certificate = made.add_extension(usage, critical=True).sign(self._key, hashes.SHA256())
        self.pem = self.certificate.public_bytes(serialization.Encoding.PEM)

    def _begun(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        begin: datetime.datetime,
        end: datetime.datetime,
    ) -> x509.CertificateBuilder:
        made = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key.public_key())
        made = made.serial_number(x509.random_serial_number()).not_valid_before(begin).not_valid_after(end)
        made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        own = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return made.add_extension(own, critical=False)

    def issue(
        self,
        folder: Path,
        *names: str,
        days: float = 5,
        address: str = "127.0.0.1",
        usages: tuple[x509.ObjectIdentifier, ...] = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH),
    ) -> Path:
        """Into the folder, as a Secret has it. ``days``: until it ends, below 0 it has ended."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a master")])
        begin = now - DAY + min(0, days) * DAY
        made = self._begun(subject, key, begin, now + days * DAY)
        alternatives = [*(x509.DNSName(name) for name in names), x509.IPAddress(ipaddress.ip_address(address))]
        made = made.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        made = made.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        made = made.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tls.crt").write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        (folder / "tls.key").write_bytes(pem_of(key))
        (folder / "ca.crt").write_bytes(self.pem)
        return folder
