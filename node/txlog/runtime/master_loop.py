"""The asyncio side of a master: it owns the executor, its timer and the sync thread.

Handlers submit work and await an answer; the order inside is fixed (one *turn*)::

    sockets once more → gathered writes → poll → sync (inline while it is short, else on its thread)
    → release: messages, marks → waiters

A sync that nothing waits for is put off: its records share the next one. Writes that arrive during a sync wait for its
end, since they could not become durable before the next one anyway. The writes of clients become one run, one record,
one message. Messages of peers go to the core at once, and one answer covers them all. Nothing here awaits between
reading the core's state and changing it. Any error of the core, the journal or an assertion ends the process, by name.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Final

from txlog.model.durability import Durability
from txlog.model.errors import PeerFault, Refused, Unavailable
from txlog.model.hashes import HASH_BYTES
from txlog.model.ids import Txid
from txlog.model.synchronous_entry import KIND_SYNCHRONOUS_UPDATE, SYNCHRONOUS_KINDS
from txlog.protocol.events import ClockReading, ProtocolSettings, Submission, SubmissionAccepted
from txlog.protocol.log.log_trim import RetentionPosition, TrimDecision
from txlog.runtime.departures import DepartureHistory
from txlog.runtime.durability_tracker import DurabilityTracker
from txlog.runtime.executor import Executor
from txlog.runtime.interactive_load import InteractiveLoad
from txlog.runtime.journal_maintenance import JournalMaintenance
from txlog.runtime.master_listener import MasterListener
from txlog.runtime.master_status import MasterStatus
from txlog.runtime.sync_thread import SyncRunner, SyncThread
from txlog.runtime.watermark import Waiter

NEVER_MS: Final = 1 << 60
INLINE_SYNC_S: Final = 0.002
"""Syncs that take less than this on average run on the loop's own thread: a handover costs more than it hides. On a
slower disk, and for large syncs, they run on the sync thread, so that the loop reads arriving messages meanwhile."""
EARLY_LOOK_WAITERS_MAX: Final = 8
"""With more waiters for single transactions, one look in each turn does: a look at every message costs too much."""
SYNC_DELAY_MS: Final = 5
"""How long records that neither a message nor a request waits for wait for the next sync: mostly the order of
transactions whose clients have their answer."""
SYNC_AVERAGE_WEIGHT: Final = 0.1
"""Weight of the newest sync in that average."""
SOCKET_POLLS_MAX: Final = 5
"""How often at most the sockets are read before a turn, so that a flood of messages cannot delay it."""


def system_now() -> ClockReading:
    """The clocks of this machine: wall in microseconds, monotonic in milliseconds."""
    return ClockReading(time.time_ns() // 1000, time.monotonic_ns() // 1_000_000)


def clock_with_offset(offset_ms: int) -> Callable[[], ClockReading]:
    """:func:`system_now` with a wall clock that is wrong by so many milliseconds (0: unchanged)."""
    if not offset_ms:
        return system_now

    def wrong() -> ClockReading:
        now = system_now()
        return ClockReading(now.wall + 1000 * offset_ms, now.mono)

    return wrong


class PendingWrite:
    """Transactions of one request in progress. ``waiter`` resolves to True when the last of them has reached the
    requested level, or all were refused. ``answers`` are in the batch's order and complete by then."""

    __slots__ = ("answers", "batch", "level", "waiter")

    def __init__(self, batch: list[Submission], level: Durability, waiter: Waiter) -> None:
        self.batch = batch
        self.level = level
        self.waiter = waiter
        self.answers: list[SubmissionAccepted | Refused] = []


class AwaitedWrite(PendingWrite):
    """``reached`` resolves like the waiter; False after a time-out."""

    __slots__ = ("reached",)

    def __init__(self, batch: list[Submission], level: Durability, reached: asyncio.Future[bool]) -> None:
        super().__init__(batch, level, reached)
        self.reached = reached


