"""Durability watermarks of this master's log and transactions, and the requests that wait for them: durable facts
only.

:class:`~txlog.runtime.master_loop.MasterLoop` moves them once per turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from txlog.model.durability import WORKER_LEVELS, Durability
from txlog.model.entry import Position
from txlog.model.ids import Txid
from txlog.model.quorum import Quorum
from txlog.protocol.events import NOT_TRUNCATED, DurabilityMarks
from txlog.protocol.log.log_state import LogState
from txlog.protocol.views.decisions import SynchronousAnswer, find_answer
from txlog.runtime.executor import Executor
from txlog.runtime.master_listener import MasterListener, ViewTransition
from txlog.runtime.master_status import MasterStatus
from txlog.runtime.watermark import Waiter, Watermark


class DurabilityWaiter(NamedTuple):
    """A future to resolve once a transaction that another master (or an earlier start) accepted reaches a level, or a
    synchronous one of this master. ``quorum``: what an undecided one of this master needs."""

    txid: Txid
    level: Durability
    future: Waiter
    quorum: Quorum | None = None


class DurabilityTracker:
    """``accepted``, ``quorum``, ``synced`` are over this master's own seqs; ``stable``, ``applied``, ``applied_all``,
    ``archived`` over the log's index. All of them are durable facts. ``executable`` is how far workers may execute:
    ``stable``, or the log's end (``None``, while a member is silent).

    An accepted view with another branch truncates the log at once. ``synced``, ``stable`` and the known positions of
    workers fall with it in the same call. From then on an index above the truncation point is meaningless, until the
    base of that view is installed and durable. ``truncation_count`` counts these moments; a caller that awaits in
    between must check it again.
    """

    def __init__(self, executor: Executor, status: MasterStatus, listener: MasterListener) -> None:
        self._executor = executor
        self._status = status
        self._listener = listener
        self.accepted, self.quorum, self.synced = Watermark(), Watermark(), Watermark()
        self.stable, self.applied, self.applied_all = Watermark(), Watermark(), Watermark()
        self.executable = Watermark()
        self.archived = Watermark()
        """The highest index that an archive has, as far as this log confirms it."""
        self.has_archive = False
        """Whether an archiver of any data centre is expected, or has reported."""
        self.log_index = 0
        self.quorum_index = 0
        """See :class:`DurabilityMarks`. It falls with the log, as ``stable`` does."""
        self.truncation_count = 0
        self.is_aborted = False
        """No caller may wait any more: this process is about to end."""
        self.observer: Callable[[], None] | None = None
        """Called at the end of each turn's release; it only reads. None: nothing is traced."""
        self._view = status.view
        self._foreign_waiters: list[DurabilityWaiter] = []
        self._looked_at: tuple[object, ...] = ()
        """What the waiters for a quorum were last compared with."""
        self._asyncio_loop = asyncio.get_running_loop()
        self._watermarks = {
            Durability.ACCEPTED: self.accepted,
            Durability.QUORUM: self.quorum,
            Durability.SYNCED: self.synced,
            Durability.APPLIED: self.synced,
            Durability.APPLIED_ALL: self.synced,
            Durability.ARCHIVED: self.synced,
        }

    # Known facts

    def stable_position(self) -> Position:
        """The position up to which the log is stable; released, so durable."""
        return self.position_at(self.stable.value)

    def executable_position(self) -> Position:
        """The position up to which log pages and doorbells go."""
        return self.position_at(self.executable.value)

    def log_position(self) -> Position:
        """The end of the log that may be shown; see :meth:`_valid_index`."""
        agreement = self._status.log_state
        return self.position_at(self._valid_index(agreement) if agreement is not None else 0)

    @property
    def persisted_end(self) -> int:
        """No worker has executed anything above this index in this view. It is where the log would end if it contained
        everything that this master holds unordered."""
        agreement = self._status.log_state
        return 0 if agreement is None else agreement.log_index.length + agreement.open.waiting

    def position_at(self, index: int) -> Position:
        """The position at an index of the log: 0, or from the log start on."""
        agreement = self._status.log_state
        if agreement is None:
            return Position(0, 0, bytes(16))
        return Position(agreement.view.epoch, index, agreement.log_index.hash_at(index))

    def _valid_index(self, agreement: LogState) -> int:
        """The index up to which indexes are valid. An accepted view truncates the log, and shows its base only once
        installed. Until the marks for that are released, the log may already be shorter than the earlier marks."""
        if not agreement.installed:
            return self.stable.value
        return min(self.log_index, agreement.log_index.length)

    def index_of(self, txid: Txid) -> int:
        """The log index at which a transaction takes effect, as far as it is durable here, else 0: its own, or that of
        its COMMIT."""
        agreement = self._status.log_state
        if agreement is None:
            return 0
        index = agreement.log_index.index_of(txid.origin, txid.seq)
        if agreement.synchronous.has_no_effect(txid):
            index = agreement.synchronous.effect_index(txid)
        return index if index <= self._valid_index(agreement) else 0

    def is_trimmed(self, txid: Txid) -> bool:
        """Whether the transaction took effect in the trimmed part of the log: every worker of every data centre is past
        it."""
        agreement = self._status.log_state
        return (
            agreement is not None
            and agreement.log_index.is_trimmed(txid.origin, txid.seq)
            and not agreement.synchronous.has_no_effect(txid)
        )

    def is_archived(self, txid: Txid) -> bool:
        """Whether an archive has the transaction."""
        agreement = self._status.log_state
        if agreement is not None and self.is_trimmed(txid):
            return 0 < agreement.log_index.start <= self.archived.value
        return 0 < self.index_of(txid) <= self.archived.value

    def is_own(self, txid: Txid) -> bool:
        """Whether this incarnation of this master accepted the transaction."""
        agreement = self._status.log_state
        return agreement is not None and agreement.own.origin == txid.origin

    def level_of(self, txid: Txid) -> Durability | None:
        """The highest level that this transaction is known to have reached; None when this master does not know it."""
        if self.synchronous_answer(txid, Durability.QUORUM) is not None:
            return self._synchronous_level(txid)
        index = self.index_of(txid)
        if (index and index <= self.applied_all.value) or self.is_trimmed(txid):
            return Durability.APPLIED_ALL
        if index and index <= self.applied.value:
            return Durability.APPLIED
        if index and index <= self.stable.value:
            return Durability.SYNCED
        if self.is_own(txid):
            if txid.seq <= self.synced.value:
                return Durability.SYNCED
            if txid.seq <= self.quorum.value:
                return Durability.QUORUM
            return Durability.ACCEPTED if txid.seq <= self.accepted.value else None
        if self._foreign_reached(txid, Durability.QUORUM):
            return Durability.QUORUM
        return Durability.ACCEPTED if self._foreign_reached(txid, Durability.ACCEPTED) else None

    # Synchronous transactions

    def synchronous_answer(self, txid: Txid, level: Durability) -> SynchronousAnswer | None:
        """What a client that asked for this level may be answered now (rule S10); None for a transaction that is not
        known to be synchronous."""
        mark = {Durability.APPLIED_ALL: self.applied_all, Durability.ARCHIVED: self.archived}.get(level, self.applied)
        asks_quorum = level is Durability.QUORUM or level is Durability.ACCEPTED
        progress = self._status.synchronous_progress(txid, self.stable.value, mark.value, asks_quorum=asks_quorum)
        return find_answer(level, progress) if progress is not None else None

    def _synchronous_level(self, txid: Txid) -> Durability | None:
        for level in (Durability.APPLIED_ALL, Durability.APPLIED, Durability.SYNCED, Durability.QUORUM):
            if self.synchronous_answer(txid, level) is SynchronousAnswer.COMMITTED:
                return level
        return Durability.ACCEPTED if self._status.is_persisted(txid) else None

    # Waiters

    def add_waiter(self, level: Durability, seq: int, waiter: Waiter) -> None:
        """Resolve ``waiter`` with True as soon as this master's own transaction ``seq`` has reached accepted, quorum or
        synced. A higher level means synced."""
        self._watermarks[level].add_waiter(seq, waiter)

    def wait_txid(self, txid: Txid, level: Durability) -> asyncio.Future[bool]:
        """Resolves to True as soon as the transaction, of any master, has reached accepted, quorum or synced; to False
        once it is rolled back."""
        future = self._asyncio_loop.create_future()
        self.add_txid_waiter(txid, level, future)
        return future

    def add_txid_waiter(self, txid: Txid, level: Durability, waiter: Waiter) -> None:
        """As :meth:`wait_txid`, with a waiter of the caller: it is dropped as soon as it is done."""
        agreement = self._status.log_state
        quorum = agreement.synchronous.quorum_of(txid) if agreement is not None else None
        if quorum is not None or self.synchronous_answer(txid, level) is not None:
            one = DurabilityWaiter(txid, _waited_for(level), waiter, quorum if self.is_own(txid) else None)
            if self._waits_on(one, True, {}) or not self._resolve(one):
                self._foreign_waiters.append(one)
        elif self.is_own(txid):
            self.add_waiter(level, txid.seq, waiter)
        elif self._foreign_reached(txid, level):
            waiter.set_result(True)
        else:
            self._foreign_waiters.append(DurabilityWaiter(txid, level, waiter))

    def count_txid_waiters(self) -> int:
        """Waiters for a single transaction: each turn of the loop looks at all of them."""
        return len(self._foreign_waiters)

    @property
    def awaits_decision(self) -> bool:
        """Whether a request waits for a single transaction to be in the log, or for its COMMIT."""
        return any(one.level is Durability.SYNCED for one in self._foreign_waiters)

    @property
    def awaits_sync(self) -> bool:
        """Whether a request waits for what the next sync makes durable."""
        marks = self.accepted, self.quorum, self.synced, self.stable
        return len(self._foreign_waiters) > 0 or sum([len(mark) for mark in marks]) > 0

    def wait_in_stable_log(self, txid: Txid) -> asyncio.Future[bool]:
        """Resolves to True as soon as the transaction, of any master, is in the stable log."""
        future = self._asyncio_loop.create_future()
        if self._foreign_reached(txid, Durability.SYNCED):
            future.set_result(True)
        else:
            self._foreign_waiters.append(DurabilityWaiter(txid, Durability.SYNCED, future))
        return future

    def _foreign_reached(self, txid: Txid, level: Durability) -> bool:
        """Whether a transaction of any master has reached accepted, quorum or synced, as far as is durable here. Stable
        is no quorum by itself: the view may be a minority (``Continue``)."""
        return self._is_reached(txid, level, self.synchronous_answer(txid, level))

    def _is_reached(self, txid: Txid, level: Durability, answer: SynchronousAnswer | None) -> bool:
        if self.is_trimmed(txid):
            return True
        if answer is not None and level is not Durability.ACCEPTED:
            return answer is SynchronousAnswer.COMMITTED
        index = self.index_of(txid)
        if level is Durability.ACCEPTED:
            return index > 0 or self._status.is_persisted(txid)
        if level is Durability.QUORUM:
            return 0 < index <= self.quorum_index or self._status.is_held_by_quorum(txid)
        return 0 < index <= self.stable.value

    def wait_index(self, mark: Watermark, index: int) -> asyncio.Future[bool]:
        """Resolves to True as soon as ``mark`` (``stable``, ``applied``, ``applied_all``) is at ``index``."""
        future = self._asyncio_loop.create_future()
        mark.add_waiter(index, future)
        return future

    async def wait_for(self, future: asyncio.Future[bool], seconds: float) -> bool:
        """The future's result, or False after ``seconds``. The future is done afterwards either way, also when the
        client disconnects."""
        if future.done():
            return future.result()
        if self.is_aborted:
            future.cancel()
            return False
        timer = self._asyncio_loop.call_later(max(0.0, seconds), _resolve_false, future)
        try:
            return await future
        finally:
            timer.cancel()

    def abort_waiters(self) -> None:
        """End all waits, present and later ones: each request is answered with the level reached so far (202)."""
        self.is_aborted = True
        for mark in [*self._watermarks.values(), self.stable, self.applied, self.applied_all, self.archived]:
            mark.abort_waiters()
        self.executable.abort_waiters()
        others, self._foreign_waiters = self._foreign_waiters, []
        for one in others:
            if not one.future.done():
                one.future.set_result(False)

    # What moves it

    def apply_released(self, marks: DurabilityMarks | None) -> None:
        """Apply the released marks. What else the turn made durable, here or elsewhere, may suffice for waiters."""
        if marks is not None:
            self.log_index = marks.log
            self.quorum_index = marks.quorum_index
            if marks.accepted > self.accepted.value:
                self.accepted.move_to(marks.accepted)
            if marks.quorum > self.quorum.value:
                self.quorum.move_to(marks.quorum)
            if marks.stable > self.stable.value:  # it falls in _detect_truncation only
                self.stable.move_to(marks.stable)
                self._listener.on_stable_moved()
            if marks.synced > self.synced.value:
                self.synced.move_to(marks.synced)
        self._move_executable()
        self.notify_waiters()
        if self.observer is not None:
            self.observer()

    def _move_executable(self) -> None:
        index, agreement = self.stable.value, self._status.log_state
        if agreement is not None and agreement.view.strategy == "None" and self._status.executes_to_end:
            index = max(index, self._valid_index(agreement))
        if index != self.executable.value:
            self.executable.move_to(index)

    def notify_waiters(self, *, only_quorum: bool = False) -> None:
        """Resolve the waiters for single transactions that have reached their level by what this master knows.
        ``only_quorum``: those that wait for a quorum."""
        if not self._foreign_waiters:
            return
        known = (*self._status.synchronous_versions, self.accepted.value, self.stable.value, self._view)
        is_news, self._looked_at = known != self._looked_at, known
        waiting, self._foreign_waiters = self._foreign_waiters, []
        held: dict[Quorum, int] = {}
        self._foreign_waiters += [
            one
            for one in waiting
            if (only_quorum and one.level is not Durability.QUORUM)
            or self._waits_on(one, is_news, held)
            or not self._resolve(one)
        ]

    def _waits_on(self, one: DurabilityWaiter, is_news: bool, held: dict[Quorum, int]) -> bool:
        """Whether a closer look is needless, as for most waiters in most turns: no decision names the transaction, and
        the waiter waits for one; or the transaction is an own one, and nothing has changed that tells of its quorum, or
        too few hold it. ``held``: the last own seq that each quorum holds, as far as it was asked for in this turn."""
        agreement = self._status.log_state
        if agreement is None or one.future.done() or not agreement.synchronous.is_undecided(one.txid):
            return False
        if one.level is not Durability.QUORUM or one.txid.origin != agreement.own.origin:
            return one.level is Durability.SYNCED
        quorum = one.quorum
        if not is_news or quorum is None:
            return not is_news
        last = held.get(quorum)
        if last is None:
            last = held[quorum] = self._status.own_seq_held_by(quorum)
        return one.txid.seq > last

    def _resolve(self, one: DurabilityWaiter) -> bool:
        """Whether it waits no more."""
        if one.future.done():
            return True
        answer = self.synchronous_answer(one.txid, one.level)
        if answer is SynchronousAnswer.ROLLED_BACK:
            one.future.set_result(False)
        elif self._is_reached(one.txid, one.level, answer):
            one.future.set_result(True)
        return one.future.done()

    def detect_view_change(self) -> None:
        """Call this after everything that may have changed the view, before anything is read."""
        view = self._status.view
        if view is self._view:
            return
        old, self._view = self._view, view
        end, stable, cuts = self.log_index, self.stable.value, self.truncation_count
        self._detect_truncation()
        agreement = self._status.log_state
        if old is not None and view is not None and agreement is not None:
            self._listener.on_view_changed(
                ViewTransition(
                    old, view, end, stable, agreement.unchanged_until if self.truncation_count != cuts else None
                )
            )

    def _detect_truncation(self) -> None:
        executor = self._executor
        if executor.truncated_to == NOT_TRUNCATED:
            return
        cut, executor.truncated_to = executor.truncated_to, NOT_TRUNCATED
        agreement = self._status.log_state
        assert agreement is not None
        if cut >= self.log_index:
            return
        self.truncation_count += 1
        self.log_index = cut
        self.quorum_index = min(self.quorum_index, cut)
        own = agreement.log_index.seq_within(agreement.slots[agreement.own.origin], cut)
        if own < self.synced.value:
            self.synced.move_to(own)
        if cut < self.stable.value:
            self.stable.move_to(cut)
        for mark in (self.executable, self.archived):
            if cut < mark.value:
                mark.move_to(cut)
        self._listener.on_stable_moved()
        self._listener.on_log_truncated()


def _resolve_false(future: asyncio.Future[bool]) -> None:
    if not future.done():
        future.set_result(False)


def _waited_for(level: Durability) -> Durability:
    """What waits for a worker or an archive waits for the log first."""
    return Durability.SYNCED if level in WORKER_LEVELS or level is Durability.ARCHIVED else level
