"""The journal of a running master: append, group commit, read, repair. The format is the package's docstring."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Final

from txlog.journal import bodies
from txlog.journal import format as fmt
from txlog.journal.batch import Extent, Prepare, Segment, Sync
from txlog.journal.cache import Recent
from txlog.journal.files import ZEROS, File, Files
from txlog.journal.format import Body
from txlog.journal.index import Index, OriginIndex, Place, restamped
from txlog.journal.reader import NO_HEAD, Head, Reader, Unreadable
from txlog.journal.rebuild import rebuild
from txlog.journal.repairing import check_repair
from txlog.journal.scan import Scan, Tail, scan
from txlog.journal.space import Space
from txlog.journal.trim import Removal, Segments, Start, seqs_of
from txlog.journal.vitals import Vitals
from txlog.model.entry import Item, Run
from txlog.model.errors import JournalBroken, JournalDamaged, JournalFull
from txlog.model.hashes import NO_HASH, chain_start, content_hash
from txlog.model.ids import Origin
from txlog.model.records import (
    Added,
    Ceiling,
    Damage,
    Held,
    Left,
    Promised,
    Record,
    Recovered,
    Stable,
    Stamped,
    Trimmed,
    ViewAccepted,
    ViewInstalled,
)
from txlog.model.view import Number, View

SEGMENT_BYTES: Final = 64 << 20
CACHE_BYTES: Final = 32 << 20
VITALS_GROWTH: Final = 96
"""How much longer the vitals may become by the record itself: an origin that was not there before."""
ORIGIN_BYTES_MAX: Final = 80
"""Of the origin's name in a Held record, padded."""
WORK_BYTES_MAX: Final = 1 << 16
"""``has_room_for_work`` promises room for a record of this size (less where segments are tiny)."""


