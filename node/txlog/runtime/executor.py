"""Event → core → journal → release: the one place that guarantees *durable, then sent*.

Each effect of the core waits here until every record issued with it or before it is durable (rules 8, 15, 33). The
simulator drives this very code; it knows no clock, no network and no thread. One fsync is in flight at a time, and
events that arrive meanwhile go into the next one (group commit).
"""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple, Protocol

import msgspec

from txlog.model.entry import RunItem, Span, TransactionRun
from txlog.model.errors import PeerFault, Refused
from txlog.model.hashes import content_hash
from txlog.model.ids import Origin, Txid
from txlog.model.records import KeyTableWritten, LogAppended, Record, TransactionsPersisted
from txlog.model.synchronous_entry import idempotency_key_of
from txlog.protocol.core import Core
from txlog.protocol.events import (
    NO_EFFECTS,
    NOT_TRUNCATED,
    ClockReading,
    DurabilityMarks,
    Effects,
    JournalRead,
    OutgoingMessage,
    ProtocolSettings,
    Submission,
    SubmissionAccepted,
)
from txlog.protocol.log.log_start import KEY_PART_BYTES, PlannedLogStart, key_table_bytes
from txlog.protocol.log.log_state import LogState
from txlog.protocol.log.log_trim import RetentionPosition, TrimDecision
from txlog.protocol.replication.submission import key_taken
from txlog.wire import messages as wire
from txlog.wire.messages import (
    AcceptView,
    Notice,
    Post,
    Relay,
)

ITEM_OVERHEAD_BYTES: Final = 64
"""An upper bound of what a transaction takes in a record in addition to its payload and key."""
RECEIVED_GROWTH_MAX: Final = 3
"""An upper bound of the growth: a message's transactions take less than this many times its bytes in a record, however
small they are."""
LARGE_SYNC_BYTES: Final = 1 << 20
"""A sync that writes this much counts as large: it takes milliseconds on any disk."""
STAMP_READ_BYTES: Final = 4 << 20
"""Payload bytes read at once where only the stamps are needed."""


class SyncTask(Protocol):
    """One group commit, to be run on any thread."""

    def run(self) -> None:
        """Write and fsync; on any thread. Raises ``JournalBroken``: the process must end (rule 29)."""


class JournalPort(Protocol):
    """The part of :class:`txlog.journal.Journal` that the executor uses."""

    @property
    def dirty(self) -> bool: ...
    def has_room_for(self, length: int) -> bool: ...
    def append(self, record: Record) -> None: ...
    def begin_sync(self) -> SyncTask | None: ...
    def end_sync(self, sync: SyncTask) -> None: ...
    def read(self, node: str, birth: int, first_seq: int, count_max: int, bytes_max: int) -> TransactionRun: ...
    def segments_freed_by(self, log_start_index: int, seqs: dict[Origin, int], key_bytes: int = 0) -> int: ...


class PayloadTransferPort(Protocol):
    """The part of :class:`txlog.runtime.payload_transfer.PayloadTransfer` that the executor uses."""

    def substitute(self, peer: str, runs: list[TransactionRun]) -> tuple[list[TransactionRun], int]: ...
    def restore(self, peer: str, runs: list[TransactionRun]) -> tuple[list[TransactionRun], dict[Txid, bytes], int]: ...


class Released(NamedTuple):
    """What may leave the process now. ``added``: records by which the log grew, for callers that wait for positions."""

    messages: list[tuple[str, bytes]]
    marks: DurabilityMarks | None
    added: list[LogAppended]


class TrimInProgress(NamedTuple):
    """A trim whose table of keys is being written, and what :meth:`Core.decide_trim` was asked for it."""

    planned: PlannedLogStart
    places: list[RetentionPosition]
    keep_from: int