class LoopCounters:
    """Counters of the loop for the metrics. Plain numbers, so that counting costs nothing."""

    def __init__(self) -> None:
        self.turns = 0
        self.syncs = 0
        self.sync_seconds = 0.0
        self.transactions = 0
        self.refused: dict[str, int] = {}
        self.peer_faults: dict[tuple[str, str], int] = {}
        self.received_messages = 0
        self.received_bytes = 0


class MasterLoop:
    """``send(peer, message)`` must not block. ``durability`` has the watermarks, which each turn moves. ``status``
    reads the core and the journal. ``run_syncs(loop, done, timer)`` makes what runs long syncs; ``timer`` (seconds)
    measures syncs. The simulator replaces both, and the event loop."""

    def __init__(
        self,
        executor: Executor,
        *,
        send: Callable[[str, bytes], None],
        listener: MasterListener,
        now: Callable[[], ClockReading] = system_now,
        company: InteractiveLoad | None = None,
        batch_transactions: int = 10_000,
        requests_in_flight: int = 4096,
        run_syncs: Callable[..., SyncRunner] = SyncThread,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.executor = executor
        self.status = MasterStatus(executor)
        self.durability = DurabilityTracker(executor, self.status, listener)
        self._asyncio_loop = asyncio.get_running_loop()
        self.counts = LoopCounters()
        self.end_reason: BaseException | None = None
        self.in_flight = 0
        self.departures = DepartureHistory(self.status)
        self._now = now
        self._interactive_load = company or InteractiveLoad()
        self._send = send
        self._listener = listener
        self._batch_max = batch_transactions
        self._in_flight_max = requests_in_flight
        self._writes: list[PendingWrite] = []
        self._timer_s = timer
        self._sync_thread = run_syncs(self._asyncio_loop, self._sync_done, timer)
        self._is_syncing = False
        self._average_sync_s = 0.0
        self._is_scheduled = False
        self._arrived_during_sync = False
        self._socket_polls = 0
        self._arrivals_seen = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = NEVER_MS
        self._wake_ms = NEVER_MS
        self.sync_by_ms = NEVER_MS
        """When records that nothing waits for become durable at the latest, in ``mono`` milliseconds."""
        self._durable_waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._maintenance = JournalMaintenance(executor.journal, lambda: self._is_syncing, self._schedule, self.end)
        self._schedule()

    # In: clients

    def write(self, batch: list[Submission], level: Durability) -> AwaitedWrite:
        """Submit transactions. ``level`` above ``synced`` means synced here; continue with
        :meth:`DurabilityTracker.wait_index`.

        Raises :class:`Unavailable` when too many requests wait already. ``answers`` contains what the core refuses.
        """
        write = AwaitedWrite(batch, level, self._asyncio_loop.create_future())
        self.enqueue(write)
        return write

    def enqueue(self, write: PendingWrite) -> None:
        """The same for a request with its own waiter. The waiter resolves only after this call has returned, unless
        this master is ending."""
        if self.in_flight >= self._in_flight_max:
            self._count_refused("RequestsInFlight")
            raise Unavailable("QueueFull", f"{self.in_flight} write requests wait already; come back with fewer")
        if self.end_reason is not None or self.durability.is_aborted:
            write.answers = [Unavailable("Closing", "this master is ending; ask another one")] * len(write.batch)
            write.waiter.set_result(True)
            return
        self._writes.append(write)
        if not self._is_scheduled:
            self._schedule()

    def _count_refused(self, reason: str, count: int = 1) -> None:
        self.counts.refused[reason] = self.counts.refused.get(reason, 0) + count

    # In: peers

    def receive(self, peer: str, data: bytes) -> None:
        """Process one message from an authenticated peer. Raises :class:`PeerFault` when it is refused, and counts
        it."""
        if self.end_reason is not None:
            return
        counts = self.counts
        counts.received_messages += 1
        counts.received_bytes += len(data)
        try:
            self.executor.receive(peer, data, self._now())
            self.durability.detect_view_change()
            if self.durability.count_txid_waiters() <= EARLY_LOOK_WAITERS_MAX:
                self.durability.notify_waiters(only_quorum=True)  # their clients go on while the turn does its work
        except PeerFault as fault:
            self.count_fault(peer, fault.reason)
            raise
        except Exception as wrong:  # noqa: BLE001 - Fatal, an assertion, the disk: all end the process by name
            self.end(wrong)
            return
        self.departures.record()
        if self.executor.notices:
            notices, self.executor.notices = self.executor.notices, []
            for sender, notice in notices:
                try:
                    self._listener.on_notice(sender, notice.topic, notice.body)
                except PeerFault as fault:
                    self.count_fault(peer, fault.reason)
                    raise
        self._schedule()

    def prove_down(self, node: str, birth: int, start: int) -> None:
        """See :meth:`Core.report_down`; its :class:`Conflict` is the caller's answer."""
        self.executor.prove_down(node, birth, start)
        self.departures.record()
        self._schedule()

    def adopt(self, settings: ProtocolSettings) -> None:
        """See :meth:`Core.apply_settings`."""
        self.executor.adopt(settings)
        self._schedule()

    def bootstrap(self, members: list[str], forget: bool = False) -> None:
        """See :meth:`Core.order_bootstrap`; its :class:`Conflict` is the caller's answer. It takes effect after
        :meth:`wait_durable`."""
        self.executor.bootstrap(members, forget)
        self._schedule()

    def force_view(self, without: list[str]) -> None:
        """See :meth:`Core.force_view`; its :class:`Conflict` is the caller's answer. It takes effect after
        :meth:`wait_durable`."""
        self.executor.force_view(without)
        self.departures.record()
        self._schedule()

    def give_up_votes(self, nodes: list[str]) -> None:
        """See :meth:`Core.give_up_votes`; its :class:`Conflict` is the caller's answer."""
        self.executor.give_up_votes(nodes)
        self._schedule()

    async def wait_durable(self) -> None:
        """Wait until every earlier record is on the disk. Raises :class:`Unavailable` when this master ends before;
        then the record may be there or not."""
        if self.end_reason is not None:
            raise Unavailable("Closing", "this master is ending; ask another one, or this one when it is back")
        dirty = self.executor.journal.dirty
        if dirty or self._is_syncing:  # a sync under way takes nothing that came behind it
            future: asyncio.Future[None] = self._asyncio_loop.create_future()
            self._durable_waiters.append((self.counts.syncs + dirty + self._is_syncing, future))
            self._schedule()
            await future

    def _notify_durable(self, syncs: int, error: Unavailable | None = None) -> None:
        waiting, self._durable_waiters = self._durable_waiters, []
        for due, future in waiting:
            if due > syncs:
                self._durable_waiters.append((due, future))
            elif not future.done():
                future.set_exception(error) if error is not None else future.set_result(None)

    def backup_done(self, index: int, value: bytes, epoch: int) -> None:
        """See :meth:`Core.on_backup_verified`; its :class:`OffTheLog` is the caller's answer."""
        self.executor.backup_done(index, value, epoch)
        self._schedule()

    def trim(self, places: list[RetentionPosition], keep_from: int) -> TrimDecision:
        """See :meth:`Executor.trim`; the segments are removed after the next sync."""
        verdict = self.executor.trim(places, keep_from)
        self._schedule()
        return verdict

    def count_fault(self, peer: str, reason: str) -> None:
        """Count one refused message of a peer, by reason."""
        key = (peer, reason)
        self.counts.peer_faults[key] = self.counts.peer_faults.get(key, 0) + 1

    # The turn

    def _schedule(self) -> None:
        if self._is_syncing:
            self._arrived_during_sync = True
        elif not self._is_scheduled:
            self._is_scheduled = True
            self._socket_polls, self._arrivals_seen = 0, len(self._writes) + self.counts.received_messages
            self._asyncio_loop.call_soon(self._poll_sockets)

    def _poll_sockets(self) -> None:
        """Read the sockets once more before the turn, and again while that brings something. Messages that arrive
        while the first one is processed then share the turn, its sync and its posts. This never waits."""
        came = len(self._writes) + self.counts.received_messages
        self._socket_polls += 1
        more = came != self._arrivals_seen and self._socket_polls < SOCKET_POLLS_MAX
        self._arrivals_seen = came
        self._asyncio_loop.call_soon(self._poll_sockets if more else self._run_turn)

    def _run_turn(self) -> None:
        self._is_scheduled = False
        if self.end_reason is not None:
            return
        try:
            self._step()
        except Exception as wrong:  # noqa: BLE001 - as in receive
            self.end(wrong)

    def _step(self) -> None:
        self.counts.turns += 1
        executor, now = self.executor, self._now()
        if self._writes and not self._is_syncing:
            self._submit_writes(now)
        wake_ms = executor.poll(now, self.durability.awaits_decision)
        self.durability.detect_view_change()
        self.durability.notify_waiters(only_quorum=True)  # what a quorum holds needs nothing of a sync
        sync = executor.begin_sync() if self._is_sync_due(now.mono) else None
        if sync is not None:
            if self._average_sync_s < INLINE_SYNC_S and not executor.large_sync:
                began = self._timer_s()
                sync.run()
                self._after_sync(self._timer_s() - began)
            else:
                self._is_syncing = True
                self._arrived_during_sync = bool(self._writes)
                self._sync_thread.run(sync)
        self._release()
        self._set_timer(now.mono, min(wake_ms, self.sync_by_ms))

    def _is_sync_due(self, mono_ms: int) -> bool:
        """Whether what is recorded must become durable now: a message or a request waits for it, or it has waited for
        :data:`SYNC_DELAY_MS`. Else it shares the sync of the next write."""
        if not self.executor.journal.dirty:
            self.sync_by_ms = NEVER_MS
            return False
        if self.executor.needs_sync or self._durable_waiters or self.durability.awaits_sync:
            self.sync_by_ms = NEVER_MS
            return True
        self.sync_by_ms = min(self.sync_by_ms, mono_ms + SYNC_DELAY_MS)
        if mono_ms < self.sync_by_ms:
            return False
        self.sync_by_ms = NEVER_MS
        return True

    def _submit_writes(self, now: ClockReading) -> None:
        taken: list[PendingWrite] = []
        batch: list[Submission] = []
        for write in self._writes:
            if taken and len(batch) + len(write.batch) > self._batch_max:
                break
            taken.append(write)
            batch += write.batch
        del self._writes[: len(taken)]
        answers = self.executor.submit(batch, now)
        at = 0
        for write in taken:
            write.answers = answers[at : at + len(write.batch)]
            at += len(write.batch)
            self._await_level(write)
        if self._writes:
            self._schedule()

    def _await_level(self, write: PendingWrite) -> None:
        """Wait for the watermark of the last new seq. A repeated key names an earlier transaction, of any master, which
        the caller awaits separately."""
        target, synchronous = 0, self._last_synchronous(write)
        for answer in reversed(write.answers):
            if isinstance(answer, Refused):
                self._count_refused(answer.reason if isinstance(answer, Unavailable) else answer.name)
            elif not answer.is_repeat:
                target = answer.txid.seq
                break
        self.counts.transactions += len(write.answers)
        if write.waiter.done():
            return
        if synchronous is not None and write.level is not Durability.ACCEPTED:
            self.durability.add_txid_waiter(synchronous, write.level, write.waiter)
        elif target:
            self.durability.add_waiter(write.level, target, write.waiter)
        else:
            write.waiter.set_result(True)

    @staticmethod
    def _last_synchronous(write: PendingWrite) -> Txid | None:
        """The last new synchronous transaction of a write, whose decision is waited for. This runs for each write,
        compiled: the usual kinds are passed over first."""
        last: Txid | None = None
        for at, one in enumerate(write.batch):
            if one.kind < KIND_SYNCHRONOUS_UPDATE or one.kind not in SYNCHRONOUS_KINDS:
                continue
            answer = write.answers[at]
            if isinstance(answer, SubmissionAccepted) and not answer.is_repeat and (last is None or answer.txid > last):
                last = answer.txid
        return last

    def _sync_done(self, error: BaseException | None) -> None:
        if self.end_reason is not None:
            return
        if error is not None:
            self.end(error)
            return
        self._is_syncing = False
        try:
            self._after_sync(self._sync_thread.last_sync_s)
            self._release()
        except Exception as wrong:  # noqa: BLE001 - as in receive
            self.end(wrong)
            return
        if self._arrived_during_sync or self.executor.journal.dirty:
            self._schedule()

    def _after_sync(self, took_s: float) -> None:
        """Complete the sync under way: it has run."""
        if not self.executor.large_sync:
            self._average_sync_s += (took_s - self._average_sync_s) * SYNC_AVERAGE_WEIGHT
        self.counts.syncs += 1
        self.counts.sync_seconds += took_s
        self.executor.end_sync()
        if self._durable_waiters:
            self._notify_durable(self.counts.syncs)
        self._maintenance.after_sync()

    def _release(self) -> None:
        released = self.executor.release()
        for peer, data in released.messages:
            self._send(peer, data)
        if released.added:
            self._interactive_load.note_entries(sum([len(added.hashes) for added in released.added]) // HASH_BYTES)
        self.durability.apply_released(released.marks)

    def _set_timer(self, mono_ms: int, wake_ms: int) -> None:
        self._wake_ms = wake_ms
        if self._timer is not None:
            if wake_ms >= self._timer_ms:
                return  # it rings early and is then set again: cheaper than to set it in each turn
            self._timer.cancel()
            self._timer = None
        if wake_ms >= NEVER_MS:
            return
        self._timer_ms = wake_ms
        self._timer = self._asyncio_loop.call_later(max(0, wake_ms - mono_ms) / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        mono_ms = self._now().mono
        if mono_ms < self._wake_ms:
            self._set_timer(mono_ms, self._wake_ms)
        else:
            self._run_turn()

    # The end

    def end(self, error: BaseException) -> None:
        """End this process: nothing is released from now on."""
        if self.end_reason is None:
            self.end_reason = error
            self._maintenance.stop()
            self._notify_durable(NEVER_MS, Unavailable("Closing", f"this master is ending: {error}"))
            self._listener.on_ended(error)

    def leave(self, timeout_ms: int) -> None:
        """Accept no new transactions. Leave the view once the remaining members hold what was accepted here, at the
        latest after ``timeout_ms``. :attr:`has_left` reports the end."""
        if self.end_reason is not None:
            return
        try:
            self.executor.leave(self._now(), timeout_ms)
        except Exception as wrong:  # noqa: BLE001 - as in receive
            self.end(wrong)
            return
        self._schedule()

    @property
    def has_left(self) -> bool:
        """Whether nothing is left to send or write before the process ends. A master that never was in a view has none
        to leave."""
        if self.end_reason is not None:
            return True
        return self.status.has_left_view and not self._writes and self.executor.idle

    async def close(self, timeout_s: float = 2.0) -> None:
        """Stop for good. The last sync gets ``timeout_s`` to end."""
        if self.end_reason is None:
            self.end_reason = stopped = Unavailable("Closing", "this master has stopped")
            self._notify_durable(NEVER_MS, stopped)
        self._maintenance.stop()
        if self._timer is not None:
            self._timer.cancel()
        with contextlib.suppress(RuntimeError):
            await self._asyncio_loop.run_in_executor(None, self._sync_thread.close, timeout_s)