class Journal:
    """One per master process. All methods belong to one thread, the owner's; only ``Sync.run`` and ``Prepare.run`` may
    be called on others.

    The owner's loop: :meth:`append` ...; when :attr:`dirty` and no sync is under way, :meth:`begin_sync`, ``run``,
    :meth:`end_sync`; after a short idle, :meth:`seal`; and whenever it likes, :meth:`begin_prepare`, ``run``,
    :meth:`end_prepare` (without it, the sync that fills a segment makes the next one itself, and is slow once)."""

    def __init__(self, files: Files, space: Space, found: Scan, reader: Reader, cache_bytes: int) -> None:
        self._files = files
        self._space = space
        self._reader = reader
        self._index: Index = found.index
        self._vitals: Vitals = found.state
        self._birth = found.own.birth
        self._views: dict[Number, View] = dict(found.views)
        self._lone_copies = found.lone_copies()
        self._uncopied = found.uncopied()
        self._recent = Recent(cache_bytes)
        self._next = found.number
        self._chain = found.chain if found.chain is not None else fmt.EMPTY_CHAIN
        self._synced = found.number - 1
        self._batch_first = found.number
        """Every record below it is synced before a byte of the next batch is written."""
        self._tail = _tail_segment(found.tail, self._birth)
        self._extents: list[Extent] = []
        self._sync: Sync | None = None
        self._preparing: Prepare | None = None
        self._broken = ""
        self._sealed = 0
        self._retired: list[Segment] = []
        self._last_head = NO_HEAD
        self._before: dict[int, bytes] = {}
        self._bad_headers: dict[str, int] = {}
        starts = [Start(one.number, one.vitals.log_end, one.vitals.held) for one in found.pieces]
        self._segments = Segments(starts, found.first_segment)
        self._removal: Removal | None = None
        self.damage: list[Damage] = []
        """What stood in damaged records and is still missing (rule 28)."""
        self.notes: list[str] = found.notes
        """What recovery met that costs nothing, in words."""

    # -- open and close

    @classmethod
    def open(
        cls,
        files: Files,
        *,
        node: str,
        draw_birth: Callable[[], int],
        segment_bytes: int = SEGMENT_BYTES,
        cache_bytes: int = CACHE_BYTES,
    ) -> tuple[Journal, Recovered]:
        """Read the folder, or begin a new journal in an empty one, and make ``start + 1`` durable (rule 1).

        :class:`JournalDamaged`: what no other master can repair; a folder that belongs to another node or process; an
        unknown format. :class:`JournalBroken`: a write failed. :class:`JournalFull`: not even room to start."""
        try:
            return cls._open(files, node, draw_birth, segment_bytes, cache_bytes)
        except BlockingIOError:
            raise JournalDamaged(
                f"opening the journal of {node}: another process works in this folder. Next: end that process first"
            ) from None
        except (OSError, JournalDamaged, JournalBroken, JournalFull) as error:
            files.close()
            if not isinstance(error, OSError):
                raise
            raise JournalBroken(
                f"opening the journal of {node}: {error}. Next: look at the disk, start again"
            ) from error

    @classmethod
    def _open(
        cls, files: Files, node: str, draw_birth: Callable[[], int], segment_bytes: int, cache_bytes: int
    ) -> tuple[Journal, Recovered]:
        files.lock()
        found = scan(files, segment_bytes)
        if found is None:
            found = Scan(files, Origin(node, draw_birth()))
        if found.own.node != node:
            raise JournalDamaged(
                f"opening the journal of {node}: this folder is the journal of {found.own}. Next: correct the node id"
                " or the folder; nothing was changed"
            )
        space = _clean_up(files, segment_bytes)
        _settle_tail(files, found)
        _finish_trim(files, found)
        space.refresh()
        reader = Reader(files, found.own.birth)
        recovered = rebuild(found, reader)
        journal = cls(files, space, found, reader, cache_bytes)
        journal._remember(found, recovered)
        recovered.start += 1
        journal._start(recovered.start)
        return journal, recovered

    def _remember(self, found: Scan, recovered: Recovered) -> None:
        """What a repair will be checked against."""
        self.damage = list(recovered.damage)
        for damage in self.damage:
            before = damage.log_from - 1
            kept = before >= max(1, recovered.foot.index)
            self._before[damage.first] = recovered.hash_at(before) if kept else self._log_start()
        self._bad_headers = {bad.where: bad.segment for bad in found.bad if bad.segment}

    def _log_start(self) -> bytes:
        view = self._views.get(self._vitals.accepted) or next(iter(self._views.values()), None)
        return chain_start(view.cluster_id) if view else NO_HASH

    def _start(self, start: int) -> None:
        """Synced together with whatever good records an earlier process left unsynced."""
        started = bodies.encode_started(start)
        wanted = self._length(started) + fmt.seal_bytes(len(self._vitals.encoded))
        if not self._space.spares and not self._add_spare() and self._tail.end + wanted > self._tail.size:
            raise JournalFull(
                f"starting over a journal: no room for a segment of {self._space.segment_bytes} bytes, and none kept in"
                " reserve. Next: free space, then start again"
            )
        self._put(started)
        self._vitals.set_start(start)
        if not self.damage:
            self._copy_views()
        self.sync()
        self._add_spare()

    def _add_spare(self) -> bool:
        prepare = self.begin_prepare()
        if prepare is None:
            return False
        prepare.run()
        self.end_prepare(prepare)
        return prepare.spare is not None

    def close(self) -> None:
        """Lets go of the folder. Writes nothing: what is not synced is lost, as in a crash."""
        self._reader.close()
        for segment in (self._tail, *self._retired):
            segment.close()
        self._files.close()

    # -- append

    def append(self, record: Record | Sequence[Record]) -> None:
        """Into the buffer; no writing. Several records are taken together or not at all.

        :class:`JournalFull`, for ``Held`` only: no room for work (rule 29). :class:`JournalBroken` after a failed
        write.
        """
        self._check_broken()
        if isinstance(record, Held):
            held, body = self._held_body(record)
            self._refuse_work(self._length(body))
            self._append_held(record.run, held, body)
        elif isinstance(record, Sequence):
            self._append_all(record)
        else:
            self._append_other(record)

    def _append_all(self, records: Sequence[Record]) -> None:
        work = [self._held_body(record) for record in records if isinstance(record, Held)]
        if work:
            self._refuse_work(sum(self._length(body) for _, body in work))
        taken = iter(work)
        for record in records:
            if isinstance(record, Held):
                self._append_held(record.run, *next(taken))
            else:
                self._append_other(record)

    def _held_body(self, record: Held) -> tuple[OriginIndex, Body]:
        run = record.run
        held = self._index.get(run.node, run.birth) or self._index.at(run.origin)
        return held, bodies.encode_held(held.data, run, record.contents)

    def _append_held(self, run: Run, held: OriginIndex, body: Body) -> None:
        assert run.first_seq == held.last + 1, f"{held.origin}: {run.first_seq} behind {held.last}"
        assert run.items
        number = self._next
        segment, offset = self._put(body, work=True)
        held.add(run.first_seq, segment.number, offset)
        if body.flags & fmt.FLAG_NAMED:
            held.note_named(run.first_seq)
        held.last = run.first_seq + body.b - 1
        self._vitals.set_held(held.origin, held.last)
        self._recent.put(held.slot, number, run, len(body.tail))

    def _append_other(self, record: Record) -> None:
        vitals = self._vitals
        match record:
            case Added():
                assert record.first_index == vitals.log_end + 1
                self._put(bodies.encode_added(record))
                end = vitals.log_end + len(record.hashes) // 16
                vitals.set_log(end, record.hashes[-16:] or vitals.log_hash, record.stable)
            case Stable():
                self._put(bodies.encode_small(record))
                vitals.set_stable(record.index)
            case Ceiling():
                self._put(bodies.encode_small(record))
                vitals.set_ceiling(record.stamp)
            case ViewAccepted():
                self._accept(record)
            case Trimmed():
                self._trim(record)
            case Promised():
                self._put(bodies.encode_small(record))
                vitals.set_promised((record.epoch, record.ballot, record.coordinator))
            case ViewInstalled():
                self._install((record.epoch, record.ballot, record.coordinator))
            case Left():
                self._put(bodies.encode_small(record))
                vitals.set_left((record.epoch, record.ballot, record.coordinator))
            case _:
                raise AssertionError(f"no record of a master: {record!r}")

    def _accept(self, record: ViewAccepted) -> None:
        vitals, view, cut = self._vitals, record.view, record.cut
        assert cut <= vitals.log_end, f"{view.number} cuts at {cut}, the log ends at {vitals.log_end}"
        assert cut + len(record.hashes) // 16 == view.base_index
        assert record.hashes[-16:] in (b"", view.base_hash)
        restamped_ones = [self._stamped(stamped) for stamped in record.stamped]
        changes = cut < vitals.log_end or record.spans or record.stamped or cut < vitals.stable
        body = bodies.encode_accepted(record, vitals.changes + 1 if changes else 0)
        self._put(body)
        self._views[view.number] = view
        vitals.set_accepted(view)
        if changes:
            vitals.set_change(view, cut, record.hashes)
        for held, stamped in zip(restamped_ones, record.stamped, strict=True):
            held.stamps.put(stamped.first_seq, array("Q", stamped.stamps))
        self._put(body)

    def _trim(self, record: Trimmed) -> None:
        """Written twice, as nobody else knows where this journal begins."""
        foot, vitals = record.foot, self._vitals
        seqs = seqs_of(foot)
        first = self._segments.first_needed(foot.index, seqs)
        body = bodies.encode_trimmed(foot, first, vitals.changes + 1)
        self._put(body)
        for origin, seq in seqs.items():
            self._index.at(origin).trim(seq, first)
        vitals.set_foot(foot)
        self._put(body)
        self._segments.trim(self._next - 1, first)

    def _stamped(self, stamped: Stamped) -> OriginIndex:
        held = self._index.get(stamped.node, stamped.birth)
        assert held is not None, f"{stamped.node}: new stamps, and nothing is held"
        assert stamped.first_seq + len(stamped.stamps) - 1 <= held.last, f"{held.origin}: new stamps above {held.last}"
        return held

    def _install(self, number: Number) -> None:
        assert number == self._vitals.accepted
        base_index = self._views[number].base_index
        self._put(bodies.encode_installed(number, base_index))
        self._vitals.set_installed(number, base_index)

    def _put(self, body: Body, *, work: bool = False) -> tuple[Segment, int]:
        """Frame the record and give it its place."""
        vitals = self._vitals.encoded
        length = fmt.record_length(body, len(vitals))
        extent, offset = self._place(length, len(vitals), work, sealing=body.kind == fmt.SEAL)
        self._chain = fmt.next_chain(self._chain, body.front)
        segment = extent.segment
        synced = self._batch_first - 1
        extent.parts += fmt.encode_record(body, length, self._next, synced, self._chain, vitals, segment.seed)
        self._next += 1
        return segment, offset

    def _place(self, length: int, vitals_bytes: int, work: bool, sealing: bool) -> tuple[Extent, int]:
        """Always leaves room for the seals."""
        tail, seals = self._tail, fmt.seal_bytes(vitals_bytes)
        if tail.end + length + seals > tail.size and not sealing:
            tail = self._roll(length + seals, work)
        if not self._extents or self._extents[-1].segment is not tail:
            self._extents.append(Extent(tail, tail.end))
        offset = tail.end
        tail.end += length
        return self._extents[-1], offset

    def _roll(self, length: int, work: bool) -> Segment:
        """The next segment; its header promises that all records up to here are synced, and the sync keeps it."""
        old, vitals = self._tail, self._vitals
        if self._next > self._batch_first and not self._extents:
            self._extents.append(Extent(old, old.end))
        self._retired.append(old)
        self._segments.opened(Start(old.number + 1, vitals.log_end, dict(vitals.held)))
        number, size = old.number + 1, self._segment_size(length)
        views = self._known_views()
        header = fmt.encode_segment_header(size, number, self._next, self._birth, self._chain, vitals, views)
        seed = fmt.segment_seed(self._birth, number)
        spare = self._space.take(size, work)
        self._tail = Segment(number, size, len(header), seed, header, spare or self._space.new_name(), spare is None)
        self._batch_first = self._next
        return self._tail

    def _known_views(self) -> list[View | None]:
        return [self._views.get(self._vitals.accepted), self._views.get(self._vitals.installed)]

    def _segment_size(self, length: int) -> int:
        """A record that is larger than a segment gets one of its own size."""
        header = fmt.segment_header_bytes(self._vitals, self._known_views())
        return max(self._space.segment_bytes, fmt.padded(2 * header + length))

    # -- room

    @property
    def has_room_for_work(self) -> bool:
        """Whether a ``Held`` of ordinary size is taken now. True again by itself when there is space again."""
        return self.has_room_for(0)

    def has_room_for(self, length: int) -> bool:
        """Whether a ``Held`` of ``length`` bytes, or of ordinary size if that is more, is taken now."""
        frame = fmt.HEAD_BYTES + len(self._vitals.encoded) + VITALS_GROWTH + ORIGIN_BYTES_MAX
        size = max(length + frame, min(WORK_BYTES_MAX, self._space.segment_bytes // 8))
        if self._has_room(size):
            return True
        self._space.refresh()
        return self._has_room(size)

    @property
    def bytes_used(self) -> int:
        """In files of this journal, spares included."""
        return sum(self._size_of(name) for name in self._files.list() if fmt.parse_name(name))

    def _size_of(self, name: str) -> int:
        """0 for a file that another thread has just renamed or removed."""
        try:
            return self._files.size(name)
        except FileNotFoundError:
            return 0

    @property
    def bytes_free(self) -> int:
        """What work may still take: the current segment's rest, spares beyond the reserve, the disk beyond that."""
        self._space.refresh()
        kept = len(self._space.spares) - 1
        beyond = max(0, self._space.unclaimed + kept * self._space.segment_bytes)
        return self._tail.size - self._tail.end + beyond if self._space.reserve_kept else 0

    def _length(self, body: Body) -> int:
        return fmt.record_length(body, len(self._vitals.encoded) + VITALS_GROWTH)

    def _has_room(self, length: int) -> bool:
        length += fmt.seal_bytes(len(self._vitals.encoded))
        if self._tail.end + length <= self._tail.size:
            return self._space.reserve_kept
        return self._space.may_open_for_work(self._segment_size(length))

    def _refuse_work(self, length: int) -> None:
        if self._has_room(length):
            return
        self._space.refresh()
        if not self._has_room(length):
            raise JournalFull(
                f"holding {length} bytes in segment {self._tail.name}: the disk is full up to the reserve that the"
                " protocol itself needs. Next: free space or add some; work is taken again without a restart"
            )

    # -- sync

    @property
    def dirty(self) -> bool:
        """Records wait for a sync that has not begun."""
        return bool(self._extents)

    def begin_sync(self) -> Sync | None:
        """Takes the buffer; None when it is empty. One at a time."""
        self._check_broken()
        assert self._sync is None, "one sync at a time"
        if not self._extents:
            return None
        self._sync = Sync(self._files, self._space, self._extents, self._retired, self._next - 1, self._break)
        self._extents, self._retired = [], []
        self._batch_first = self._next
        return self._sync

    def end_sync(self, sync: object) -> None:
        """The batch is durable. On the owner's thread, after ``run`` of what :meth:`begin_sync` gave returned."""
        assert sync is self._sync
        assert isinstance(sync, Sync)
        assert sync.done
        self._sync = None
        self._synced = sync.last
        for extent in sync.extents:
            self._reader.forget(extent.segment.number)
        for segment in sync.retired:
            segment.close()
        if len(sync.extents) > 1 or self._space.claimed:
            self._settle_space()
        self._recent.shrink(self._synced)

    def sync(self) -> None:
        """The three steps at once, for start-up, repair and tests."""
        sync = self.begin_sync()
        if sync is not None:
            sync.run()
            self.end_sync(sync)

    def _settle_space(self) -> None:
        waiting = {extent.segment for extent in self._extents if extent.segment.header is not None}
        self._space.claimed = sum(segment.size for segment in waiting if segment.to_make)
        self._space.refresh()

    def seal(self) -> bool:
        """After a short idle: write, but do not sync, two tiny records that tell that the last one is synced.

        Without them a bit flipped in the very last record reads as a torn tail. True when they were written."""
        tail = self._tail
        idle = not (self._broken or self._extents or self._sync is not None or self._sealed == self._synced)
        room = tail.end + fmt.seal_bytes(len(self._vitals.encoded)) <= tail.size
        if not (idle and room) or tail.file is None:
            return False
        extent = self._put_seals()
        try:
            tail.file.pwrite(extent.offset, b"".join(extent.parts))
        except OSError as error:
            self._break(f"sealing the journal at {tail.name}: {error}. Next: look at the disk, then start again")
            raise JournalBroken(self._broken) from error
        self._sealed = self._synced
        return True

    def _put_seals(self) -> Extent:
        """The second one begins in a sector of which the last record has no part."""
        vitals_bytes = len(self._vitals.encoded)
        first_end = self._tail.end + fmt.HEAD_BYTES + vitals_bytes
        self._put(bodies.encode_seal(-first_end % fmt.SECTOR))
        self._put(bodies.encode_seal(0))
        return self._extents.pop()

    def begin_prepare(self) -> Prepare | None:
        """A spare to be made ahead, if one is missed and there is room. One at a time; may run beside a sync."""
        if self._preparing is not None or self._broken:
            return None
        if not self._space.wants_spare(self._tail.size - self._tail.end < self._tail.size // 2):
            return None
        self._preparing = Prepare(self._files, self._space.new_name(), self._space.segment_bytes, self._break)
        return self._preparing

    def end_prepare(self, prepare: Prepare) -> None:
        """On the owner's thread, after ``run``."""
        assert prepare is self._preparing
        self._preparing = None
        if prepare.spare is not None:
            self._space.spares.append(prepare.spare)
        self._space.refresh()

    # -- trim

    def frees(self, foot_index: int, seqs: dict[Origin, int]) -> int:
        """How many segments a foot there would leave without need."""
        return self._segments.count_below(self._segments.first_needed(foot_index, seqs))

    def begin_removal(self) -> Removal | None:
        """The segments that a durable trim needs no more. One at a time; may run beside a sync."""
        if self._removal is not None or self._broken:
            return None
        gone = self._segments.take_due(self._synced)
        if not gone:
            return None
        self._reader.drop_below(gone.stop)
        self._removal = Removal(self._files, gone, self._break)
        return self._removal

    def end_removal(self, removal: Removal) -> None:
        """On the owner's thread, after ``run``."""
        assert removal is self._removal
        self._removal = None
        self._space.refresh()

    def named(self, node: str, birth: int, first_seq: int, last_seq: int) -> list[tuple[int, Item, bytes]]:
        """Which of these held transactions have a key, with their content hashes; the payloads are left out.

        :class:`JournalDamaged` when one cannot be read."""
        held = self._index.get(node, birth)
        found: list[tuple[int, Item, bytes]] = []
        for first in held.named if held is not None else ():
            if first > last_seq:
                break
            assert held is not None
            place = held.place(first)
            if place is None or place.first_seq != first:
                continue
            found += self._named_in(held, place, first_seq, last_seq)
        return found

    def _named_in(
        self, held: OriginIndex, place: Place, first_seq: int, last_seq: int
    ) -> list[tuple[int, Item, bytes]]:
        recent = self._recent.get(held.slot, place.first_seq)
        if recent is not None:
            rows = [(seq, one.stamp, one.kind, one.key) for seq, one in enumerate(recent.items, recent.first_seq)]
            contents = [content_hash(one.kind, one.key, one.payload) if one.key else b"" for one in recent.items]
        else:
            try:
                head = self._head(place)
            except Unreadable as error:
                raise JournalDamaged(
                    f"reading the keys of {held.origin}.{place.first_seq}: {error}. Next: start this master again; it"
                    " will name the damage and fetch it"
                ) from None
            columns = head.columns
            rows = [
                (head.first_seq + at, columns.stamps[at], columns.kinds[at], columns.keys[at])
                for at in range(head.count)
            ]
            contents = [columns.content(at) for at in range(head.count)]
        return [
            (seq, Item(held.stamps.get(seq, stamp), kind, key, b""), contents[at])
            for at, (seq, stamp, kind, key) in enumerate(rows)
            if key and first_seq <= seq <= last_seq
        ]

    # -- read

    def read(self, node: str, birth: int, first_seq: int, count_max: int, bytes_max: int) -> Run:
        """Held transactions of an origin from ``first_seq`` on: at most ``count_max``, about ``bytes_max`` bytes of
        payload, at least one when it is held, none when it is not.

        :class:`JournalDamaged` when the first one cannot be read; never "not held" for that (rule 28)."""
        held = self._index.get(node, birth)
        items: list[Item] = []
        if held is not None:
            self._gather(held, first_seq, count_max, bytes_max, items)
        return Run(node, birth, first_seq, items)

    def _gather(self, held: OriginIndex, seq: int, count_max: int, bytes_max: int, items: list[Item]) -> None:
        stop, room = min(held.last + 1, seq + count_max), bytes_max
        while seq < stop and (room > 0 or not items):
            try:
                taken = self._piece(held, seq, stop - seq, room)
            except Unreadable as error:
                if items:
                    return
                raise JournalDamaged(
                    f"reading {held.origin}.{seq}: {error}. Another master that holds it can repair it. Next: start"
                    " this master again; it will name the damage and fetch it"
                ) from None
            items += restamped(held, seq, taken) if held.stamps else taken
            seq += len(taken)
            room -= sum(len(item.payload) for item in taken)

    def _piece(self, held: OriginIndex, seq: int, count: int, room: int) -> list[Item]:
        """At least one item, of one record."""
        if seq <= held.trimmed:
            raise Unreadable("the log was trimmed above it")
        place = held.place(seq)
        if place is None:
            raise Unreadable("it stood in a damaged record")
        recent = self._recent.get(held.slot, place.first_seq)
        if recent is not None and seq <= recent.last_seq:
            first = seq - recent.first_seq
            whole = recent.items if first == 0 and len(recent.items) <= count else recent.items[first : first + count]
            return whole[: _fitting([len(item.payload) for item in whole], room)]
        head = self._head(place)
        if seq > head.last_seq:
            raise Unreadable("it stood in a damaged record")
        first = seq - head.first_seq
        return self._reader.items(head, first, _fitting(head.columns.sizes[first : first + count], room))

    def _head(self, place: Place) -> Head:
        """The last one is kept: a big record is often read in small pieces."""
        if self._last_head.segment != place.segment or self._last_head.offset != place.offset:
            self._last_head = self._reader.head(place)
        return self._last_head

    # -- repair

    def repair(self, damage: Damage, runs: Sequence[Run], contents: Sequence[bytes], added: Added | None) -> None:
        """What other masters sent for one of :attr:`damage`, with the content hashes of each run. It is checked and
        appended; it is mended when the sync behind it is. :class:`JournalDamaged` when something does not fit or is
        still missing; nothing is appended then.

        A master that has mended everything opens its journal anew and so learns what stood there."""
        assert damage in self.damage
        check_repair(damage, runs, contents, added, self._before[damage.first], self._meta, self._stamp)
        for run, hashes in zip(runs, contents, strict=True):
            self._refill(run, hashes)
        if added is not None:
            self._put(bodies.encode_added(added, fmt.FLAG_REPAIR))
        segment = next((number for where, number in self._bad_headers.items() if damage.where.startswith(where)), 0)
        self._put(bodies.encode_repaired(damage.first, damage.last, segment))
        self.damage.remove(damage)
        if not self.damage:
            self._copy_views()

    def _copy_views(self) -> None:
        """A copy of a view stood in what was damaged, or in a torn tail, and nobody can send it: two again."""
        for place in self._lone_copies:
            try:
                body = self._reader.body(place)
            except Unreadable as error:
                raise JournalDamaged(
                    f"copying the view at byte {place.offset} of {fmt.segment_name(place.segment)}: {error}, and its"
                    " other copy was lost before. Next: start again; what can be repaired will be named"
                ) from None
            flags = body.flags | fmt.FLAG_REPAIR
            self._put(Body(body.kind, flags, body.a, body.b, body.front, body.tail))
        if self._uncopied is not None:
            body = bodies.encode_accepted(ViewAccepted(self._uncopied), 0, fmt.FLAG_REPAIR)
            self._put(body)
            self._put(body)
        self._lone_copies, self._uncopied = [], None

    def _refill(self, run: Run, hashes: bytes) -> None:
        held = self._index.at(run.origin)
        number = self._next
        body = bodies.encode_held(held.data, run, hashes, fmt.FLAG_REPAIR)
        segment, offset = self._put(body, work=True)
        held.refill(run.first_seq, segment.number, offset)
        self._recent.put(held.slot, number, run, len(body.tail))

    def _meta(self, origin: Origin, seq: int) -> tuple[int, bytes] | None:
        """Stamp and content hash of what is held."""
        held = self._index.get(*origin)
        place = held.place(seq) if held is not None and seq <= held.last else None
        if held is None or place is None:
            return None
        recent = self._recent.get(held.slot, place.first_seq)
        if recent is not None and seq <= recent.last_seq:
            item = recent.items[seq - recent.first_seq]
            return held.stamps.get(seq, item.stamp), content_hash(item.kind, item.key, item.payload)
        try:
            head = self._head(place)
        except Unreadable:
            return None
        at = seq - head.first_seq
        if at >= head.count:
            return None
        return held.stamps.get(seq, head.columns.stamps[at]), head.columns.content(at)

    def _stamp(self, origin: Origin, seq: int, sent: int) -> int:
        """Of a transaction that was sent: what a view that was accepted here has said of it holds."""
        held = self._index.get(*origin)
        return held.stamps.get(seq, sent) if held is not None else sent

    # -- broken

    def _break(self, text: str) -> None:
        self._broken = text

    def _check_broken(self) -> None:
        if self._broken:
            raise JournalBroken(self._broken)


def _fitting(sizes: Sequence[int] | array[int], room: int) -> int:
    """How many of these payloads, at least one."""
    count, total = 0, 0
    for size in sizes:
        total += size
        if count and total > room:
            break
        count += 1
    return count


def _tail_segment(tail: Tail, birth: int) -> Segment:
    return Segment(tail.segment, tail.size, tail.end, fmt.segment_seed(birth, tail.segment))


def _settle_tail(files: Files, found: Scan) -> None:
    """Before anything relies on what was read: stale bytes are zeroed, and what an earlier process wrote without a
    sync, or renamed without one, is made durable."""
    files.sync_folder()
    if found.tail.segment == 0:
        return
    file = files.open(fmt.segment_name(found.tail.segment))
    if found.cut is not None:
        _zero(file, found.cut.start, found.cut.stop)
    file.fdatasync()
    file.close()


def _finish_trim(files: Files, found: Scan) -> None:
    """A crash came between a trim and the removal of what it left."""
    gone = [piece.number for piece in found.pieces if piece.number < found.first_segment]
    if gone:
        Removal(files, range(gone[0], gone[-1] + 1), _ignored).run()
        found.pieces = [piece for piece in found.pieces if piece.number >= found.first_segment]


def _ignored(text: str) -> None:
    """The error itself is raised."""


def _zero(file: File, start: int, stop: int) -> None:
    for offset in range(start, stop, len(ZEROS)):
        file.pwrite(offset, ZEROS[: stop - offset])


def _clean_up(files: Files, segment_bytes: int) -> Space:
    """Half-made spares go; whole ones are zeros again, should one carry a header that was never needed."""
    spares, highest = [], 0
    for name in files.list():
        kind, number = fmt.parse_name(name) or ("", 0)
        highest = max(highest, number)
        if kind == "making" or (kind == "spare" and files.size(name) != segment_bytes):
            files.remove(name)
        elif kind == "spare":
            _blank(files, name)
            spares.append(name)
    return Space(files, segment_bytes, spares, highest)


def _blank(files: Files, name: str) -> None:
    file = files.open(name)
    used = len(file.pread(0, fmt.HEADERS_MAX).rstrip(b"\0"))
    if used:
        _zero(file, 0, used)
        file.fdatasync()
    file.close()
