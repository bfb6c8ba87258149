"""Reads the transactions of a journal: from memory when they are recent, else from their records on the disk."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from txlog.journal.origin_index import JournalIndex, OriginIndex, RecordLocation, apply_restamps
from txlog.journal.recent_cache import RecentCache
from txlog.journal.record_reader import NO_HEAD, HeldRecordHead, RecordReader, RecordUnreadable
from txlog.model.entry import RunItem, TransactionRun
from txlog.model.errors import JournalDamaged
from txlog.model.hashes import content_hash
from txlog.model.ids import Origin


class TransactionReader:
    """``_recent`` holds the latest records whole. Every read returns the stamps that later views assigned."""

    def __init__(self, reader: RecordReader, index: JournalIndex, cache_bytes: int) -> None:
        self._reader = reader
        self._index = index
        self._recent = RecentCache(cache_bytes)
        self._last_head = NO_HEAD

    def read(self, node: str, birth: int, first_seq: int, count_max: int, bytes_max: int) -> TransactionRun:
        """Held transactions of an origin from ``first_seq`` on: at most ``count_max``, about ``bytes_max`` bytes of
        payload, at least one when it is held, none when it is not.

        :class:`JournalDamaged` when the first one cannot be read; never "not held" for that (rule 28)."""
        held = self._index.get(node, birth)
        items: list[RunItem] = []
        if held is not None:
            self._read_into(held, first_seq, count_max, bytes_max, items)
        return TransactionRun(node, birth, first_seq, items)

    def _read_into(self, held: OriginIndex, seq: int, count_max: int, bytes_max: int, items: list[RunItem]) -> None:
        stop, room = min(held.last + 1, seq + count_max), bytes_max
        while seq < stop and (room > 0 or not items):
            try:
                taken = self._read_items(held, seq, stop - seq, room)
            except RecordUnreadable as error:
                if items:
                    return
                raise JournalDamaged(
                    f"reading {held.origin}.{seq}: {error}. Another master that holds it can repair it. Next: start"
                    " this master again; it will name the damage and fetch it"
                ) from None
            items += apply_restamps(held, seq, taken) if held.restamps else taken
            seq += len(taken)
            room -= sum(len(item.payload) for item in taken)

    def _read_items(self, held: OriginIndex, seq: int, count: int, room: int) -> list[RunItem]:
        """At least one item, of one record."""
        if seq <= held.trimmed:
            raise RecordUnreadable("the log was trimmed above it")
        place = held.locate(seq)
        if place is None:
            raise RecordUnreadable("its record is damaged")
        recent = self._recent.get(held.slot, place.first_seq)
        if recent is not None and seq <= recent.last_seq:
            first = seq - recent.first_seq
            whole = recent.items if first == 0 and len(recent.items) <= count else recent.items[first : first + count]
            return whole[: _count_fitting([len(item.payload) for item in whole], room)]
        head = self._head(place)
        if seq > head.last_seq:
            raise RecordUnreadable("its record is damaged")
        first = seq - head.first_seq
        return self._reader.read_items(head, first, _count_fitting(head.columns.sizes[first : first + count], room))

    def _head(self, place: RecordLocation) -> HeldRecordHead:
        """The last head is cached: a big record is often read in small pieces."""
        if self._last_head.segment != place.segment or self._last_head.offset != place.offset:
            self._last_head = self._reader.read_head(place)
        return self._last_head

    def lookup_meta(self, origin: Origin, seq: int) -> tuple[int, bytes] | None:
        """Stamp and content hash of a held transaction."""
        held = self._index.get(*origin)
        place = held.locate(seq) if held is not None and seq <= held.last else None
        if held is None or place is None:
            return None
        recent = self._recent.get(held.slot, place.first_seq)
        if recent is not None and seq <= recent.last_seq:
            item = recent.items[seq - recent.first_seq]
            return held.restamps.get(seq, item.stamp), content_hash(item.kind, item.key, item.payload)
        try:
            head = self._head(place)
        except RecordUnreadable:
            return None
        at = seq - head.first_seq
        if at >= head.count:
            return None
        return held.restamps.get(seq, head.columns.stamps[at]), head.columns.content(at)

    def certain_stamp(self, origin: Origin, seq: int, sent: int) -> int:
        """The stamp of a transaction that another master sent; a stamp from a view accepted here takes precedence."""
        held = self._index.get(*origin)
        return held.restamps.get(seq, sent) if held is not None else sent

    def is_restamped(self, origin: Origin, seq: int) -> bool:
        """Whether a view accepted here assigned its stamp."""
        held = self._index.get(*origin)
        return held is not None and held.restamps.get(seq, 0) != 0


def _count_fitting(sizes: Sequence[int] | array[int], room: int) -> int:
    """How many of these payloads fit into ``room``, at least one."""
    count, total = 0, 0
    for size in sizes:
        total += size
        if count and total > room:
            break
        count += 1
    return count
