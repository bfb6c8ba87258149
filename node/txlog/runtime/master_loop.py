"""The asyncio side of a master: it owns the executor, its timer and the sync thread.

Handlers put something in and await an answer; the order inside is fixed (one *turn*)::

    sockets once more → writes that gathered → poll → sync (here while it is short, else on its thread)
    → release: messages, marks → waiters

What comes while a sync is under way waits for its end, since it could not become durable before the next one anyway:
the writes of clients become one run, one record, one message; what peers say is in the core, and is answered at once
for all. Nothing here awaits between reading the core's state and changing it. What the core, the journal or an
assertion raises ends the process, by name.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from txlog.model.durability import Durability
from txlog.model.errors import PeerFault, Refused, Unavailable
from txlog.model.hashes import HASH_BYTES
from txlog.protocol.events import ClockReading, ProtocolSettings, Submission, SubmissionAccepted
from txlog.protocol.log.log_trimming import RetentionPosition, TrimDecision
from txlog.runtime.durability_tracker import DurabilityTracker, ViewTransition
from txlog.runtime.executor import Executor
from txlog.runtime.interactive_load import InteractiveLoad
from txlog.runtime.sync_thread import SyncThread
from txlog.runtime.watermark import Waiter

NEVER_MS: Final = 1 << 60
INLINE_SYNC_S: Final = 0.002
"""While syncs take less than this on average they run on the loop's own thread: handing one over and back costs more
than it hides. On a slower disk, and where there is much to write, they run on the sync thread, so that what comes
meanwhile is read."""
SYNC_AVERAGE_WEIGHT: Final = 0.1
"""Of the newest sync in that average."""
SOCKET_POLLS_MAX: Final = 5
"""So often at most are the sockets read before a turn, so that a flood of messages cannot put it off."""
IDLE_SEAL_S: Final = 1.0
"""After so long without a sync the journal may put down that everything in it is durable."""
SCRUB_START_DELAY_S: Final = 2.0
"""After a start, before old segments are read."""
SCRUB_AFTER_SEAL_S: Final = 0.1
"""So long after a segment was sealed it is read once more."""
SCRUB_NEW_INTERVAL_S: Final = 0.003
"""Between two pieces of it: some 30 MB/s, or 30,000 records, with a quarter of a core at most."""
SCRUB_OLD_INTERVAL_S: Final = 0.1
"""Between two pieces of an old segment: 1.3 MB/s, half a percent of a core."""


def system_now() -> ClockReading:
    """The clocks of this machine."""
    return ClockReading(time.time_ns() // 1000, time.monotonic_ns() // 1_000_000)


def clock_with_offset(offset_ms: int) -> Callable[[], ClockReading]:
    """:func:`system_now` with a wall clock that is wrong by so many milliseconds (0: as it is)."""
    if not offset_ms:
        return system_now

    def wrong() -> ClockReading:
        now = system_now()
        return ClockReading(now.wall + 1000 * offset_ms, now.mono)

    return wrong


class PendingWrite:
    """Transactions of one request on their way. ``waiter`` is told True when the last of them has reached the level
    asked, or all were refused. ``answers`` stand in the batch's order and are there when it is told."""

    __slots__ = ("answers", "batch", "level", "waiter")

    def __init__(self, batch: list[Submission], level: Durability, waiter: Waiter) -> None:
        self.batch = batch
        self.level = level
        self.waiter = waiter
        self.answers: list[SubmissionAccepted | Refused] = []


class AwaitedWrite(PendingWrite):
    """``reached`` gives what the waiter is told; False when the time was over before."""

    __slots__ = ("reached",)

    def __init__(self, batch: list[Submission], level: Durability, reached: asyncio.Future[bool]) -> None:
        super().__init__(batch, level, reached)
        self.reached = reached


class LoopCounters:
    """What the metrics show of the loop. Plain numbers, so that counting costs nothing."""

    def __init__(self) -> None:
        self.turns = 0
        self.syncs = 0
        self.sync_seconds = 0.0
        self.transactions = 0
        self.refused: dict[str, int] = {}
        self.peer_faults: dict[tuple[str, str], int] = {}
        self.received_messages = 0
        self.received_bytes = 0


