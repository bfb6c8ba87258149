"""The books of a link on disk, in one SQLite file: each step is one transaction, with the position in both logs.

The file is derived. After a loss of power it may be some steps older, and the links read these again. A file that is
lost or damaged is made again from the change sets of both sites.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from txlog.changesets.change_set import ChangeSet, decode_change_set
from txlog.model.errors import TxLogError
from txlog.sites.keys import KeyKind
from txlog.sites.link_record import ValueAt, Version
from txlog.sites.site_book import KeyChange, Need, SiteBook

TABLE_VERSION: Final = 1
_MAGIC: Final = 0x54584C53
"""In the head of the file, as ``application_id``."""
_TABLES: Final = """
CREATE TABLE link (identity BLOB NOT NULL);
CREATE TABLE book (site TEXT PRIMARY KEY, head BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE change (site TEXT, at INTEGER, key BLOB, stamp INTEGER, origin TEXT, write INTEGER, local INTEGER,
    quads BLOB, PRIMARY KEY (site, key, at)) WITHOUT ROWID;
CREATE TABLE need (site TEXT, key BLOB, stamp INTEGER, origin TEXT, write INTEGER, value_site TEXT,
    value_at INTEGER, asked INTEGER, PRIMARY KEY (site, key)) WITHOUT ROWID;
"""


class OtherLink(TxLogError):
    """The table is of another link, of other clusters or of another kind of keys."""


class UnknownVersionTable(TxLogError):
    """A newer program has written the table, or it is none."""


class LinkIdentity(msgspec.Struct, frozen=True):
    """What a table belongs to: the sites, the ids of their clusters, and what a key is."""

    site: str
    other: str
    cluster: str
    other_cluster: str
    key: str


class _Head(msgspec.Struct, array_like=True, frozen=True):
    """What a book holds besides rows."""

    index: int
    hash: bytes
    clock: int
    cursor: int
    heard: int
    record: bytes | None
    link_index: int
    number: int
    last_step: str
    conflicts: int
    unclean: list[tuple[int, int]]
    cursors: list[tuple[int, int]]


class VersionTable:
    """The file at ``path``, with the books of both sites (:attr:`mine`, :attr:`theirs`), as they were saved last.
    ``is_new``: there was none, or it was damaged, so both logs are read from their start."""

    def __init__(self, path: Path, identity: LinkIdentity, trace: Callable[[str], None] | None = None) -> None:
        """``trace``: called before each statement. Raises :class:`OtherLink` and :class:`UnknownVersionTable`."""
        self._path = path
        self._trace = trace
        path.parent.mkdir(parents=True, exist_ok=True)
        kind = KeyKind(identity.key)
        self.mine = SiteBook(identity.site, identity.other, kind)
        self.theirs = SiteBook(identity.other, identity.site, kind)
        self.is_new = not self._open(identity)

    def _open(self, identity: LinkIdentity) -> bool:
        """Whether there is a whole table."""
        if self._path.exists():
            try:
                self._connect()
                if self._read(identity):
                    return True
            except sqlite3.DatabaseError:
                pass  # damaged: it is derived
            self._connection.close()
            self.discard_file(self._path)
        self._connect()
        self._create(identity)
        return False

    @staticmethod
    def discard_file(path: Path) -> None:
        """Remove a table. The file itself comes last: a journal without it is nothing."""
        for name in (f"{path.name}-wal", f"{path.name}-shm", path.name):
            path.with_name(name).unlink(missing_ok=True)

    def _connect(self) -> None:
        self._connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        self._connection.set_trace_callback(self._trace)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=NORMAL")

    def _create(self, identity: LinkIdentity) -> None:
        run = self._connection.execute
        run("BEGIN IMMEDIATE")
        for statement in _TABLES.split(";"):
            if statement.strip():
                run(statement)
        run("INSERT INTO link VALUES (?)", (msgspec.json.encode(identity),))
        for book in (self.mine, self.theirs):
            self._save_head(book)
        run(f"PRAGMA application_id={_MAGIC}")
        run(f"PRAGMA user_version={TABLE_VERSION}")
        run("COMMIT")

    def _read(self, identity: LinkIdentity) -> bool:
        """Fill the books. False for a file in which nothing was written."""
        magic, version = (self._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in _PRAGMAS)
        if (magic, version) == (0, 0) and not self._connection.execute("SELECT 1 FROM sqlite_master").fetchone():
            return False
        if magic != _MAGIC or version != TABLE_VERSION:
            raise UnknownVersionTable(
                f"{self._path} has version {version}, and this program reads {TABLE_VERSION}; remove it, and it is "
                "made again from the change sets"
            )
        if self._connection.execute("PRAGMA quick_check").fetchone() != ("ok",):
            raise sqlite3.DatabaseError("damaged")
        found = msgspec.json.decode(self._connection.execute("SELECT identity FROM link").fetchone()[0])
        known = msgspec.convert(found, LinkIdentity)
        if known != identity:
            raise OtherLink(
                f"{self._path} is of the link between {known.site} and {known.other} (key {known.key}), or their "
                "clusters have other ids now"
            )
        for book in (self.mine, self.theirs):
            self._read_book(book)
        return True

    def _read_book(self, book: SiteBook) -> None:
        run = self._connection.execute
        packed = run("SELECT head FROM book WHERE site = ?", (book.site,)).fetchone()[0]
        head = msgspec.msgpack.decode(packed, type=_Head)
        for name in _Head.__struct_fields__:
            setattr(book, name, getattr(head, name))
        rows = run(
            "SELECT key, at, stamp, origin, write, local, quads FROM change WHERE site = ? ORDER BY at, key",
            (book.site,),
        )
        book.restore_rows(
            (key, KeyChange(at, Version(stamp, origin, write), bool(local), decode_change_set(quads)))
            for key, at, stamp, origin, write, local, quads in rows
        )
        needs = run(
            "SELECT key, stamp, origin, write, value_site, value_at, asked FROM need WHERE site = ?", (book.site,)
        )
        for key, stamp, origin, write, value_site, value_at, asked in needs:
            book.needs[key] = Need(Version(stamp, origin, write), ValueAt(value_site, value_at), asked)

    def close(self) -> None:
        """Close the file. What was not saved is read again from the logs."""
        self._connection.close()

    def save(self) -> None:
        """Write what has changed in both books, all or nothing."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            for book in (self.mine, self.theirs):
                self._save_keys(book, sorted(book.take_dirty()))
                self._save_head(book)
            self._connection.execute("COMMIT")
        except BaseException:
            # The books are ahead of the file now, and no longer know by which keys: the caller opens the table again.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def _save_head(self, book: SiteBook) -> None:
        head = _Head(*(getattr(book, name) for name in _Head.__struct_fields__))
        self._connection.execute(
            "INSERT INTO book VALUES (?, ?) ON CONFLICT (site) DO UPDATE SET head = excluded.head",
            (book.site, msgspec.msgpack.encode(head)),
        )

    def _save_keys(self, book: SiteBook, keys: Sequence[bytes]) -> None:
        many = self._connection.executemany
        names = [(book.site, key) for key in keys]
        many("DELETE FROM change WHERE site = ? AND key = ?", names)
        many("DELETE FROM need WHERE site = ? AND key = ?", names)
        many("INSERT INTO change VALUES (?, ?, ?, ?, ?, ?, ?, ?)", _change_rows(book, keys))
        many("INSERT INTO need VALUES (?, ?, ?, ?, ?, ?, ?, ?)", _need_rows(book, keys))


_PRAGMAS: Final = ("application_id", "user_version")


def _change_rows(book: SiteBook, keys: Iterable[bytes]) -> Iterator[tuple[object, ...]]:
    for key in keys:
        for row in book.rows.get(key, ()):
            change: ChangeSet = row.change
            yield book.site, row.at, key, *row.version, row.is_local, change.encode()


def _need_rows(book: SiteBook, keys: Iterable[bytes]) -> Iterator[tuple[object, ...]]:
    for key in keys:
        need = book.needs.get(key)
        if need is not None:
            yield book.site, key, *need.version, *need.value, need.asked
