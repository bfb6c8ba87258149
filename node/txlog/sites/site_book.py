"""The version table of one site, as its log gives it: a pure function of the log and its change sets.

Both ends of a link keep a book of each of the two logs, and both come to the same. A book holds the changes of a key
only as long as the other site may not have seen them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from txlog.changesets.change_set import ChangeSet
from txlog.model.errors import TxLogError
from txlog.sites.keys import KeyKind, crosses_links, key_of
from txlog.sites.link_record import (
    NO_VERSION,
    LinkRecord,
    RecordNotRead,
    StepKind,
    ValueAt,
    Version,
    decode_contents,
    find_record,
)

_NO_CHANGE: Final = ChangeSet()


class NeedsState(TxLogError):
    """Changes of a site are not known any more, or not one by one: a link cannot bring the other site to them."""


class SiteEntry(NamedTuple):
    """A settled entry of a site's log. ``change``: what it deleted and added."""

    at: int
    hash: bytes
    stamp: int
    change: ChangeSet


class KeyChange(NamedTuple):
    """What one entry did to a key. ``is_local``: by a client of the site, and not by a link."""

    at: int
    version: Version
    is_local: bool
    change: ChangeSet


class Need(NamedTuple):
    """A key waits for a correction: it should have this version and value. ``asked``: the entry that mixed it."""

    version: Version
    value: ValueAt
    asked: int


