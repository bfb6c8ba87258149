"""The journal of a running master: append, group commit, read, repair. The format is the package's docstring."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from txlog.journal import bodies
from txlog.journal import format as fmt
from txlog.journal.batch import Extent, Prepare, Segment, Sync
from txlog.journal.files import Files
from txlog.journal.format import Body
from txlog.journal.index import OriginIndex
from txlog.journal.laid import FRONT_BYTES, REST_BYTES, Laid, Laying, place_for
from txlog.journal.opening import clean_up, finish_trim, settle_tail, tail_segment
from txlog.journal.reader import Reader, Unreadable
from txlog.journal.rebuild import rebuild
from txlog.journal.repairing import Logged, check_repair, proves_all
from txlog.journal.scan import Scan, scan
from txlog.journal.space import Space
from txlog.journal.stored import Stored
from txlog.journal.survey import Survey
from txlog.journal.trim import Removal, Segments, Start, seqs_of
from txlog.journal.vitals import Vitals
from txlog.model.entry import Run
from txlog.model.errors import JournalBroken, JournalDamaged, JournalFull
from txlog.model.hashes import HASH_BYTES, NO_HASH, chain_start
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
from txlog.model.view import NO_VIEW, Number, View

SEGMENT_BYTES: Final = 64 << 20
CACHE_BYTES: Final = 32 << 20
VITALS_GROWTH: Final = 96
"""How much longer the vitals may become by the record itself: an origin that was not there before."""
ORIGIN_BYTES_MAX: Final = 80
"""Of the origin's name in a Held record, padded."""
WORK_BYTES_MAX: Final = 1 << 16
"""``has_room_for_work`` promises room for a record of this size (less where segments are tiny)."""


INDEX_ROOM: Final = 2
"""So many segments must fit on the disk beside an index: what is no more than quick does not take the reserve."""


