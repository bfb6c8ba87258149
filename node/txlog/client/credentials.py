"""The credentials that a client sends to a master: the token in the file that ``TXLOG_TOKEN_FILE`` names.

The environment and not an argument: a process of TxLog acts as one user, and its children (Spark's Python workers) as
the same user. The file is read again when it has changed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from txlog.model.errors import Unauthorized

TOKEN_FILE: Final = "TXLOG_TOKEN_FILE"
_NO_HEADERS: Mapping[str, str] = {}


class Credentials:
    """The credentials of one process. ``file``: the token file; None sends no credentials."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._fingerprint: tuple[int, int, int] | None = None
        self._headers: Mapping[str, str] = _NO_HEADERS

    @classmethod
    def from_token(cls, token: str) -> Self:
        """Credentials with this token, without a file. Raises ``ValueError`` for a token that no header can carry."""
        return cls.from_headers(_bearer_header(token))

    @classmethod
    def from_headers(cls, headers: Mapping[str, str]) -> Self:
        """Credentials that send these headers with each request."""
        found = cls(None)
        found._headers = headers
        return found

    @classmethod
    def from_environment(cls) -> Credentials:
        """Those in the file that the environment names; without one, no credentials."""
        named = os.environ.get(TOKEN_FILE)
        return cls(Path(named) if named else None)

    def headers(self) -> Mapping[str, str]:
        """The headers to send with a request. Raises :class:`Unauthorized` when the file cannot be read or holds no
        token."""
        if self._file is None:
            return self._headers
        try:
            found = self._file.stat()
            mark = (found.st_mtime_ns, found.st_ino, found.st_size)
            if mark != self._fingerprint:
                self._headers, self._fingerprint = _bearer_header(self._file.read_text("ascii")), mark
        except OSError as wrong:
            raise Unauthorized(f"{TOKEN_FILE}={self._file}: {wrong.strerror}") from None
        except ValueError:
            raise Unauthorized(f"{TOKEN_FILE}={self._file}: expected a token, a line of ASCII without spaces") from None
        return self._headers


def _bearer_header(text: str) -> Mapping[str, str]:
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError
    return {"Authorization": f"Bearer {token}"}