class SiteBook:
    """The book of the log of ``site`` on its link from ``other``. ``kind``: what a key is.

    ``index``, ``hash``: the entry up to which the log was read. ``clock``: no version up to there has a greater stamp.
    ``cursor``: the entry of the other site up to which this one has imported. ``heard``: the entry of this site up to
    which the other one has imported, as its batches say. ``record``: the name of the link's record, None where there
    is none. ``link_index``: the last entry of the link; ``number``: how many there were. ``last_step``: its kind.
    ``needs``: keys that wait for a correction. ``dirty``: keys whose rows changed since :meth:`take_dirty`."""

    def __init__(self, site: str, other: str, kind: KeyKind) -> None:
        self.site = site
        self.other = other
        self.kind = kind
        self.index = 0
        self.hash = b""
        self.clock = 0
        self.cursor = 0
        self.heard = 0
        self.record: bytes | None = None
        self.link_index = 0
        self.number = 0
        self.last_step = ""
        self.conflicts = 0
        self.needs: dict[bytes, Need] = {}
        self.rows: dict[bytes, list[KeyChange]] = {}
        self.unclean: list[tuple[int, int]] = []
        self.cursors: list[tuple[int, int]] = []
        self._entries: dict[int, list[bytes]] = {}
        self._dirty: set[bytes] = set()
        self._row_count = 0

    # -- reading the log

    def apply(self, entry: SiteEntry) -> None:
        """Read the next entry. Raises :class:`NeedsState` where its change is not known, and
        :class:`~txlog.sites.link_record.RecordNotRead`."""
        assert entry.at == self.index + 1, (entry.at, self.index)
        if entry.change.graphs:
            raise NeedsState(
                f"entry {entry.at} of {self.site} changed more quads than change sets keep, so it cannot cross"
            )
        record = self._record_of(entry)
        changes = self._changes_by_key(entry.change)
        self.clock = max(self.clock, entry.stamp)
        if record is None:
            self._apply_local(entry.at, changes)
        else:
            self._apply_link(entry.at, record, changes)
        self.index, self.hash = entry.at, entry.hash
        if self.needs:
            self._mark_unclean(entry.at)

    def _record_of(self, entry: SiteEntry) -> LinkRecord | None:
        """The record of an entry of the link. A client that deletes or writes it takes it away: then a link begins
        it again."""
        added = find_record(entry.change.adds, self.other)
        deleted = find_record(entry.change.deletes, self.other)
        if added.name is not None and added.contents is not None:
            record = decode_contents(added.contents)
            self._check_record(entry.at, record, deleted.name)
            self.record = added.name
            return record
        if added != (None, None) or deleted != (None, None):
            self.record = None
        return None

    def _check_record(self, index: int, record: LinkRecord, before: bytes | None) -> None:
        """Raises :class:`RecordNotRead` for a record that is not the next one of this link."""
        if record.step is StepKind.BEGIN:
            is_next = not record.keys  # it carries nothing, so a late one does no harm
        else:
            # Where a client took the record away and brought it back, only its number shows that it is the next one.
            is_next = self.record in (None, before) and record.number == self.number + 1
            is_next = is_next and self.link_index <= record.decided < index
        if record.step is StepKind.BATCH:
            is_next = is_next and record.begin == self.cursor < record.to and record.seen >= self.heard
        if not is_next or record.site != self.other:
            raise RecordNotRead(
                f"entry {index} of {self.site} has a record of the link from {self.other} that is not the next one"
            )

    def _changes_by_key(self, change: ChangeSet) -> dict[bytes, ChangeSet]:
        deletes: dict[bytes, list[bytes]] = {}
        adds: dict[bytes, list[bytes]] = {}
        for into, lines in ((deletes, change.deletes), (adds, change.adds)):
            for line in lines:
                if crosses_links(line):
                    into.setdefault(key_of(line, self.kind), []).append(line)
        return {
            key: ChangeSet(tuple(deletes.get(key, ())), tuple(adds.get(key, ()))) for key in sorted({*deletes, *adds})
        }

    def _apply_local(self, index: int, changes: dict[bytes, ChangeSet]) -> None:
        version = Version(self.clock, self.site, index)
        for key, change in changes.items():
            self._add_row(key, KeyChange(index, version, True, change))

    def _apply_link(self, index: int, record: LinkRecord, changes: dict[bytes, ChangeSet]) -> None:
        for item in record.keys:
            last = self.last_change(item.key)
            change = changes.pop(item.key, _NO_CHANGE)
            self._add_row(item.key, KeyChange(index, item.version, False, change))
            if last is None or last.at <= record.decided:
                continue
            # A client wrote the key in the window, so what is there now is a mixture: the winner is written once more.
            if last.version > item.version:
                self._set_need(item.key, Need(last.version, ValueAt(self.site, index - 1), index))
            else:
                self._set_need(item.key, Need(item.version, item.value, index))
        if changes:
            raise RecordNotRead(f"entry {index} of {self.site} changes keys that the record of its link does not name")
        if record.step is StepKind.BATCH:
            self.cursor, self.heard = record.to, record.seen
            self.cursors.append((index, record.to))
            self.clock = max(self.clock, record.clock + 1)
        if record.step is not StepKind.BEGIN:
            self.number = record.number
        self.last_step = record.step
        self.conflicts += record.conflicts
        self.link_index = index
        self._forget()

    def _add_row(self, key: bytes, row: KeyChange) -> None:
        self._keep_row(key, row)
        self._dirty.add(key)
        need = self.needs.get(key)
        if need is not None and row.version >= need.version:
            del self.needs[key]

    def _keep_row(self, key: bytes, row: KeyChange) -> None:
        self.rows.setdefault(key, []).append(row)
        self._entries.setdefault(row.at, []).append(key)
        self._row_count += 1

    def _set_need(self, key: bytes, need: Need) -> None:
        self.needs[key] = need
        self._dirty.add(key)

    def _mark_unclean(self, index: int) -> None:
        if self.unclean and self.unclean[-1][1] == index - 1:
            self.unclean[-1] = (self.unclean[-1][0], index)
        else:
            self.unclean.append((index, index))

    def _forget(self) -> None:
        """Drop what the other site has seen. An entry of the link is composed after the one before it, which was after
        anything that the other site had seen then. So no window is forgotten."""
        bound = self.heard
        while self._entries and (index := next(iter(self._entries))) <= bound:
            for key in self._entries.pop(index):
                rows = self.rows[key]
                rows.pop(0)
                self._row_count -= 1
                if not rows:
                    del self.rows[key]
                self._dirty.add(key)
        self.unclean = [each for each in self.unclean if each[1] > bound]
        self.cursors = self.cursors[max(0, self._cursor_at(bound) - 1) :]

    # -- what it says

    @property
    def row_count(self) -> int:
        """Changes that are not forgotten."""
        return self._row_count

    def last_change(self, key: bytes) -> KeyChange | None:
        """The last change of a key that is not forgotten."""
        rows = self.rows.get(key)
        return rows[-1] if rows else None

    def version(self, key: bytes) -> Version:
        """The version of a key, where the other site may not have seen its last write; else :data:`NO_VERSION`."""
        last = self.last_change(key)
        if last is None or last.version.site != self.site or last.version.at <= self.heard:
            return NO_VERSION
        return last.version

    def changes(self, key: bytes, after: int, upto: int) -> list[KeyChange]:
        """The changes of a key in a range of entries, of which none is forgotten."""
        return [row for row in self.rows.get(key, ()) if after < row.at <= upto]

    def changed_keys(self, after: int) -> Iterator[tuple[int, list[bytes]]]:
        """The entries after an index that changed a key, in order, each with its keys."""
        return ((index, keys) for index, keys in self._entries.items() if index > after)

    def clean_at(self, index: int) -> int:
        """The last entry up to ``index`` after which no key waits for a correction."""
        for begin, end in reversed(self.unclean):
            if begin <= index <= end:
                return begin - 1
        return index

    def cursor_at(self, index: int) -> int:
        """The cursor after an entry."""
        at = self._cursor_at(index)
        return self.cursors[at - 1][1] if at else 0

    def _cursor_at(self, index: int) -> int:
        return bisect_right(self.cursors, index, key=lambda each: each[0])

    # -- keeping it

    def take_dirty(self) -> set[bytes]:
        """The keys whose rows or needs changed since the last call."""
        found, self._dirty = self._dirty, set()
        return found

    def restore_rows(self, rows: Iterable[tuple[bytes, KeyChange]]) -> None:
        """Take rows that were kept, in the order of their entries."""
        for key, row in rows:
            self._keep_row(key, row)
