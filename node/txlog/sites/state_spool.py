"""The states of both sites on the disk of the taker, compared by key, in one SQLite file that is made for one copy."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from txlog.sites.decisions import Value
from txlog.sites.keys import KeyKind, key_of

_TABLES: Final = """
CREATE TABLE there (key BLOB, line BLOB, PRIMARY KEY (key, line)) WITHOUT ROWID;
CREATE TABLE here (key BLOB, line BLOB, PRIMARY KEY (key, line)) WITHOUT ROWID;
CREATE TABLE differing (number INTEGER PRIMARY KEY, key BLOB);
"""
_COMPARE: Final = """
INSERT INTO differing (key)
SELECT key FROM (SELECT key, line FROM there EXCEPT SELECT key, line FROM here)
UNION
SELECT key FROM (SELECT key, line FROM here EXCEPT SELECT key, line FROM there)
"""


class StateSpool:
    """The file at ``path``; what an earlier transfer left there is removed. One thread at a time."""

    def __init__(self, path: Path, kind: KeyKind) -> None:
        """Raises ``sqlite3.Error`` and ``OSError`` where the disk does not take it."""
        self._path = path
        self._kind = kind
        self._remove()
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        # After a crash the file is made again, so nothing is synced.
        self._connection.execute("PRAGMA journal_mode=OFF")
        self._connection.execute("PRAGMA synchronous=OFF")
        self._connection.executescript(_TABLES)

    def _remove(self) -> None:
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove the file."""
        self._connection.close()
        self._remove()

    def add(self, lines: Iterable[bytes], *, is_own: bool) -> None:
        """Quads of the own state, or of the other site's."""
        rows = ((key_of(line, self._kind), line) for line in lines)
        self._connection.execute("BEGIN")
        self._connection.executemany(f"INSERT OR IGNORE INTO {'here' if is_own else 'there'} VALUES (?, ?)", rows)
        self._connection.execute("COMMIT")

    def compare(self) -> int:
        """Find the keys of which the two states hold other quads. Returns how many there are."""
        self._connection.execute(_COMPARE)
        return int(self._connection.execute("SELECT count(*) FROM differing").fetchone()[0])

    def differing(self, after: int, count: int) -> list[bytes]:
        """Some of these keys, in order, after so many of them."""
        return [
            bytes(key)
            for (key,) in self._connection.execute(
                "SELECT key FROM differing WHERE number > ? ORDER BY number LIMIT ?", (after, count)
            )
        ]

    def values(self, keys: Iterable[bytes]) -> Iterator[tuple[bytes, Value]]:
        """What the other site holds of each key."""
        for key in keys:
            found = self._connection.execute("SELECT line FROM there WHERE key = ?", (key,))
            yield key, frozenset(bytes(line) for (line,) in found)
