"""The books of a link on disk, in one SQLite file: each step is one transaction, with the position in both logs.

The file is derived. After a loss of power it may be some steps older, and the links read these again. A file that is
lost or damaged is made again from the change sets of both sites; a damaged one is kept beside it. Any other error of
the disk leaves the file as it is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from txlog.changesets.change_set import ChangeSet, decode_change_set
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.errors import TxLogError
from txlog.sites.keys import KeyKind
from txlog.sites.link_errors import OtherLink
from txlog.sites.link_record import ValueAt, Version
from txlog.sites.site_book import KeyChange, Need, SiteBook

TABLE_VERSION: Final = 2
_READABLE: Final = (1, TABLE_VERSION)
"""A table of version 1 holds books without an anchor."""
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


class _Damaged(Exception):
    """The table does not hold what this program has written."""


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
    acknowledged: int
    record: bytes | None
    link_index: int
    number: int
    last_step: str
    conflicts: int
    unclean: list[tuple[int, int]]
    cursors: list[tuple[int, int]]
    touched: int = 0
    ignored: int = 0
    anchor: int = 0
    awaits_anchor: bool = False
    is_taking: bool = False
    whole_until: int = 0


class VersionTable:
    """The file at ``path``, with the books of both sites (:attr:`mine`, :attr:`theirs`), as they were saved last.
    ``is_new``: there was none, or it was damaged, so both logs are read from their start."""

    def __init__(self, path: Path, identity: LinkIdentity, trace: Callable[[str], None] | None = None) -> None:
        """``trace``: called before each statement. Raises :class:`OtherLink` and :class:`UnknownVersionTable`, and
        ``sqlite3.Error`` where the file cannot be read or written now."""
        self._path = path
        self._trace = trace
        path.parent.mkdir(parents=True, exist_ok=True)
        kind = KeyKind(identity.key)
        self.mine = SiteBook(identity.site, identity.other, kind, identity.other_cluster)
        self.theirs = SiteBook(identity.other, identity.site, kind, identity.cluster)
        self.is_new = not self._open(identity)

    def _open(self, identity: LinkIdentity) -> bool:
        """Whether there is a whole table."""
        connection = self._connect()
        try:
            self._begin_journal()
            if self._read(identity):
                return True
            self._create(identity)
        except BaseException as wrong:
            connection.close()
            if not is_damage(wrong):
                raise
        else:
            return False
        self.set_aside(self._path)
        self._forget_books()
        connection = self._connect()
        try:
            self._begin_journal()
            self._create(identity)
        except BaseException:
            connection.close()
            raise
        return False

    def _forget_books(self) -> None:
        """Part of a damaged table may have been read into the books."""
        self.mine, self.theirs = (
            SiteBook(book.site, book.other, book.kind, book.other_cluster) for book in (self.mine, self.theirs)
        )

    @staticmethod
    def set_aside(path: Path) -> None:
        """Rename a table to ``….damaged``, in place of an earlier one. The file itself comes last: a journal without
        it is nothing."""
        for ending in ("-wal", "-shm", ""):
            part = path.with_name(f"{path.name}{ending}")
            if part.exists():
                part.replace(path.with_name(f"{path.name}.damaged{ending}"))

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        self._connection = connection
        connection.set_trace_callback(self._trace)
        return connection

    def _begin_journal(self) -> None:
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
        if magic != _MAGIC or version not in _READABLE:
            raise UnknownVersionTable(
                f"{self._path} has version {version}, and this program reads {TABLE_VERSION}; remove it, and it is "
                "made again from the change sets"
            )
        if self._connection.execute("PRAGMA quick_check").fetchone() != ("ok",):
            raise _Damaged
        found = msgspec.json.decode(self._one("SELECT identity FROM link"))
        known = msgspec.convert(found, LinkIdentity)
        if known != identity:
            raise OtherLink(
                f"{self._path} is of the link between {known.site} and {known.other} (key {known.key}), or their "
                "clusters have other ids now"
            )
        for book in (self.mine, self.theirs):
            self._read_book(book)
        if version != TABLE_VERSION:
            self._connection.execute(f"PRAGMA user_version={TABLE_VERSION}")
        return True

    def _one(self, statement: str, *values: str) -> bytes:
        row = self._connection.execute(statement, values).fetchone()
        if row is None:
            raise _Damaged
        return bytes(row[0])

    def _read_book(self, book: SiteBook) -> None:
        run = self._connection.execute
        packed = self._one("SELECT head FROM book WHERE site = ?", book.site)
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
_DAMAGE_CODES: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_damage(error: BaseException) -> bool:
    """Whether an error shows that the file itself is damaged. One that is locked, full, or cannot be read now is
    not."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE_CODES
    return isinstance(error, (_Damaged, *DECODE_ERRORS))


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