class Executor:
    """One master without its event loop. No two threads may call it at once."""

    def __init__(self, core: Core, journal: JournalPort, payload_transfer: PayloadTransferPort | None = None) -> None:
        self.core = core
        self.journal = journal
        self.notices: list[tuple[str, Notice]] = []
        self.truncated_to = NOT_TRUNCATED
        """The least index to which the log was truncated since the caller last reset this. What the caller knows of
        the log above it is invalid from this moment, not only once the truncation is durable."""
        self._waiting: list[Effects] = []
        self._syncing: list[Effects] = []
        self._ready: list[Effects] = []
        self._sync: SyncTask | None = None
        self.payload_transfer = payload_transfer
        """Replicates payloads before their posts; without it no post names one."""
        self.large_sync = False
        """Whether the latest sync has at least :data:`LARGE_SYNC_BYTES` to write."""
        self._unsynced_bytes = 0
        self._unwritten_bytes = 0
        self._trim: TrimInProgress | None = None
        self.key_part_bytes = KEY_PART_BYTES
        """Bytes of the table of keys that one turn writes."""
        self._last_push: tuple[tuple[int, int], int, int, str] | None = None
        self._last_push_runs: list[TransactionRun] = []
        """The runs read for a post of this release: every peer is usually sent the same."""
        self._collect_effects()

    # In

    def submit(self, batch: list[Submission], now: ClockReading) -> list[SubmissionAccepted | Refused]:
        """Submit transactions from clients; see :meth:`Core.submit`. They are durable when the marks show it, after
        the next :meth:`poll`. All that arrive before that call become one record."""
        size = sum(len(one.payload) + len(one.key) + ITEM_OVERHEAD_BYTES for one in batch)
        self._unwritten_bytes += size
        self._unsynced_bytes += size
        answers = self.core.submit(batch, now, self.journal.has_room_for(self._unwritten_bytes))
        for at, answer in enumerate(answers):
            if isinstance(answer, SubmissionAccepted) and answer.is_repeat and self._has_other_body(batch[at], answer):
                one = batch[at]
                answers[at] = key_taken(idempotency_key_of(one.kind, one.key) or one.key, answer.txid)
        return answers

    def _has_other_body(self, one: Submission, answer: SubmissionAccepted) -> bool:
        """Whether the transaction that is answered for a repeated key has another body. The core compares as much of
        the content hash as the table of keys has; the journal has the transaction itself, unless it is trimmed."""
        log, txid = self.core.log_state, answer.txid
        if log is None or not log.log_index.index_of(txid.origin, txid.seq):
            return False
        held = self.journal.read(*txid.origin, txid.seq, 1, 1).items
        return any(content_hash(first.kind, first.key, first.payload) != one.content for first in held)

    def receive(self, peer: str, data: bytes, now: ClockReading) -> None:
        """Process one message from a peer. Raises :class:`PeerFault` when it is refused."""
        message = wire.decode(peer, data)
        match message:
            case Post():  # most are
                self._unsynced_bytes += len(data)
                if message.named:
                    self._receive_with_references(peer, message, len(data), now)
                else:
                    room = self.journal.has_room_for(self._unwritten_bytes + RECEIVED_GROWTH_MAX * len(data))
                    self.core.receive(peer, message, now, room)
            case Notice():
                self.notices.append((peer, message))
            case _:
                self._unsynced_bytes += len(data)
                room = self.journal.has_room_for(self._unwritten_bytes + RECEIVED_GROWTH_MAX * len(data))
                self.core.receive(peer, message, now, room)
        self._collect_effects()

    def _receive_with_references(self, peer: str, message: Post, length: int, now: ClockReading) -> None:
        """Process a post whose payloads, or some of them, arrived before it."""
        if self.payload_transfer is None:
            raise PeerFault(peer, "Malformed", "it names payloads, and none can have come ahead here")
        runs, contents, size = self.payload_transfer.restore(peer, message.runs)
        self._unsynced_bytes += size
        room = self.journal.has_room_for(self._unwritten_bytes + RECEIVED_GROWTH_MAX * length + size)
        self.core.receive(peer, msgspec.structs.replace(message, runs=runs, named=0), now, room, contents)

    def poll(self, now: ClockReading, decisions_awaited: bool = True) -> int:
        """Advance the core's time. Returns the ``mono`` millisecond at which to poll again. ``decisions_awaited``: a
        request waits for the place of a decision in the log."""
        self.core.view_manager.decisions.are_awaited = decisions_awaited
        wake = self.core.poll(now)
        self._collect_effects()
        if self._trim is None:
            return wake
        return min(wake, now.mono + 1) if self._continue_trim() else wake

    def leave(self, now: ClockReading, timeout_ms: int) -> None:
        """See :meth:`Core.leave`. The process may end once ``core.is_leave_done`` is true and nothing waits for a
        sync."""
        self.core.leave(now, timeout_ms)
        self._collect_effects()

    def prove_down(self, node: str, birth: int, start: int) -> None:
        """See :meth:`Core.report_down`."""
        self.core.report_down(node, birth, start)
        self._collect_effects()

    def adopt(self, settings: ProtocolSettings) -> None:
        """See :meth:`Core.apply_settings`."""
        self.core.apply_settings(settings)
        self._collect_effects()

    def bootstrap(self, members: list[str], forget: bool = False) -> None:
        """See :meth:`Core.order_bootstrap`."""
        self.core.order_bootstrap(members, forget)
        self._collect_effects()

    def force_view(self, without: list[str]) -> None:
        """See :meth:`Core.force_view`."""
        self.core.force_view(without)
        self._collect_effects()

    def give_up_votes(self, nodes: list[str]) -> None:
        """See :meth:`Core.give_up_votes`."""
        self.core.give_up_votes(nodes)
        self._collect_effects()

    def backup_done(self, index: int, value: bytes, epoch: int = -1) -> None:
        """See :meth:`Core.on_backup_verified`."""
        self.core.on_backup_verified(index, value, epoch)
        self._collect_effects()

    def trim(self, places: list[RetentionPosition], keep_from: int) -> TrimDecision:
        """Trim the log as far as :meth:`Core.decide_trim` allows, if that frees a whole segment of the journal and more
        than the trim writes. The table of idempotency keys is written first, a part at each :meth:`poll`, so that no
        turn is long. The segments are removed when the caller removes them."""
        verdict = self.core.decide_trim(places, keep_from)
        log = self.core.log_state
        if self._trim is not None:
            self._trim = self._trim._replace(places=places, keep_from=keep_from)
            return verdict
        if log is None or verdict.trim_to <= verdict.start:
            return verdict
        if self._is_worth_trimming(log, verdict.trim_to):
            stamp = self.stamp_at(log, verdict.trim_to)
            planned = PlannedLogStart(log, verdict.trim_to, stamp, verdict.served_from)
            self._trim = TrimInProgress(planned, places, keep_from)
            self._continue_trim()
        return verdict

    def _is_worth_trimming(self, log: LogState, index: int) -> bool:
        seqs = {Origin(node, birth): seq for node, birth, seq in log.log_index.seqs_at(index)}
        key_bytes = key_table_bytes(log)
        if not self.journal.segments_freed_by(index, seqs, key_bytes) or self._is_still_needed(seqs):
            return False
        return self.journal.has_room_for(2 * key_bytes)

    def _continue_trim(self) -> bool:
        """Write the next part of the table, or, after the last one, trim, unless a view has changed or the caller has
        said meanwhile that more of the log is needed. False when nothing is left to do."""
        trim = self._trim
        if trim is None:
            return False
        planned = trim.planned
        if not planned.table.is_complete:
            part = planned.table.next_part(self.key_part_bytes)
            self.journal.append(KeyTableWritten(planned.parts, part))
            planned.parts += 1
            if not planned.table.is_complete:
                return True
        log = self.core.log_state
        allowed = self.core.decide_trim(trim.places, trim.keep_from)
        seqs = {Origin(node, birth): seq for node, birth, seq in planned.log.log_index.seqs_at(planned.index)}
        if self._is_still_needed(seqs):
            return True
        self._trim = None
        if log is planned.log and allowed.start < planned.index <= allowed.trim_to:
            self.core.trim(planned.log_start(keeps_branches=allowed.keeps_branches))
            self._collect_effects()
        return False

    def _is_still_needed(self, seqs: dict[Origin, int]) -> bool:
        """Whether an effect that waits for the disk will be built from entries that the trim removes. It is soon
        released."""
        own = self.core.log_state.own.origin if self.core.log_state is not None else None
        for effects in (*self._ready, *self._syncing, *self._waiting):
            for send in effects.sends:
                if isinstance(send.message, AcceptView) and send.message.spans:
                    return True
                if send.own_range is not None and own is not None and send.own_range[0] <= seqs.get(own, 0):
                    return True
        return False

    def stamp_at(self, agreement: LogState, index: int) -> int:
        """The stamp of an entry that this master's log still contains."""
        if index == agreement.log_index.start:
            return agreement.log_index.log_start.stamp
        one = agreement.log_index.spans(index - 1, index)[0]
        return self.journal.read(one.node, one.birth, one.first_seq, 1, 1).items[0].stamp

    @property
    def needs_sync(self) -> bool:
        """Whether what no sync has taken yet must not wait for the next write: a message waits for it, it is a part of
        a trim, or synchronous transactions, whose clients may have their answer already, are not in use."""
        log = self.core.log_state
        if log is None or log.synchronous.is_unused or self._trim is not None:
            return True
        return any(effects.sends for effects in self._waiting)

    @property
    def idle(self) -> bool:
        """Whether nothing waits for the disk."""
        return self._sync is None and not self.journal.dirty and not self._ready

    def is_durable(self, txid: Txid) -> bool:
        """Whether a transaction that the core has persisted is durable: no record that waits for the disk holds it."""
        undrained = self.core.outbox.records
        return not any(
            isinstance(record, TransactionsPersisted)
            and record.run.origin == txid.origin
            and record.run.first_seq <= txid.seq <= record.run.last_seq
            for records in (undrained, *[effects.records for effects in (*self._syncing, *self._waiting)])
            for record in records
        )

    def _collect_effects(self) -> None:
        self._unwritten_bytes = 0
        effects = self.core.drain()
        if effects is NO_EFFECTS:
            return
        if effects.truncated_to != NOT_TRUNCATED:
            self._clamp_pending_marks(effects.truncated_to)
        for read in effects.reads:
            self._defer_until_durable(self._read_reply(read))
        for record in effects.records:
            self.journal.append(record)
        self._defer_until_durable(effects)

    def _clamp_pending_marks(self, cut: int) -> None:
        """Marks that wait for the disk describe the log as it was before the truncation."""
        self.truncated_to = min(self.truncated_to, cut)
        log = self.core.log_state
        assert log is not None, "a log was truncated"
        synced = log.log_index.seq_within(log.slots[log.own.origin], cut)

        def clamped(waiting: list[Effects]) -> list[Effects]:
            return [
                one._replace(
                    marks=one.marks._replace(
                        synced=min(one.marks.synced, synced),
                        log=min(one.marks.log, cut),
                        stable=min(one.marks.stable, cut),
                        quorum_index=min(one.marks.quorum_index, cut),
                    )
                )
                if one.marks is not None
                else one
                for one in waiting
            ]

        self._ready, self._syncing, self._waiting = map(clamped, (self._ready, self._syncing, self._waiting))

    def _read_reply(self, read: JournalRead) -> Effects:
        reply = msgspec.structs.replace(read.reply, runs=self._read_runs(read.spans))
        return Effects([], [OutgoingMessage(one.peer, reply, None, one.target) for one in read.sends])

    def _defer_until_durable(self, effects: Effects) -> None:
        if self.journal.dirty:
            self._waiting.append(effects)
        elif self._sync is not None:
            self._syncing.append(effects)
        else:
            self._ready.append(effects)

    # Durable

    def begin_sync(self) -> SyncTask | None:
        """The next group commit, if one is due and none is under way. Run it, then call :meth:`end_sync`."""
        if self._sync is not None or not self.journal.dirty:
            return None
        self._sync = self.journal.begin_sync()
        self.large_sync, self._unsynced_bytes = self._unsynced_bytes >= LARGE_SYNC_BYTES, 0
        self._syncing, self._waiting = self._waiting, []
        return self._sync

    def end_sync(self) -> None:
        """The sync has run: effects that waited for it may leave."""
        assert self._sync is not None
        self.journal.end_sync(self._sync)
        self._sync = None
        self._ready += self._syncing
        self._syncing = []

    # Out

    def release(self) -> Released:
        """Everything that may leave now, in the order in which the core issued it."""
        ready, self._ready = self._ready, []
        messages: list[tuple[str, bytes]] = []
        marks: DurabilityMarks | None = None
        added: list[LogAppended] = []
        for effects in ready:
            for send in effects.sends:
                messages.append((send.peer, self._encode(send)))
            if effects.marks is not None:
                marks = effects.marks
            for record in effects.records:
                if isinstance(record, LogAppended):
                    added.append(record)
        self._last_push, self._last_push_runs = None, []
        return Released(messages, marks, added)

    def _encode(self, send: OutgoingMessage) -> bytes:
        message = send.message
        if send.own_range is not None and isinstance(message, Post):
            pushed = (send.own_range, message.epoch, message.ballot, message.coordinator)
            if pushed != self._last_push:  # a view may have given the same transactions other stamps
                self._last_push, self._last_push_runs = pushed, self._read_own_runs(*send.own_range)
            runs, named = self._last_push_runs, 0
            if self.payload_transfer is not None and not send.target:
                runs, named = self.payload_transfer.substitute(send.peer, runs)
            message = msgspec.structs.replace(message, runs=runs, named=named)
        elif isinstance(message, AcceptView):
            message = msgspec.structs.replace(message, stamps=self._read_stamps(message.spans))
        if send.target:
            message = Relay(send.target, [self.core.settings.node], wire.encode(message))
        return wire.encode(message)

    def _read_stamps(self, spans: list[Span]) -> bytes:
        stamps = array("Q")
        for span in spans:
            done = 0
            while done < span.count:
                run = self.journal.read(
                    span.node, span.birth, span.first_seq + done, span.count - done, STAMP_READ_BYTES
                )
                stamps.extend([item.stamp for item in run.items])
                done += len(run.items)
        return stamps.tobytes()

    def _read_own_runs(self, first_seq: int, last_seq: int) -> list[TransactionRun]:
        own = self.core.log_state
        assert own is not None
        return self._read_runs([Span(own.own.origin.node, own.own.origin.birth, first_seq, last_seq - first_seq + 1)])

    def _read_runs(self, spans: list[Span]) -> list[TransactionRun]:
        """The transactions of these spans, as many as one frame may carry, at least one."""
        runs: list[TransactionRun] = []
        room, left = self.core.settings.frame_bytes_max, self.core.settings.frame_items_max
        for span in spans:
            items: list[RunItem] = []
            count = min(span.count, left)
            while len(items) < count and room > 0:
                first_seq = span.first_seq + len(items)
                run = self.journal.read(span.node, span.birth, first_seq, count - len(items), room)
                items += run.items
                room -= sum(len(item.payload) for item in run.items)
            if not items:
                break
            runs.append(TransactionRun(span.node, span.birth, span.first_seq, items))
            left -= len(items)
        return runs
