"""Entries of two sites for tests of the version table."""

from __future__ import annotations

from collections.abc import Sequence

from txlog.changesets.change_set import ChangeSet
from txlog.sites.keys import KeyKind
from txlog.sites.link_record import (
    CONTENTS_PREDICATE,
    NAME_PREDICATE,
    RECORD_VERSION,
    LinkRecord,
    RecordedKey,
    StepKind,
    encode_record,
    record_subject,
)
from txlog.sites.site_book import SiteBook, SiteEntry
from txlog.sites.version_table import LinkIdentity, VersionTable

IDENTITY = LinkIdentity("lon", "nyc", "c1", "c2", KeyKind.PROPERTY)
COUNT = 12
NO_CHANGE = ChangeSet()


def _link_lines(other: str, name: bytes, contents: bytes) -> tuple[bytes, ...]:
    subject = record_subject(other)
    pairs = ((NAME_PREDICATE, name), (CONTENTS_PREDICATE, contents))
    return tuple(f'<{subject}> <{p}> "{v.decode()}" <urn:txlog:sites> .'.encode() for p, v in pairs)


def local_entry(book: SiteBook, change: ChangeSet, stamp: int = 0) -> SiteEntry:
    """A client's transaction, the next entry of the book's log."""
    index = book.index + 1
    return SiteEntry(index, index.to_bytes(16, "big"), stamp or index, change)


def link_entry(
    book: SiteBook,
    step: StepKind,
    *,
    to: int = 0,
    seen: int | None = None,
    decided: int | None = None,
    clock: int = 0,
    keys: Sequence[RecordedKey] = (),
    change: ChangeSet = NO_CHANGE,
) -> SiteEntry:
    """An entry of the link to the book's site, the next entry of its log."""
    index, begun = book.index + 1, step is StepKind.BEGIN
    record = LinkRecord(
        RECORD_VERSION,
        book.other,
        book.other_cluster,
        book.kind,
        book.number + 1,
        step,
        0 if begun else book.cursor,
        to,
        book.acknowledged if seen is None else seen,
        book.index if decided is None else decided,
        clock,
        book.clock,
        0,
        len(book.needs),
        list(keys),
    )
    lines = _link_lines(book.other, *encode_record(record, f"{index:x}"))
    before = () if book.record is None else _link_lines(book.other, book.record, b"")
    found = ChangeSet((*before, *change.deletes), (*lines, *change.adds))
    return SiteEntry(index, index.to_bytes(16, "big"), index, found)


def entry(book: SiteBook) -> SiteEntry:
    """The next entry of a site: writes of clients, and each third one an import, every other of them late."""
    index = book.index + 1
    if index == 1:
        return link_entry(book, StepKind.BEGIN)
    if index % 3:
        return local_entry(book, ChangeSet((), (b'<urn:s%d> <urn:p> "%d" .' % (index % 2, index),)))
    late = index % 6 == 0
    keys = [RecordedKey(b"<urn:s%d> <urn:p>" % ((index - 1) % 2), index + late, book.other, index, book.other, index)]
    return link_entry(book, StepKind.BATCH, to=index, decided=book.index - late, keys=keys)


def step(table: VersionTable) -> None:
    """Read the next entry of both sites."""
    for book in (table.mine, table.theirs):
        book.apply(entry(book))


def state(book: SiteBook) -> dict[str, object]:
    """Everything that a book knows."""
    found = dict(vars(book))
    found.pop("_dirty")
    return found