class Journal(Stored):
    """One per master process. All methods belong to one thread, the owner's; only ``Sync.run`` and ``Prepare.run`` may
    be called on others.

    The owner's loop: :meth:`append` ...; when :attr:`dirty` and no sync is under way, :meth:`begin_sync`, ``run``,
    :meth:`end_sync`; after a short idle, :meth:`seal`; and whenever it likes, :meth:`begin_prepare`, ``run``,
    :meth:`end_prepare` (without it, the sync that fills a segment makes the next one itself, and is slow once)."""

    def __init__(self, files: Files, space: Space, found: Scan, reader: Reader, cache_bytes: int) -> None:
        super().__init__(reader, found.index, cache_bytes)
        self._files = files
        self._space = space
        self._vitals: Vitals = found.state
        self._birth = found.own.birth
        self._views: dict[Number, View] = dict(found.views)
        self._lone_copies = found.lone_copies()
        self._uncopied = found.uncopied()
        self._next = found.number
        self._chain = found.chain if found.chain is not None else fmt.EMPTY_CHAIN
        self._synced = found.number - 1
        self._batch_first = found.number
        """Every record below it is synced before a byte of the next batch is written."""
        self._tail = tail_segment(found.tail, self._birth)
        self._extents: list[Extent] = []
        self._sync: Sync | None = None
        self._preparing: Prepare | None = None
        self._broken = ""
        self._sealed = 0
        self._retired: list[Segment] = []
        self._before: dict[int, bytes] = {}
        self._logged: Logged | None = None
        self._bad_headers: dict[str, int] = {}
        starts = [Start(one.number, one.vitals.log_end, one.vitals.held) for one in found.pieces]
        self._segments = Segments(starts, found.first_segment)
        self._removal: Removal | None = None
        self._survey: Survey | None = None
        self._surveying = False
        self._without_index: deque[int] = deque(found.whole)
        self._unread: deque[int] = deque(found.indexed)
        self._laying = Laying()
        self.laid_used = 0
        """Records whose payload was on the disk before them."""
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
        return cls._read(files, node, draw_birth, segment_bytes, cache_bytes)

    @classmethod
    def _read(
        cls, files: Files, node: str, draw_birth: Callable[[], int], segment_bytes: int, cache_bytes: int
    ) -> tuple[Journal, Recovered]:
        found = scan(files, segment_bytes)
        if found is None:
            found = Scan(files, Origin(node, draw_birth()))
        if found.own.node != node:
            raise JournalDamaged(
                f"opening the journal of {node}: this folder is the journal of {found.own}. Next: correct the node id"
                " or the folder; nothing was changed"
            )
        space = clean_up(files, segment_bytes)
        settle_tail(files, found)
        finish_trim(files, found)
        reader = Reader(files, found.own.birth)
        recovered: Recovered | None = None
        try:
            recovered = rebuild(found, reader)
        except Unreadable as error:
            if reader.doubted.isdisjoint(found.indexed):
                raise JournalDamaged(f"opening the journal of {node}: {error}. Next: start again") from None
        if recovered is None or not reader.doubted.isdisjoint(found.indexed):
            reader.close()  # an index told of what is bad now; it is gone, and the damage is named
            return cls._read(files, node, draw_birth, segment_bytes, cache_bytes)
        space.refresh()
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
        if self.damage:
            self._logged = Logged(recovered, self._log_start())

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
        if self._survey is not None and not self._surveying:
            self._survey.abandon()
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
            if self._laying.any:
                self._append_all([record])
                return
            held, body = self._held_body(record)
            self._refuse_work(self._length(body))
            self._append_held(record.run, held, body)
        elif isinstance(record, Sequence):
            self._append_all(record)
        else:
            self._append_other(record)

    def _append_all(self, records: Sequence[Record]) -> None:
        if self._laying.any:
            records = self._apart(records)
        work = [self._held_body(record) for record in records if isinstance(record, Held)]
        laid = self._find_laid(records, work)
        if work:
            self._refuse_work(sum(self._length(body) for _, body in work if id(body) not in laid))
        taken = iter(work)
        for record in records:
            if isinstance(record, Held):
                held, body = next(taken)
                self._append_held(record.run, held, body, laid.get(id(body)))
            else:
                self._append_other(record)

    def _held_body(self, record: Held) -> tuple[OriginIndex, Body]:
        run = record.run
        held = self._index.get(run.node, run.birth) or self._index.at(run.origin)
        return held, bodies.encode_held(held.data, run, record.contents)

    def _append_held(self, run: Run, held: OriginIndex, body: Body, laid: Laid | None = None) -> None:
        assert run.first_seq == held.last + 1, f"{held.origin}: {run.first_seq} behind {held.last}"
        assert run.items
        if laid is not None:
            self._open_laid(laid, body)
        number = self._next
        segment, offset = self._put(body, work=True) if laid is None else self._put_laid(laid, body)
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

    # -- payloads that are on the disk before their records

    def begin_payload(self, content: bytes, size: int, key: str) -> Laid | None:
        """A file for a payload of a transaction with this content hash and key, which will be appended soon, if at all.
        Write it, finish it, then :meth:`end_payload`. None when there is one, or no room. Whose removal is due then
        says :meth:`take_unwanted`."""
        space = self._space
        if self._broken or not size or self._laying.has(content):
            return None
        space.refresh()
        vitals = self._vitals
        header = 2 * fmt.segment_header_bytes(vitals, self._known_views())
        slack = min(FRONT_BYTES, max(2 * fmt.SECTOR, space.segment_bytes // 8))
        at = place_for(header, len(vitals.encoded), key, vitals.own.node, slack)
        rest = fmt.seal_bytes(len(vitals.encoded)) + min(REST_BYTES, space.segment_bytes // 8)
        laid = Laid(self._files, space.new_name(), content, at, size, rest, self._break)
        if not space.may_open_for_work(laid.file_bytes):
            return None
        space.claimed += laid.file_bytes
        oldest = self._laying.add(laid)
        if oldest is not None:
            self.drop_payload(oldest)
        return laid

    def end_payload(self, laid: Laid) -> None:
        """On the owner's thread, after ``finish``: from here on it may be used."""
        self._unclaim(laid)
        if laid.gone:
            self._laying.drop(laid)
        self._space.refresh()

    def drop_payload(self, laid: Laid) -> None:
        """It will not be wanted. Its removal is due."""
        self._unclaim(laid)
        self._laying.drop(laid)

    def take_unwanted(self) -> list[Laid]:
        """Whose ``remove`` is due, in the thread that writes them."""
        return self._laying.take_unwanted()

    def _unclaim(self, laid: Laid) -> None:
        if laid.claimed:
            laid.claimed = False
            self._space.claimed -= laid.file_bytes

    def _apart(self, records: Sequence[Record]) -> list[Record]:
        """The same, each payload that is on the disk in a record of its own."""
        found: list[Record] = []
        for record in records:
            if isinstance(record, Held):
                found += self._held_apart(record)
            else:
                found.append(record)
        return found

    def _held_apart(self, record: Held) -> list[Held]:
        run, contents = record.run, record.contents
        cuts = {0, len(run.items)}
        for at, item in enumerate(run.items):
            content = contents[HASH_BYTES * at : HASH_BYTES * (at + 1)]
            if self._laying.ready(content, len(item.payload)) is not None:
                cuts.update((at, at + 1))
        if len(cuts) <= 2:
            return [record]
        edges = sorted(cuts)
        return [
            Held(
                Run(run.node, run.birth, run.first_seq + start, run.items[start:stop]),
                contents[HASH_BYTES * start : HASH_BYTES * stop],
            )
            for start, stop in pairwise(edges)
        ]

    def _find_laid(self, records: Sequence[Record], work: Sequence[tuple[OriginIndex, Body]]) -> dict[int, Laid]:
        """By the identity of the body, those whose payload need not be written: it is there, what stands in front of it
        fits however much the records before it change, and what follows finds room in another segment."""
        found: dict[int, Laid] = {}
        if not self._laying.any or len(work) < len(records):
            return found
        segment_bytes = self._space.segment_bytes
        self._space.refresh()
        if not self._space.may_open_for_work(segment_bytes):
            return found
        now = fmt.segment_header_bytes(self._vitals, self._known_views())
        new: set[Origin] = set()
        for held, body in work:
            growth = VITALS_GROWTH * len(new)
            if held.origin not in self._vitals.held:
                new.add(held.origin)
            header = 2 * (now + fmt.SECTOR * -(-growth // fmt.SECTOR))
            laid = (
                self._laying.ready(bodies.only_content(held.data, body.front), len(body.tail)) if body.b == 1 else None
            )
            if laid is None or laid in found.values():
                continue
            frames = 2 * (fmt.HEAD_BYTES + len(self._vitals.encoded) + growth)
            fits = laid.at >= header + frames + len(body.front) and (laid.at - len(body.front)) % 8 == 0
            if fits and (not found or self._space.unclaimed >= (len(found) + 2) * segment_bytes):
                found[id(body)] = laid
        return found

    def _open_laid(self, laid: Laid, body: Body) -> None:
        """Its file is the next segment, and what is over in front of the payload a Seal."""
        self._laying.take(laid)
        tail = self._open_segment(laid.file_bytes, laid.name, False)
        frames = 2 * (fmt.HEAD_BYTES + len(self._vitals.encoded))
        self._put(bodies.encode_seal(laid.at - tail.end - frames - len(body.front)))

    def _put_laid(self, laid: Laid, body: Body) -> tuple[Segment, int]:
        """The record but for its tail, which stands where it ends; what follows is written behind that."""
        vitals, tail = self._vitals.encoded, self._tail
        length = fmt.record_length(body, len(vitals))
        offset = tail.end
        assert offset + fmt.HEAD_BYTES + len(vitals) + len(body.front) == laid.at
        self._chain = fmt.next_chain(self._chain, body.front)
        crc = fmt.padded_crc(laid.crc, offset + length - laid.at - laid.size)
        self._extents[-1].parts += fmt.encode_head(
            body, length, self._next, self._batch_first - 1, self._chain, vitals, tail.seed, crc
        )
        tail.end += length
        self._extents.append(Extent(tail, tail.end))
        self._next += 1
        self.laid_used += 1
        return tail, offset

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
        size = self._segment_size(length)
        spare = self._space.take(size, work)
        return self._open_segment(size, spare or self._space.new_name(), spare is None)

    def _open_segment(self, size: int, source: str, to_make: bool) -> Segment:
        old, vitals = self._tail, self._vitals
        if self._next > self._batch_first and not self._extents:
            self._extents.append(Extent(old, old.end))
        self._retired.append(old)
        self._segments.opened(Start(old.number + 1, vitals.log_end, dict(vitals.held)))
        number, views = old.number + 1, self._known_views()
        header = fmt.encode_segment_header(size, number, self._next, self._birth, self._chain, vitals, views)
        seed = fmt.segment_seed(self._birth, number)
        self._tail = Segment(number, size, len(header), seed, header, source, to_make)
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
            self._without_index.append(segment.number)
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
        self._space.claimed = sum(segment.size for segment in waiting if segment.to_make) + self._laying.claimed
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

    # -- the indexes of sealed segments

    def begin_survey(self) -> Survey | None:
        """A sealed segment to be read again: first those without an index, then each one that this start has not read.
        One at a time; may run beside a sync. The same one again until it is done."""
        if self._surveying or self._broken:
            return None
        if self._survey is None:
            self._survey = self._next_survey()
        self._surveying = self._survey is not None
        return self._survey

    def _next_survey(self) -> Survey | None:
        is_new = bool(self._without_index)
        waiting = self._without_index if is_new else self._unread
        while waiting:
            number = waiting.popleft()
            if number >= self._segments.first:
                self._space.refresh()
                room = self._space.unclaimed >= INDEX_ROOM * self._space.segment_bytes
                name = self._space.new_name()
                return Survey(self._files, number, name, is_new=is_new, may_write=room, on_error=self._break)
        return None

    def end_survey(self, survey: Survey) -> None:
        """On the owner's thread, after ``run``."""
        assert survey is self._survey
        self._surveying = False
        if survey.done:
            self._survey = None
            self._space.refresh()

    # -- repair

    def repair(self, damage: Damage, runs: Sequence[Run], contents: Sequence[bytes], added: Added | None) -> None:
        """What other masters sent for one of :attr:`damage`, with the content hashes of each run. It is checked and
        appended; it is mended when the sync behind it is. :class:`JournalDamaged` when something does not fit or is
        still missing; nothing is appended then.

        Where what was sent has a stamp that nothing proves, the view is stopped for good, first of all: whoever sent it
        may have it with a later view's stamp, and with that this master must neither order nor post it in its own.

        A master that has mended everything opens its journal anew and so learns what stood there."""
        assert damage in self.damage
        assert self._logged is not None
        before = self._before[damage.first]
        check_repair(damage, runs, contents, added, before, self._meta, self._stamp, self._logged)
        if not proves_all(runs, added, self._logged, self._is_restamped):
            self._stop_view()
        for run, hashes in zip(runs, contents, strict=True):
            self._refill(run, hashes)
        if added is not None:
            self._put(bodies.encode_added(added, fmt.FLAG_REPAIR))
        segment = next((number for where, number in self._bad_headers.items() if damage.where.startswith(where)), 0)
        self._put(bodies.encode_repaired(damage.first, damage.last, segment))
        self.damage.remove(damage)
        if not self.damage:
            self._copy_views()

    def fitting(self, run: Run) -> int:
        """How many of the first of these may stand in a damaged place: what is in the log must have the stamp and the
        content with which its chain hash was made. For a journal that is damaged."""
        assert self._logged is not None
        return self._logged.fitting(run, self._stamp)

    def _stop_view(self) -> None:
        """Promise the least number above the view: no proposal has it, so none is refused for it."""
        vitals = self._vitals
        epoch, ballot, _ = vitals.accepted
        if vitals.promised == vitals.accepted != NO_VIEW and vitals.left != vitals.accepted:
            self._append_other(Promised(epoch, ballot + 1, ""))

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

    # -- broken

    def _break(self, text: str) -> None:
        self._broken = text

    def _check_broken(self) -> None:
        if self._broken:
            raise JournalBroken(self._broken)
