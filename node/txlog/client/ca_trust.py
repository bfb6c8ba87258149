"""The certificate authorities that a client trusts: those in the file that ``TXLOG_CA_FILE`` names. Without it the
client trusts the system's authorities.

The environment and not an argument, for the reasons of :mod:`txlog.client.credentials`.
"""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Final

from txlog.model.errors import BadInput

CA_FILE: Final = "TXLOG_CA_FILE"


class CaTrust:
    """``file``: certificates as PEM; None: the system's. The file is read again when it has changed."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._fingerprint: tuple[int, int, int] | None = None
        self._context: ssl.SSLContext | None = None

    @classmethod
    def from_environment(cls) -> CaTrust:
        """The shared instance for the file that the environment names. One per file, because reading authorities takes
        longer than a request."""
        named = os.environ.get(CA_FILE)
        file = Path(named) if named else None
        return _trust_by_file.setdefault(file, cls(file))

    def context(self) -> ssl.SSLContext:
        """The TLS context for a new connection. Raises :class:`BadInput` when the file cannot be read or holds no
        certificates."""
        if self._file is None:
            self._context = self._context or ssl.create_default_context()
            return self._context
        try:
            found = self._file.stat()
            mark = (found.st_mtime_ns, found.st_ino, found.st_size)
            if self._context is None or mark != self._fingerprint:
                self._context, self._fingerprint = ssl.create_default_context(cafile=str(self._file)), mark
        except ssl.SSLError as wrong:
            raise BadInput(f"{CA_FILE}={self._file}: expected certificates as PEM ({wrong.reason or wrong})") from None
        except OSError as wrong:
            raise BadInput(f"{CA_FILE}={self._file}: {wrong.strerror}") from None
        return self._context


_trust_by_file: dict[Path | None, CaTrust] = {}


def describe_tls_error(failed: Exception) -> str | None:
    """Advice for the user about a connection that TLS made fail; None when TLS is not the reason."""
    if isinstance(failed, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({failed.verify_message}); {CA_FILE} names the file of whom to trust"
    if isinstance(failed, ssl.SSLError) and failed.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST"):
        return "it does not speak TLS there; ask with http://"
    return None
