"""The journal of a running master: append, group commit, read, repair. The package's docstring specifies the format."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Final

from txlog.journal import format as fmt
from txlog.journal import record_bodies
from txlog.journal.damage_repair import DamageRepair
from txlog.journal.format import RecordBody
from txlog.journal.group_commit import GroupCommit, SparePreallocation
from txlog.journal.origin_index import OriginIndex
from txlog.journal.payload_stage import PayloadStaging
from txlog.journal.recovery import RecoveredJournal, recover
from txlog.journal.scrubber import Scrubber, ScrubTask
from txlog.journal.segment_gc import SegmentRemoval, SegmentSet, SegmentStart
from txlog.journal.staged_payload import StagedPayload
from txlog.journal.transaction_reader import TransactionReader
from txlog.journal.trim_records import TrimRecords
from txlog.journal.vfs import Vfs
from txlog.journal.write_buffer import WriteBuffer
from txlog.model.entry import TransactionRun
from txlog.model.errors import JournalBroken, JournalDamaged, JournalFull
from txlog.model.ids import Origin
from txlog.model.records import (
    CounterCeiling,
    Damage,
    KeyTableWritten,
    LogAppended,
    LogTrimmed,
    OperatorOverrides,
    ReassignedStamps,
    Record,
    RecoveredState,
    StableAdvanced,
    TransactionsPersisted,
    ViewAccepted,
    ViewInstalled,
    ViewLeft,
    ViewPromised,
)
from txlog.model.view import Number

SEGMENT_BYTES: Final = 64 << 20
CACHE_BYTES: Final = 32 << 20


class Journal(TransactionReader):
    """One per master process. All methods belong to one thread, the owner's. Other threads may only call ``run`` of
    the tasks it returns, such as ``GroupCommit.run`` and ``SparePreallocation.run``.

    The owner's loop: :meth:`append` ...; when :attr:`dirty` and no sync is under way, :meth:`begin_sync`, ``run``,
    :meth:`end_sync`. After a short idle time it calls :meth:`seal`. At any time it may call
    :meth:`begin_preallocation`, ``run``, :meth:`end_preallocation`. Without them, the sync that fills a segment
    creates the next one itself, and is slow once.
    """

    def __init__(self, files: Vfs, recovered: RecoveredJournal, cache_bytes: int) -> None:
        found, reader, state, space = recovered
        super().__init__(reader, found.index, cache_bytes)
        self._files = files
        self._space = space
        self._synced = found.number - 1
        self._sync: GroupCommit | None = None
        self._preallocation: SparePreallocation | None = None
        self._broken = ""
        self._sealed = 0
        starts = [SegmentStart(one.number, one.state_header.log_end, one.state_header.held) for one in found.segments]
        self._segments = SegmentSet(starts, found.first_segment)
        self._removal: SegmentRemoval | None = None
        self._buffer = WriteBuffer(space, self._segments, found)
        self._state_header = self._buffer.state_header
        self._trim_records = TrimRecords(self._buffer, self._segments, found.index)
        self._scrubber = Scrubber(
            files, space, self._segments, found.intact_segments, found.indexed_segments, self._mark_broken
        )
        self._payload_staging = PayloadStaging(files, space, self._buffer, self._mark_broken)
        self.staged_used = 0
        """Records whose payload was on the disk before them."""
        self._repair = DamageRepair(found, state, self._buffer, reader, self, self._index_repaired)
        self.damage: list[Damage] = self._repair.damage
        """Content of damaged records that is still missing (rule 28)."""
        self.notes: list[str] = found.notes
        """Recovery's findings that cost nothing, as text."""

    # -- open and close

    @classmethod
    def open(
        cls,
        files: Vfs,
        *,
        node: str,
        draw_birth: Callable[[], int],
        segment_bytes: int = SEGMENT_BYTES,
        cache_bytes: int = CACHE_BYTES,
    ) -> tuple[Journal, RecoveredState]:
        """Read the folder, or begin a new journal in an empty one, and make ``start + 1`` durable (rule 1).

        :class:`JournalDamaged`: damage that no other master can repair; a folder that belongs to another node or
        process; an unknown format. :class:`JournalBroken`: a write failed. :class:`JournalFull`: no room even to
        start.
        """
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
        cls, files: Vfs, node: str, draw_birth: Callable[[], int], segment_bytes: int, cache_bytes: int
    ) -> tuple[Journal, RecoveredState]:
        files.lock()
        folder = recover(files, node, draw_birth, segment_bytes)
        journal, recovered = cls(files, folder, cache_bytes), folder.state
        recovered.start += 1
        journal._start(recovered.start)
        return journal, recovered

    def _start(self, start: int) -> None:
        """The record of this start: the first one behind what recovery has made durable."""
        started = record_bodies.encode_started(start)
        length = self._buffer.length(started)
        if not self._space.spares and not self._add_spare() and not self._buffer.fits(length):
            raise JournalFull(
                f"starting over a journal: no room for a segment of {self._space.segment_bytes} bytes, and none kept in"
                " reserve. Next: free space, then start again"
            )
        self._buffer.append(started)
        self._state_header.set_start(start)
        if not self.damage:
            self._repair.copy_views()
        self.sync()
        self._add_spare()

    def _add_spare(self) -> bool:
        prepare = self.begin_preallocation()
        if prepare is None:
            return False
        prepare.run()
        self.end_preallocation(prepare)
        return prepare.spare is not None

    def close(self) -> None:
        """Unlock the folder. It writes nothing: unsynced records are lost, as in a crash."""
        self._reader.close()
        self._scrubber.close()
        for segment in (self._buffer.tail, *self._buffer.retired):
            segment.close()
        self._files.close()

    # -- append

    def append(self, record: Record | Sequence[Record]) -> None:
        """Append to the buffer, without writing. Several records are taken together or not at all.

        :class:`JournalFull`, for ``TransactionsPersisted`` only: no room for work (rule 29). :class:`JournalBroken`
        after a failed write.
        """
        self._check_broken()
        if isinstance(record, TransactionsPersisted):
            if self._payload_staging.has_payloads:
                self._append_all([record])
                return
            held, body = self._held_body(record)
            self._buffer.require_room(self._buffer.length(body))
            self._append_held(record.run, held, body)
        elif isinstance(record, Sequence):
            self._append_all(record)
        else:
            self._append_other(record)

    def _append_all(self, records: Sequence[Record]) -> None:
        if self._payload_staging.has_payloads:
            records = self._payload_staging.split_out_staged(records)
        work = [self._held_body(record) for record in records if isinstance(record, TransactionsPersisted)]
        staged = (
            self._payload_staging.match_records(work)
            if self._payload_staging.has_payloads and len(work) == len(records)
            else {}
        )
        if work:
            self._buffer.require_room(sum(self._buffer.length(body) for _, body in work if id(body) not in staged))
        taken = iter(work)
        for record in records:
            if isinstance(record, TransactionsPersisted):
                held, body = next(taken)
                self._append_held(record.run, held, body, staged.get(id(body)))
            else:
                self._append_other(record)

    def _held_body(self, record: TransactionsPersisted) -> tuple[OriginIndex, RecordBody]:
        run = record.run
        held = self._index.get(run.node, run.birth) or self._index.get_or_create(run.origin)
        return held, record_bodies.encode_held(held.encoded_origin, run, record.contents)

    def _append_held(
        self, run: TransactionRun, held: OriginIndex, body: RecordBody, staged: StagedPayload | None = None
    ) -> None:
        assert run.first_seq == held.last + 1, f"{held.origin}: {run.first_seq} after {held.last}"
        assert run.items
        buffer = self._buffer
        if staged is None:
            segment, offset = buffer.append(body, work=True)
        else:
            self._payload_staging.consume(staged)
            segment, offset = buffer.append_staged(staged, body)
            self.staged_used += 1
        held.add(run.first_seq, segment.number, offset)
        held.last = run.first_seq + body.b - 1
        self._state_header.set_held(held.origin, held.last)
        self._recent.put(held.slot, buffer.number - 1, run, len(body.tail))

    def _append_other(self, record: Record) -> None:
        state = self._state_header
        match record:
            case LogAppended():
                assert record.first_index == state.log_end + 1
                self._buffer.append(record_bodies.encode_added(record))
                end = state.log_end + len(record.hashes) // 16
                state.set_log(end, record.hashes[-16:] or state.log_hash, record.stable)
            case StableAdvanced():
                self._buffer.append(record_bodies.encode_scalar_record(record))
                state.set_stable(record.index)
            case CounterCeiling():
                self._buffer.append(record_bodies.encode_scalar_record(record))
                state.set_ceiling(record.stamp)
            case ViewAccepted():
                self._append_view_accepted(record)
            case LogTrimmed():
                self._trim_records.append_trimmed(record)
            case KeyTableWritten():
                self._trim_records.append_key_rows(record)
            case ViewPromised():
                self._buffer.append(record_bodies.encode_scalar_record(record))
                state.set_promised((record.epoch, record.ballot, record.coordinator))
            case ViewInstalled():
                self._append_view_installed((record.epoch, record.ballot, record.coordinator))
            case ViewLeft():
                self._buffer.append(record_bodies.encode_scalar_record(record))
                state.set_left((record.epoch, record.ballot, record.coordinator))
            case OperatorOverrides():
                self._buffer.append(record_bodies.encode_orders(record))
                state.set_overrides(record)
            case _:
                raise AssertionError(f"no record of a master: {record!r}")

    def _append_view_accepted(self, record: ViewAccepted) -> None:
        state, view, cut = self._state_header, record.view, record.cut
        assert cut <= state.log_end, f"{view.number} cuts at {cut}, the log ends at {state.log_end}"
        assert cut + len(record.hashes) // 16 == view.base_index
        assert record.hashes[-16:] in (b"", view.base_hash)
        restamped_ones = [self._apply_restamps(stamped) for stamped in record.reassigned]
        changes = cut < state.log_end or record.spans or record.reassigned or cut < state.stable
        body = record_bodies.encode_accepted(record, state.changes + 1 if changes else 0)
        self._buffer.append(body)
        self._buffer.views[view.number] = view
        state.set_accepted(view)
        if changes:
            state.set_change(view, cut, record.hashes)
        for held, stamped in zip(restamped_ones, record.reassigned, strict=True):
            held.restamps.set_range(stamped.first_seq, array("Q", stamped.stamps))
        self._buffer.append(body)
        self._buffer.forget_views()

    def _apply_restamps(self, stamped: ReassignedStamps) -> OriginIndex:
        held = self._index.get(stamped.node, stamped.birth)
        assert held is not None, f"{stamped.node}: new stamps, and nothing is held"
        assert stamped.first_seq + len(stamped.stamps) - 1 <= held.last, f"{held.origin}: new stamps above {held.last}"
        return held

    def _append_view_installed(self, number: Number) -> None:
        assert number == self._state_header.accepted
        base_index = self._buffer.views[number].base_index
        self._buffer.append(record_bodies.encode_installed(number, base_index))
        self._state_header.set_installed(number, base_index)

    # -- payloads that are on the disk before their records

    def stage_payload(self, content: bytes, size: int, key: str) -> StagedPayload | None:
        """A file for the payload of a transaction with this content hash and key, which the caller will append soon,
        if at all. Write it, finish it, then call :meth:`finish_staging`. None when there is one already, or no room.
        :meth:`pop_removable_staged` lists the payloads to remove afterwards."""
        return None if self._broken else self._payload_staging.begin(content, size, key)

    def finish_staging(self, staged: StagedPayload) -> None:
        """On the owner's thread, after ``finish``: from here on the payload may be used."""
        self._payload_staging.finish(staged)

    def discard_staged(self, staged: StagedPayload) -> None:
        """The caller does not need this payload: schedule its removal."""
        self._payload_staging.discard(staged)

    def pop_removable_staged(self) -> list[StagedPayload]:
        """The payloads whose ``remove`` is due, on the thread that writes them."""
        return self._payload_staging.pop_removable()

    # -- room

    @property
    def has_room_for_work(self) -> bool:
        """Whether a ``TransactionsPersisted`` of ordinary size is accepted now. It becomes true again by itself once
        there is space."""
        return self.has_room_for(0)

    def has_room_for(self, length: int) -> bool:
        """Whether a ``TransactionsPersisted`` of ``length`` bytes, or of ordinary size if that is more, is accepted
        now."""
        return self._buffer.has_room_for(length)

    @property
    def bytes_used(self) -> int:
        """Bytes in files of this journal, spares included."""
        return sum(self._size_of(name) for name in self._files.list() if fmt.parse_name(name))

    def _size_of(self, name: str) -> int:
        """0 for a file that another thread has just renamed or removed."""
        try:
            return self._files.size(name)
        except FileNotFoundError:
            return 0

    @property
    def bytes_free(self) -> int:
        """Bytes that work may still take: the rest of the current segment, spares beyond the reserve, the disk beyond
        that."""
        return self._buffer.bytes_free

    # -- sync

    @property
    def dirty(self) -> bool:
        """Whether records wait for a sync that has not begun."""
        return bool(self._buffer.extents)

    def begin_sync(self) -> GroupCommit | None:
        """Takes the buffer; None when it is empty. One at a time."""
        self._check_broken()
        assert self._sync is None, "one sync at a time"
        if not self._buffer.extents:
            return None
        extents, retired = self._buffer.take_batch()
        self._sync = GroupCommit(self._files, self._space, extents, retired, self._buffer.number - 1, self._mark_broken)
        return self._sync

    def end_sync(self, sync: object) -> None:
        """The batch is durable. Call this on the owner's thread, after ``run`` of the task of :meth:`begin_sync`
        returned."""
        assert sync is self._sync
        assert isinstance(sync, GroupCommit)
        assert sync.done
        self._sync = None
        self._synced = sync.last
        for extent in sync.extents:
            self._reader.invalidate(extent.segment.number)
        for segment in sync.retired:
            segment.close()
            self._scrubber.add_sealed(segment.number)
        if len(sync.extents) > 1 or self._space.claimed_bytes:
            self._space.claimed_bytes = self._buffer.bytes_to_create + self._payload_staging.claimed_bytes
            self._space.refresh()
        self._recent.shrink(self._synced)

    def sync(self) -> None:
        """The three steps at once, for start-up, repair and tests."""
        sync = self.begin_sync()
        if sync is not None:
            sync.run()
            self.end_sync(sync)

    def seal(self) -> bool:
        """After a short idle time: write, but do not sync, two tiny records that prove that the last one is synced.

        Without them a bit flipped in the very last record reads as a torn tail. Returns whether they were written.
        """
        tail = self._buffer.tail
        if self._broken or self._sync is not None or self._sealed == self._synced or tail.file is None:
            return False
        extent = self._buffer.append_seals()
        if extent is None:
            return False
        try:
            tail.file.pwrite(extent.offset, b"".join(extent.parts))
        except OSError as error:
            self._mark_broken(f"sealing the journal at {tail.name}: {error}. Next: look at the disk, then start again")
            raise JournalBroken(self._broken) from error
        self._sealed = self._synced
        return True

    def begin_preallocation(self) -> SparePreallocation | None:
        """A spare to create ahead, if one is missing and there is room. One at a time; may run beside a sync."""
        if self._preallocation is not None or self._broken:
            return None
        if not self._space.needs_spare_segment(self._buffer.is_half_full):
            return None
        self._preallocation = SparePreallocation(
            self._files, self._space.next_name(), self._space.segment_bytes, self._mark_broken
        )
        return self._preallocation

    def end_preallocation(self, prepare: SparePreallocation) -> None:
        """On the owner's thread, after ``run``."""
        assert prepare is self._preallocation
        self._preallocation = None
        if prepare.spare is not None:
            self._space.spares.append(prepare.spare)
        self._space.refresh()

    # -- trim

    def segments_freed_by(self, log_start_index: int, seqs: dict[Origin, int], key_bytes: int = 0) -> int:
        """The number of segments that a log start there would free; 0 where that is less than twice what the trim
        writes: a table of keys of ``key_bytes``, twice."""
        freed = self._segments.count_below(self._segments.first_retained_segment(log_start_index, seqs))
        return freed if freed * self._space.segment_bytes >= 4 * key_bytes else 0

    def begin_removal(self) -> SegmentRemoval | None:
        """The segments that a durable trim no longer needs. One at a time; may run beside a sync."""
        if self._removal is not None or self._broken:
            return None
        gone = self._segments.pop_removable(self._synced)
        if not gone:
            return None
        self._reader.close_below(gone.stop)
        self._removal = SegmentRemoval(self._files, gone, self._mark_broken)
        return self._removal

    def end_removal(self, removal: SegmentRemoval) -> None:
        """On the owner's thread, after ``run``."""
        assert removal is self._removal
        self._removal = None
        self._space.refresh()

    # -- the indexes of sealed segments

    def begin_scrub(self) -> ScrubTask | None:
        """A sealed segment to read again: first those without an index, then each one that this start has not read.
        One at a time; may run beside a sync. It returns the same task again until that is done."""
        return None if self._broken else self._scrubber.begin()

    def end_scrub(self, task: ScrubTask) -> None:
        """On the owner's thread, after ``run``."""
        self._scrubber.end(task)

    # -- repair

    def repair(
        self, damage: Damage, runs: Sequence[TransactionRun], contents: Sequence[bytes], added: LogAppended | None
    ) -> None:
        """Repair one of :attr:`damage` with what other masters sent, with the content hashes of each run. The content
        is checked and appended; it is repaired once the next sync is durable. Raises :class:`JournalDamaged` when
        something does not fit or is still missing; nothing is appended then.

        If something sent has a stamp that nothing proves, the view is stopped for good, first of all. The sender may
        have the transaction with a later view's stamp. With that stamp this master must neither order nor post it in
        its own view.

        After it has repaired everything, a master reopens its journal and so reads the repaired records.
        """
        self._repair.apply(damage, runs, contents, added)

    def provable_prefix(self, run: TransactionRun) -> int:
        """How many of the first of these transactions may replace damaged ones. A transaction in the log must have the
        stamp and the content that its chain hash covers. For a journal that is damaged."""
        return self._repair.provable_prefix(run)

    def _index_repaired(self, run: TransactionRun, hashes: bytes) -> None:
        held = self._index.get_or_create(run.origin)
        body = record_bodies.encode_held(held.encoded_origin, run, hashes, fmt.FLAG_REPAIR)
        segment, offset = self._buffer.append(body, work=True)
        held.replace_damaged(run.first_seq, segment.number, offset)
        self._recent.put(held.slot, self._buffer.number - 1, run, len(body.tail))

    # -- broken

    def _mark_broken(self, text: str) -> None:
        self._broken = text

    def _check_broken(self) -> None:
        if self._broken:
            raise JournalBroken(self._broken)
