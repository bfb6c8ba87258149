"""Hashes that are stored in place of secrets.

People choose passwords, so a password's hash is slow (scrypt). Tokens are 256 random bits, which cannot be guessed. One
SHA-256 is therefore enough, and a request with a token costs nothing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from typing import Final, NamedTuple

SCRYPT_LOG2_N: Final = 14
SCRYPT_R: Final = 8
SCRYPT_P: Final = 5
"""From OWASP's password storage cheat sheet, for 16 MiB: as strong as 2^17 with p=1, which takes 128 MiB."""
KEY_BYTES: Final = 32
SALT_BYTES: Final = 16
SCRYPT_LOG2_N_MAX: Final = 17
SCRYPT_P_MAX: Final = 16
MEMORY_MAX: Final = 256 << 20

_SCRYPT_PATTERN = re.compile(
    r"\$scrypt\$ln=([0-9]{1,2}),r=([0-9]{1,2}),p=([0-9]{1,2})\$([A-Za-z0-9+/]{11,86})\$([A-Za-z0-9+/]{43})"
)
_SHA256_PATTERN = re.compile(r"\$sha256\$([0-9a-f]{64})")


class ScryptHash(NamedTuple):
    """A password's hash; its text is a PHC string."""

    log2_n: int
    r: int
    p: int
    salt: bytes
    key: bytes

    def matches(self, password: bytes) -> bool:
        """Whether the password is right. Takes some 250 ms of a core and 16 MiB."""
        return hmac.compare_digest(_derive_key(password, self.log2_n, self.r, self.p, self.salt), self.key)


class Sha256Hash(NamedTuple):
    """A token's hash."""

    digest: bytes


DUMMY_HASH: Final = ScryptHash(SCRYPT_LOG2_N, SCRYPT_R, SCRYPT_P, bytes(SALT_BYTES), bytes(KEY_BYTES))
"""Compared for an unknown user name: it takes as long as a real hash, and no known password matches it."""


def parse_hash(text: str) -> ScryptHash | Sha256Hash | None:
    """The hash in this text; None if it is neither kind."""
    token = _SHA256_PATTERN.fullmatch(text)
    if token is not None:
        return Sha256Hash(bytes.fromhex(token[1]))
    found = _SCRYPT_PATTERN.fullmatch(text)
    if found is None:
        return None
    log2_n, r, p = int(found[1]), int(found[2]), int(found[3])
    try:
        salt, key = (base64.b64decode(part + "=" * (-len(part) % 4), validate=True) for part in (found[4], found[5]))
    except binascii.Error:
        return None
    if not 1 <= log2_n <= SCRYPT_LOG2_N_MAX or not 1 <= p <= SCRYPT_P_MAX or not r >= 1 or len(key) != KEY_BYTES:
        return None
    return ScryptHash(log2_n, r, p, salt, key) if 128 * r * (1 << log2_n) <= MEMORY_MAX else None


def hash_password(password: str) -> str:
    """A password's hash as text, different each time: the salt is random."""
    salt = secrets.token_bytes(SALT_BYTES)
    key = _derive_key(password.encode(), SCRYPT_LOG2_N, SCRYPT_R, SCRYPT_P, salt)
    return f"$scrypt$ln={SCRYPT_LOG2_N},r={SCRYPT_R},p={SCRYPT_P}${_encode_base64(salt)}${_encode_base64(key)}"


def hash_token(token: str) -> str:
    """A token's hash as text."""
    return f"$sha256${token_digest(token).hex()}"


def token_digest(token: str) -> bytes:
    """The SHA-256 digest of a token."""
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def generate_token() -> str:
    """A random token of 256 bits, in a format that scanners for secrets recognise."""
    return f"txlog_{secrets.token_urlsafe(32)}"


def _derive_key(password: bytes, log2_n: int, r: int, p: int, salt: bytes) -> bytes:
    return hashlib.scrypt(password, salt=salt, n=1 << log2_n, r=r, p=p, maxmem=2 * MEMORY_MAX, dklen=KEY_BYTES)


def _encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode().rstrip("=")
