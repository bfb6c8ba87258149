"""The version table of one site, as its log gives it: a pure function of the log and its change sets.

Both ends of a link keep a book of each of the two logs, and both come to the same. A book holds the changes of a key
only as long as the other site may not have seen them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, NoReturn

from txlog.changesets.change_set import ChangeSet
from txlog.model.errors import TxLogError
from txlog.sites.keys import KeyKind, crosses_links, key_of
from txlog.sites.link_errors import KeysDiffer, OtherLink
from txlog.sites.link_record import (
    ANCHORS,
    NO_VERSION,
    TRANSFER_VERSION,
    LaterRecord,
    LinkRecord,
    RecordHead,
    RecordLines,
    RecordNotRead,
    StepKind,
    ValueAt,
    Version,
    decode_contents,
    find_record,
    is_sound,
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


class LocalEntries(NamedTuple):
    """``number``: how many. ``oldest``: the stamp of the first one, None where there is none."""

    number: int
    oldest: int | None


class SiteBook:
    """The book of the log of ``site`` on its link from ``other``. ``kind``: what a key is. ``other_cluster``: the id of
    the cluster of ``other``.

    ``index``, ``hash``: the entry up to which the log was read. ``clock``: no version up to there has a greater stamp.
    ``cursor``: the entry of the other site up to which this one has imported. ``acknowledged``: the entry of this site
    up to which the other one has imported, as its batches report. ``record``: the name of the link's record, None where
    there is none. ``touched``: the last entry that changed that record. ``ignored``: how many entries wrote a record
    that is not the next one; a client has written these. ``link_index``: the last entry of the link; ``number``: how
    many there were. ``last_step``: its kind. ``needs``: keys that wait for a correction. ``dirty``: keys whose rows
    changed since :meth:`take_dirty`.

    ``anchor``: the entry of the link with which the book began, 0: the log's first entry. ``awaits_anchor``: it has not
    been read yet; what comes before it is passed over. ``is_taking``: this site takes the state of the other one since
    ``anchor``. ``whole_until``: where that ended; keys that clients wrote up to there are sent whole."""

    def __init__(self, site: str, other: str, kind: KeyKind, other_cluster: str = "") -> None:
        self.site = site
        self.other = other
        self.kind = kind
        self.other_cluster = other_cluster
        self.index = 0
        self.hash = b""
        self.clock = 0
        self.cursor = 0
        self.acknowledged = 0
        self.record: bytes | None = None
        self.touched = 0
        self.ignored = 0
        self.link_index = 0
        self.number = 0
        self.last_step = ""
        self.conflicts = 0
        self.needs: dict[bytes, Need] = {}
        self.rows: dict[bytes, list[KeyChange]] = {}
        self.unclean: list[tuple[int, int]] = []
        self.cursors: list[tuple[int, int]] = []
        self.anchor = 0
        self.awaits_anchor = False
        self.is_taking = False
        self.whole_until = 0
        self._entries: dict[int, list[bytes]] = {}
        self._imports: list[int] = []
        self._dirty: set[bytes] = set()
        self._row_count = 0

    # -- reading the log

    def await_anchor(self, index: int) -> None:
        """Forget everything, and begin with the first anchor after the entry ``index``."""
        self._clear()
        self.index, self.hash, self.record, self.touched = index, b"", None, 0
        self.clock = self.cursor = self.acknowledged = self.anchor = self.whole_until = 0
        self.number = self.link_index = self.conflicts = self.ignored = 0
        self.last_step, self.is_taking, self.awaits_anchor = "", False, True

    def _clear(self) -> None:
        """Forget the changes of keys."""
        self._dirty.update(self.rows, self.needs)
        self.rows.clear()
        self.needs.clear()
        self._entries.clear()
        self._imports, self.unclean, self.cursors, self._row_count = [], [], [], 0

    def apply(self, entry: SiteEntry) -> None:
        """Read the next entry. Raises :class:`NeedsState` where its change is not known, and, where the link is that of
        another program or cluster, :class:`LaterRecord`, :class:`OtherLink` and :class:`KeysDiffer`. Then the book is
        as it was."""
        assert entry.at == self.index + 1, (entry.at, self.index)
        if entry.change.graphs and not self.awaits_anchor:
            raise NeedsState(
                f"entry {entry.at} of {self.site} changed more quads than change sets keep, so it cannot cross"
            )
        changes = self._changes_by_key(entry.change)
        record = self._read_record(entry, changes)
        if record is not None and record.step in ANCHORS:
            self._apply_anchor(entry, record)
        elif not self.awaits_anchor:
            self.clock = max(self.clock, entry.stamp)
            if record is None:
                self._apply_local(entry.at, changes)
            else:
                self._apply_link(entry.at, record, changes)
        self.index, self.hash = entry.at, entry.hash
        # While a site takes the other one's state, what it holds is neither.
        if self.needs or (self.is_taking and entry.at > self.anchor):
            self._mark_unclean(entry.at)

    def _read_record(self, entry: SiteEntry, changes: Mapping[bytes, ChangeSet]) -> LinkRecord | None:
        """The record of an entry of the link; None for one of a client. A client that writes or deletes the record
        takes it away: then the link begins its record again."""
        added = find_record(entry.change.adds, self.other)
        deleted = find_record(entry.change.deletes, self.other)
        if not any((*added, *deleted)):
            return None
        record = self._next_record(entry.at, added, deleted, changes)
        self.ignored += record is None and added != RecordLines()
        self.record = None if record is None else added.names[0]
        self.touched = entry.at
        return record

    def _next_record(
        self, index: int, added: RecordLines, deleted: RecordLines, changes: Mapping[bytes, ChangeSet]
    ) -> LinkRecord | None:
        """The record that an entry added, where it is the next one of this link. Its cluster and its keys are compared
        where the link begins: from there on a record with others cannot be of this link."""
        if len(added.names) != 1 or len(added.contents) != 1 or len(deleted.names) > 1:
            return None
        try:
            record = decode_contents(added.contents[0])
        except RecordNotRead:
            return None
        before = deleted.names[0] if deleted.names else None
        if not isinstance(record, LinkRecord):
            if self._is_of_link(record) and self.record == before:
                raise LaterRecord(
                    f"entry {index} of {self.site} has a record of version {record.version}, "
                    f"this program reads {TRANSFER_VERSION}"
                )
            return None
        if not is_sound(record, added.names[0], self.kind, (self.site, self.other)):
            return None
        if not self._is_next(index, record, before, changes):
            return None
        if not self._is_of_link(record):
            if self.link_index == 0 and record.site == self.other:
                self._refuse_link(index, record)
            return None
        return record

    def _is_of_link(self, record: RecordHead) -> bool:
        return (record.site, record.cluster, record.key) == (self.other, self.other_cluster, self.kind)

    def _refuse_link(self, index: int, record: LinkRecord) -> NoReturn:
        if record.cluster != self.other_cluster:
            raise OtherLink(
                f"entry {index} of {self.site} began the link from the cluster {record.cluster[:64]} of {self.other}, "
                f"which has the id {self.other_cluster} now"
            )
        raise KeysDiffer(
            f"entry {index} of {self.site} began the link from {self.other} with key {record.key[:64]}, "
            f"and this link has {self.kind}"
        )

    def _is_next(
        self, index: int, record: LinkRecord, before: bytes | None, changes: Mapping[bytes, ChangeSet]
    ) -> bool:
        """Whether a record is the next one of this link, as only its entries have it."""
        if record.step in ANCHORS:
            # A book that begins with it knows no more than the entry's own condition.
            return not record.keys and not changes and record.decided < index
        if self.awaits_anchor:
            return False
        if record.step is StepKind.BEGIN:
            return not record.keys and not changes and self.record == before
        # Where a client took the record away and brought it back, only its number shows that it is the next one.
        is_next = before is not None and self.record in (None, before) and record.number == self.number + 1
        is_next = is_next and self.link_index <= record.decided < index
        if record.step in (StepKind.SEAL, StepKind.END) and record.keys:
            return False
        if record.step in (StepKind.PAGE, StepKind.END):
            is_next = is_next and self.is_taking
        if record.step is StepKind.BATCH:
            is_next = (
                is_next
                and not self.is_taking
                and record.begin == self.cursor < record.to
                and record.seen >= self.acknowledged
            )
        return is_next and changes.keys() <= {each.key for each in record.keys}

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

    def _apply_anchor(self, entry: SiteEntry, record: LinkRecord) -> None:
        """Begin here. Every number comes from this entry, so a book that has read the log before it has the same."""
        self._clear()
        self.clock = max(record.own_clock, entry.stamp)
        self.cursor, self.acknowledged = record.to, entry.at
        self.anchor, self.awaits_anchor, self.whole_until = entry.at, False, 0
        self.is_taking = record.step is StepKind.TAKE
        if not self.is_taking:
            self.cursors.append((entry.at, record.to))
        self.number, self.last_step, self.link_index = record.number, record.step, entry.at
        self.conflicts = self.ignored = 0

    def _apply_link(self, index: int, record: LinkRecord, changes: Mapping[bytes, ChangeSet]) -> None:
        for item in record.keys:
            last = self.last_change(item.key)
            change = changes.get(item.key, _NO_CHANGE)
            if record.step is not StepKind.PAGE:  # batches follow from the copy on: none is older than a page
                self._add_row(item.key, KeyChange(index, item.version, False, change))
            if last is None or last.at <= record.decided:
                continue
            # A client wrote the key in the window, so what is there now is a mixture: the winner is written once more.
            if last.version > item.version:
                self._set_need(item.key, Need(last.version, ValueAt(self.site, index - 1), index))
            else:
                self._set_need(item.key, Need(item.version, item.value, index))
        if record.step is StepKind.BATCH:
            self.cursor, self.acknowledged = record.to, record.seen
            self.cursors.append((index, record.to))
        if record.step is StepKind.END:
            self.cursor, self.whole_until, self.is_taking = record.to, index, False
            self.cursors.append((index, record.to))
        if record.step in (StepKind.BATCH, StepKind.END):
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
        if not row.is_local and self._imports[-1:] != [row.at]:
            self._imports.append(row.at)
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
        bound = self.acknowledged
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
        self._imports = self._imports[bisect_right(self._imports, bound) :]

    # -- what it holds

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
        if last is None or last.version.site != self.site or last.version.at <= self.acknowledged:
            return NO_VERSION
        return last.version

    def changes(self, key: bytes, after: int, upto: int) -> list[KeyChange]:
        """The changes of a key in a range of entries, of which none is forgotten."""
        return [row for row in self.rows.get(key, ()) if after < row.at <= upto]

    def changed_keys(self, after: int) -> Iterator[tuple[int, list[bytes]]]:
        """The entries after an index that changed a key, in order, each with its keys."""
        return ((index, keys) for index, keys in self._entries.items() if index > after)

    def local_entries(self, after: int) -> LocalEntries:
        """The entries of clients after an index that changed a key."""
        imports = self._imports[bisect_right(self._imports, after) :]
        number = sum(1 for _ in self.changed_keys(after)) - len(imports)
        if not number:
            return LocalEntries(0, None)
        known = set(imports)
        index, keys = next(each for each in self.changed_keys(after) if each[0] not in known)
        return LocalEntries(number, next(row.version.stamp for row in self.rows[keys[0]] if row.at == index))

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