class MasterLoop(DurabilityTracker):
    """``send(peer, message)`` must not block. ``ended(error)`` is called once when this process must end; nothing
    is sent or answered after it. ``on_notice(peer, topic, body)``: what other masters' shells tell."""

    def __init__(
        self,
        executor: Executor,
        *,
        send: Callable[[str, bytes], None],
        ended: Callable[[BaseException], None],
        noticed: Callable[[str, str, bytes], None] = lambda peer, topic, body: None,
        stable_moved: Callable[[], None] = lambda: None,
        log_cut: Callable[[], None] = lambda: None,
        view_changed: Callable[[ViewTransition], None] = lambda change: None,
        now: Callable[[], ClockReading] = system_now,
        company: InteractiveLoad | None = None,
        batch_transactions: int = 10_000,
        requests_in_flight: int = 4096,
    ) -> None:
        super().__init__(executor, stable_moved, log_cut, view_changed)
        self.counts = LoopCounters()
        self.end_reason: BaseException | None = None
        self.in_flight = 0
        self.departed: dict[str, str] = {}
        """Why a master left the view, as far as this process has heard: left, down or lost, by node id."""
        self._now = now
        self._interactive_load = company or InteractiveLoad()
        self._send = send
        self._on_ended = ended
        self.on_notice = noticed
        self._is_preparing = False
        self._batch_max = batch_transactions
        self._in_flight_max = requests_in_flight
        self._writes: list[PendingWrite] = []
        self._sync_thread = SyncThread(self._asyncio_loop, self._sync_done)
        self._is_syncing = False
        self._average_sync_s = 0.0
        self._is_scheduled = False
        self._arrived_during_sync = False
        self._socket_polls = 0
        self._arrivals_seen = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = NEVER_MS
        self._wake_ms = NEVER_MS
        self._seal_timer: asyncio.TimerHandle | None = None
        self._durable_waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._scrub_timer: asyncio.TimerHandle | None = None
        self._is_scrubbing = False
        self._schedule_scrub(SCRUB_START_DELAY_S)
        self._schedule()

    # In: clients

    def write(self, batch: list[Submission], level: Durability) -> AwaitedWrite:
        """Hand over transactions. ``level`` above ``synced`` means synced here; go on with :meth:`wait_index`.

        :class:`Unavailable` when too many requests wait already. What the core refuses stands in ``answers``."""
        write = AwaitedWrite(batch, level, self._asyncio_loop.create_future())
        self.enqueue(write)
        return write

    def enqueue(self, write: PendingWrite) -> None:
        """The same for a request that is told by its own waiter; never before this call has returned, unless this
        master is ending."""
        if self.in_flight >= self._in_flight_max:
            self._count_refused("RequestsInFlight")
            raise Unavailable("QueueFull", f"{self.in_flight} write requests wait already; come back with fewer")
        if self.end_reason is not None or self.is_aborted:
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
        """One message from an authenticated peer. :class:`PeerFault` when it is refused; counted here."""
        if self.end_reason is not None:
            return
        counts = self.counts
        counts.received_messages += 1
        counts.received_bytes += len(data)
        try:
            self.executor.receive(peer, data, self._now())
            self._detect_view_change()
        except PeerFault as fault:
            self.count_fault(peer, fault.reason)
            raise
        except Exception as wrong:  # noqa: BLE001 - Fatal, an assertion, the disk: all end the process by name
            self.end(wrong)
            return
        self._record_departures()
        if self.executor.notices:
            notices, self.executor.notices = self.executor.notices, []
            for sender, notice in notices:
                try:
                    self.on_notice(sender, notice.topic, notice.body)
                except PeerFault as fault:
                    self.count_fault(peer, fault.reason)
                    raise
        self._schedule()

    def _record_departures(self) -> None:
        """The core forgets why a master is out as soon as it is: the next view needs no reasons. People do."""
        views = self.core.views
        if views.departures or views.overrides:
            self.departed.update({node: one.why for node, one in views.departing.items()})

    def prove_down(self, node: str, birth: int, start: int) -> None:
        """See :meth:`Core.prove_down`; its :class:`Conflict` is the caller's answer."""
        self.executor.prove_down(node, birth, start)
        self._record_departures()
        self._schedule()

    def adopt(self, settings: ProtocolSettings) -> None:
        """See :meth:`Core.adopt`."""
        self.executor.adopt(settings)
        self._schedule()

    def bootstrap(self, members: list[str]) -> None:
        """See :meth:`Core.bootstrap`; its :class:`Conflict` is the caller's answer. Taken when it is
        :meth:`wait_durable`."""
        self.executor.bootstrap(members)
        self._schedule()

    def force_view(self, without: list[str]) -> None:
        """See :meth:`Core.force_view`; its :class:`Conflict` is the caller's answer. Taken when it is
        :meth:`wait_durable`."""
        self.executor.force_view(without)
        self._record_departures()
        self._schedule()

    async def wait_durable(self) -> None:
        """Until all that was said before is on the disk. :class:`Unavailable` when this master ends before: then it may
        be there or not."""
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
        """See :meth:`Core.backup_done`; its :class:`OffTheLog` is the caller's answer."""
        self.executor.backup_done(index, value, epoch)
        self._schedule()

    def trim(self, places: list[RetentionPosition], keep_from: int) -> TrimDecision:
        """See :meth:`Executor.trim`; the files go behind the next sync."""
        verdict = self.executor.trim(places, keep_from)
        self._schedule()
        return verdict

    def count_fault(self, peer: str, reason: str) -> None:
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
        """The sockets are read once more before the turn, and again while that brings something: what came while the
        first of it was looked at shares the turn, its sync and its posts. Nothing is waited for."""
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
        wake_ms = executor.poll(now)
        self._detect_view_change()
        sync = executor.begin_sync()
        if sync is not None:
            if self._average_sync_s < INLINE_SYNC_S and not executor.large_sync:
                began = time.perf_counter()
                sync.run()
                self._after_sync(time.perf_counter() - began)
            else:
                self._is_syncing = True
                self._arrived_during_sync = bool(self._writes)
                self._sync_thread.run(sync)
        self._release()
        self._set_timer(now.mono, wake_ms)

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
        """The watermark on the last own seq; a repeated key names another transaction and is waited for apart."""
        agreement = self.log_state
        target = 0
        for answer in reversed(write.answers):
            if isinstance(answer, Refused):
                self._count_refused(answer.reason if isinstance(answer, Unavailable) else answer.name)
            elif agreement is not None and answer.txid.origin == agreement.own.origin:
                target = answer.txid.seq
                break
        self.counts.transactions += len(write.answers)
        if write.waiter.done():
            return
        if target:
            self._watermarks[write.level].add_waiter(target, write.waiter)
        else:
            write.waiter.set_result(True)

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
        """The sync under way has run."""
        if not self.executor.large_sync:
            self._average_sync_s += (took_s - self._average_sync_s) * SYNC_AVERAGE_WEIGHT
        self.counts.syncs += 1
        self.counts.sync_seconds += took_s
        self.executor.end_sync()
        if self._durable_waiters:
            self._notify_durable(self.counts.syncs)
        self._schedule_seal()
        self._prepare_segment()
        self._remove_trimmed()
        if self._scrub_timer is None and not self._is_scrubbing:
            self._schedule_scrub(SCRUB_AFTER_SEAL_S)

    def _prepare_segment(self) -> None:
        """The journal's next file is made ahead, in another thread than the sync's: it takes longer than a sync."""
        if self._is_preparing:
            return
        prepare = self.executor.journal.begin_preallocation()  # type: ignore[attr-defined]
        if prepare is None:
            return
        self._is_preparing = True
        self._run_in_thread(prepare, self._segment_prepared)

    def _segment_prepared(self, prepare: Any) -> None:
        self._is_preparing = False
        self.executor.journal.end_preallocation(prepare)  # type: ignore[attr-defined]

    def _remove_trimmed(self) -> None:
        """What a trim has left without need goes in a thread of its own: unlinking a large file takes a while."""
        if not hasattr(self.executor.journal, "begin_removal"):
            return
        removal = self.executor.journal.begin_removal()
        if removal is not None:
            self._run_in_thread(removal, self._removal_done)

    def _removal_done(self, removal: Any) -> None:
        self.executor.journal.end_removal(removal)  # type: ignore[attr-defined]
        self._remove_trimmed()

    def _schedule_scrub(self, seconds: float) -> None:
        if hasattr(self.executor.journal, "begin_scrub"):
            self._scrub_timer = self._asyncio_loop.call_later(seconds, self._begin_scrub)

    def _begin_scrub(self) -> None:
        """Sealed segments are read again, a piece at a time: for their indexes, and so that old damage is found."""
        self._scrub_timer = None
        if self.end_reason is not None or self._is_scrubbing:
            return
        survey = self.executor.journal.begin_scrub()  # type: ignore[attr-defined]
        if survey is not None:
            self._is_scrubbing = True
            self._run_in_thread(survey, self._scrub_done)

    def _scrub_done(self, survey: Any) -> None:
        self._is_scrubbing = False
        self.executor.journal.end_scrub(survey)  # type: ignore[attr-defined]
        self._schedule_scrub(SCRUB_NEW_INTERVAL_S if survey.is_new else SCRUB_OLD_INTERVAL_S)

    def _run_in_thread(self, work: Any, then: Callable[[Any], None]) -> None:
        """``work.run()`` in a thread, then ``then(work)`` here. What goes wrong there ends this process."""
        self._asyncio_loop.run_in_executor(None, work.run).add_done_callback(partial(self._thread_done, work, then))

    def _thread_done(self, work: Any, then: Callable[[Any], None], done: asyncio.Future[None]) -> None:
        if self.end_reason is not None or done.cancelled():
            return
        error = done.exception()
        if error is not None:
            self.end(error)
        else:
            then(work)

    def _release(self) -> None:
        released = self.executor.release()
        for peer, data in released.messages:
            self._send(peer, data)
        if released.added:
            self._interactive_load.note_entries(sum([len(added.hashes) for added in released.added]) // HASH_BYTES)
        self._apply_released(released.marks, bool(released.added))

    def _set_timer(self, mono_ms: int, wake_ms: int) -> None:
        self._wake_ms = wake_ms
        if self._timer is not None:
            if wake_ms >= self._timer_ms:
                return  # it rings early and is set anew then: cheaper than setting it anew in each turn
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

    def _schedule_seal(self) -> None:
        if not hasattr(self.executor.journal, "seal") or self._seal_timer is not None:
            return
        self._seal_timer = self._asyncio_loop.call_later(IDLE_SEAL_S, self._seal, self.counts.syncs)

    def _seal(self, syncs: int) -> None:
        self._seal_timer = None
        if self.end_reason is not None or self._is_syncing:
            return
        if self.counts.syncs != syncs:
            self._schedule_seal()
            return
        try:
            self.executor.journal.seal()  # type: ignore[attr-defined]
        except Exception as wrong:  # noqa: BLE001 - as in receive
            self.end(wrong)
            return
        self._schedule()

    # The end

    def end(self, error: BaseException) -> None:
        """This process must end: nothing is released from now on."""
        if self.end_reason is None:
            self.end_reason = error
            self._notify_durable(NEVER_MS, Unavailable("Closing", f"this master is ending: {error}"))
            self._on_ended(error)

    def leave(self, timeout_ms: int) -> None:
        """Take no new transactions, and leave the view once those that stay hold what was accepted here, at the latest
        after ``timeout_ms``. :attr:`has_left` says when."""
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
        """Nothing is left to be said or written before the process ends. A master that never was in a view has none
        to leave."""
        if self.end_reason is not None:
            return True
        core = self.core
        left = core.is_leave_done or core.views.accepted is None
        return left and not self._writes and self.executor.idle

    async def close(self, timeout_s: float = 2.0) -> None:
        """Stop for good. The last sync gets ``timeout_s`` to end."""
        if self.end_reason is None:
            self.end_reason = stopped = Unavailable("Closing", "this master has stopped")
            self._notify_durable(NEVER_MS, stopped)
        for handle in (self._timer, self._seal_timer, self._scrub_timer):
            if handle is not None:
                handle.cancel()
        with contextlib.suppress(RuntimeError):
            await self._asyncio_loop.run_in_executor(None, self._sync_thread.close, timeout_s)
