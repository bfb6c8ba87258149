"""From the log into one worker, exactly once: :func:`apply_up_to`.

The worker's own marker is the only truth about its position. It moves in the same transaction as the data and only
from where the applier expects it (the guard), so anything may be lost, repeated or restored around it.

Engines that let two updates overlap need a lock besides, because then two requests can pass the guard together.
The lock is in the worker as well. An applier claims it once per call, confirms it with the first request and releases
it with the last. An applier that dies leaves its lock in the worker. The next one takes it over once nothing has moved
for ``takeover_s``, and raises the fence, so that no late request of the dead one can be applied. A request that timed
out keeps the lock as well, until the connection reports that the request is over.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from txlog.apply.clock import MonotonicClock, SystemClock
from txlog.apply.entry_operations import executed_txid, find_batch_end, find_operations, find_refused, stop_at_bulk_load
from txlog.apply.log_source import LogSource, refuse_other_cluster
from txlog.apply.outcome import ApplyOutcome, ForeignLock, Refusal, WorkerState
from txlog.apply.refusal_proof import is_judgement
from txlog.apply.request_limits import BYTES_PER_S, EXECUTION_S, silence_limit_s, time_limit_s
from txlog.apply.sent_requests import SentRequests
from txlog.apply.session_errors import (
    BatchLoading,
    BulkLoadDue,
    LockContended,
    PositionChanged,
    StoreUnfit,
    TransactionHarmful,
    TransactionRefused,
)
from txlog.apply.stored_marker import find_marker, is_overlapped, raise_if_overlapped, refuse_foreign_data
from txlog.apply.suspect import ENDED_MIN, Suspect
from txlog.apply.suspect_check import check_suspect, note_failure, try_prefixes
from txlog.model.entry import LogEntry, Position
from txlog.model.errors import LogAhead, LogDiverged, LogNeedsRestore
from txlog.model.hashes import NO_HASH
from txlog.workers.adapter import (
    EMPTY_MARKER,
    TAKEOVER_S,
    Adapter,
    ApplyResult,
    LoadMarker,
    LockAction,
    MarkerPosition,
    RequestOutcome,
    StoreOperation,
    SystemGraphs,
    Transport,
    UnexpectedAnswer,
    Unreachable,
    WorkerDiverged,
    WorkerRefused,
    WorkerResponse,
)

MERGE_TRANSACTIONS = 500
"""Transactions in one request when the worker lags far. A refused request is repeated with one transaction each."""
MERGE_BYTES = 1 << 16
"""Payload bytes in one request (a larger transaction has its own request): above, Oxigraph takes longer per quad."""
PAGE_BYTES = 4 << 20
"""Payload bytes that one request to the log asks for."""
AUDIT_PROBABILITY = 1 / 64
"""The share of calls that read all markers again instead of using the cached one. It finds two markers in minutes."""
YIELD_S = (0.02, 0.5)
"""Seconds: the first and the longest pause of an applier that finds another one active on the same worker. Two appliers
that both continue each waste half of their requests, and of the log pages that they fetch."""
_POLL_S = 0.02


def apply_up_to(
    adapter: Adapter,
    transport: Transport,
    log: LogSource,
    upto: int,
    *,
    epoch: int | Callable[[], int] = 0,
    cluster: Callable[[], bytes] = lambda: b"",
    budget_s: float = 2.0,
    clock: MonotonicClock | None = None,
    merge_max_transactions: int = MERGE_TRANSACTIONS,
    merge_max_bytes: int = MERGE_BYTES,
    page_max_bytes: int = PAGE_BYTES,
    hold: int | None = None,
    cached: MarkerPosition | None = None,
    held: ForeignLock | None = None,
    takeover_s: float = TAKEOVER_S,
    audit: float = AUDIT_PROBABILITY,
    suspect: Suspect | None = None,
    execution_s: float = EXECUTION_S,
    ended_min: int = ENDED_MIN,
) -> ApplyOutcome:
    """Bring one worker to index ``upto`` of ``log`` (at most to ``hold``), or as far as ``budget_s`` seconds allow. At
    least one request is tried. Never raises for a fault of the worker: the outcome holds it.

    ``epoch`` is written into the marker: the epoch of the view in which the log returned the last page (a function is
    called then). It identifies a worker on an abandoned branch that is above the end of the log. ``cluster``: the id of
    the cluster that returned the last page; empty where it is not known. It is written into the marker as well, since
    the log has proved the position; a store of another cluster is refused. ``cached``: the
    worker's last known marker, which saves a request; a wrong one costs one request and nothing else. ``held``: the
    last outcome's ``foreign_lock``, of the same process and transport. ``suspect``: the last outcome's, of any process
    on this machine. ``execution_s``: how long one transaction may take. ``ended_min``: as
    :data:`~txlog.apply.suspect.ENDED_MIN`. Errors of the log itself (no master reached) are raised; the worker stays
    consistent."""
    if cached is not None and random.random() < audit:
        cached = None
    run = _ApplySession(
        adapter,
        transport,
        log,
        min(upto, hold) if hold is not None else upto,
        epoch if callable(epoch) else lambda: epoch,
        cluster,
        clock or SystemClock(),
        budget_s,
        merge_max_transactions,
        merge_max_bytes,
        page_max_bytes,
        takeover_s,
        held,
    )
    run.suspect, run.execution_s, run.ended_min = suspect, execution_s, ended_min
    return run.run(cached)


class _ApplySession:
    """One call of :func:`apply_up_to`."""

    def __init__(
        self,
        adapter: Adapter,
        transport: Transport,
        log: LogSource,
        target: int,
        epoch: Callable[[], int],
        cluster: Callable[[], bytes],
        clock: MonotonicClock,
        budget_s: float,
        merge_transactions: int,
        merge_bytes: int,
        page_bytes: int,
        takeover_s: float,
        held: ForeignLock | None,
    ) -> None:
        self.adapter, self.transport, self.log = adapter, transport, log
        self.target, self.epoch, self.cluster = target, epoch, cluster
        self.clock = clock
        self.deadline = clock.now() + budget_s
        self.merge_transactions, self.merge_bytes, self.page_bytes = merge_transactions, merge_bytes, page_bytes
        self.takeover_s = takeover_s
        self.foreign_lock = held
        self.locking = not adapter.capabilities.serial_updates
        self.known = False
        """Whether ``marker`` is the worker's last seen or last written marker; None then means an empty store."""
        self.marker: MarkerPosition | None = None
        self.token: int | None = None
        """The lock that this applier has, or may have, in the worker."""
        self.confirmed = False
        self.contended = False
        self.pause_s = YIELD_S[0]
        self.applied = 0
        self.requests = SentRequests(transport)
        self._send = self.requests.send
        self.suspect: Suspect | None = None
        self.execution_s, self.ended_min = EXECUTION_S, ENDED_MIN

    # -- the session

    def run(self, cached: MarkerPosition | None) -> ApplyOutcome:
        self.known, self.marker = cached is not None, cached
        refusal: Refusal | None = None
        error: str | None = None
        bulk: LogEntry | None = None
        mark: LoadMarker | None = None
        state = WorkerState.WORKING
        try:
            error = self._follow(trusted=cached is None)
        except Unreachable as fault:
            state, error = WorkerState.UNREACHABLE, str(fault)
            self._keep_lock()
        except (TransactionRefused, TransactionHarmful) as fault:
            state, error, refusal = WorkerState.BLOCKED, str(fault), fault.refusal
        except StoreUnfit as unfit:
            state, error = WorkerState.BLOCKED, str(unfit)
        except BatchLoading as batch:
            state, error = WorkerState.LOADING, str(batch)
            self.known, self.marker, mark = True, batch.since, batch.loading
        except BulkLoadDue as due:
            bulk = due.entry
        except (WorkerDiverged, LogDiverged) as fault:
            state, error = WorkerState.DIVERGED, str(fault)
        except LogAhead as fault:
            state, error = WorkerState.AHEAD, str(fault)
        except LogNeedsRestore as fault:
            state, error = WorkerState.NEEDS_RESTORE, str(fault)
        except (WorkerRefused, UnexpectedAnswer) as fault:
            state, error = WorkerState.REFUSED, str(fault)
        finally:
            try:
                self._release()
            except Unreachable:
                self._keep_lock()
        at, lock, suspect = self.marker if self.known else None, self.foreign_lock, self.suspect
        return ApplyOutcome(at, state, error, refusal, self.applied, self.requests.count, lock, suspect, bulk, mark)

    def _follow(self, trusted: bool) -> str | None:
        """Apply until the target is reached or the budget is spent. Returns the reason for a wait, if there is one."""
        while True:
            try:
                if not self.known:
                    self._read_position()
                    trusted = True
                entries = self._fetch_entries()
                if not entries:
                    if not trusted and self.marker is not None and not self._is_at(self.marker):
                        raise PositionChanged
                    return None
                self.suspect = check_suspect(self.suspect, entries[0].index - 1, entries, self.clock.now())
                if self.locking and not self._lock(silence_limit_s(entries[0], self.execution_s, self.takeover_s)):
                    return "another applier has the lock of this worker; waiting until it is done or silent"
                self._apply_all(entries)
                return None
            except (PositionChanged, LockContended) as lost:
                self.known = False
                self._release()
                if isinstance(lost, LockContended):
                    self.contended = True
                    # Two appliers that claimed at once both fail here; a random pause decides which one comes first.
                    self.clock.sleep(random.uniform(0.001, 0.01))
                elif trusted:
                    self._back_off()
                if self._budget_spent():
                    self._read_position()
                    return "another applier was faster; going on at the next call"

    def _back_off(self) -> None:
        """Pause before the next try. The worker has moved since it was read, so another applier is active on it; that
        one is faster without a competitor."""
        self.clock.sleep(min(random.uniform(0.5, 1) * self.pause_s, max(0.0, self.deadline - self.clock.now())))
        self.pause_s = min(2 * self.pause_s, YIELD_S[1])

    def _budget_spent(self) -> bool:
        return self.clock.now() >= self.deadline

    # -- position

    def _read_position(self) -> None:
        url, system = self.transport.url, self._read_markers()
        marker = find_marker(url, system)
        if marker is None and not self.adapter.parse_is_empty(self._send(self.adapter.is_empty())):
            # another applier may have begun to fill it between the two requests
            marker = find_marker(url, self._read_markers())
            if marker is None:
                raise refuse_foreign_data(url)
        self.known, self.marker = True, marker

    def _read_system(self) -> SystemGraphs:
        return self.adapter.parse_system_graphs(self._send(self.adapter.read_system()))

    def _read_markers(self) -> SystemGraphs:
        """Read the system graphs. Two markers are a fault, except for a moment after a takeover that came too early."""
        system = self._read_system()
        for _ in range(5):
            if not is_overlapped(system) or not system.claims:
                break
            self.clock.sleep(_POLL_S)
            system = self._read_system()
        raise_if_overlapped(self.transport.url, system)
        return system

    def _is_at(self, marker: MarkerPosition) -> bool:
        return self.adapter.parse_is_at(self._send(self.adapter.is_at(marker)))

    # -- the log

    def _fetch_entries(self) -> list[LogEntry]:
        position, unordered = (self.marker or EMPTY_MARKER).position, (self.marker or EMPTY_MARKER).unordered
        # The request is sent even when there is nothing to fetch: only the log can confirm that this is its branch.
        # Position 0 of an empty store is on every log, and has no hash.
        after = position if position.index or position.hash != NO_HASH else None
        upto = max(self.target, position.index)
        entries = self.log.page(after, upto, self.page_bytes, unordered)
        refuse_other_cluster(self.transport.url, self.marker or EMPTY_MARKER, self.cluster())
        assert not entries or entries[0].index == position.index + 1, (position.index, entries[0].index)
        return entries

    # -- the lock

    def _lock(self, silence_s: float) -> bool:
        """Claim the lock. False: another applier has it, and the budget is spent. See :func:`silence_limit_s`."""
        while self.token is None:
            # Do not add a claim beside an existing lock: claims are its owner's heartbeat.
            if self.foreign_lock is None and not self.contended:
                token = random.randrange(self.adapter.token_limit)
                self.token = token  # it may be there from now on, also without an answer
                if self._may_write(self._send(self.adapter.claim(token))):
                    return True
                self.token = None
            if self._lock_owner_died(silence_s):
                return True
            if self.token is None and self._budget_spent():
                return False
        return True

    def _lock_owner_died(self, silence_s: float) -> bool:
        """Check another applier's lock. True: its owner is gone, and this applier has the lock now."""
        system = self._read_markers()
        if system.markers != (() if self.marker is None else (self.marker,)):
            raise PositionChanged
        if not system.claims:
            self.foreign_lock, self.contended = None, False
            return False
        held, now = self.foreign_lock, self.clock.now()
        if held is not None and held.is_ours and held.seen == system.claims:
            if not self.transport.settled():
                self.clock.sleep(_POLL_S)
                return False
        else:
            seen = system.claims | {str(marker) for marker in system.markers}
            if held is None or held.seen != seen:
                held = self.foreign_lock = ForeignLock(seen, now)
            if now - held.since < silence_s:
                self.clock.sleep(_POLL_S)
                return False
        self.token = random.randrange(self.adapter.token_limit)
        if not self._may_write(self._send(self.adapter.take_over(self.marker, self.token))):
            raise PositionChanged
        self.foreign_lock = None
        if self.marker is None:
            return True
        raised = self.marker._replace(fence=self.marker.fence + 1)
        markers = self._read_system().markers
        if markers != (raised,):
            # A request of the old owner was still under way and was applied. This applier has applied nothing, so the
            # old owner's marker is the true one, and this applier removes its own.
            if raised in markers:
                self._send(self.adapter.drop_marker(raised))
            raise PositionChanged
        self.marker = raised
        return True

    def _may_write(self, response: WorkerResponse) -> bool:
        """Whether the worker executed a request for the lock. False: another applier was faster."""
        if self.adapter.parse_apply_result(response) is ApplyResult.REFUSED:
            raise StoreUnfit(self.transport.url, response)
        return response.ok

    def _release(self) -> None:
        if self.token is not None:
            if not self._send(self.adapter.release_claim(self.token)).ok:  # it stays until the store can write again
                mine = ForeignLock(self.adapter.claims_for_token(self.token), self.clock.now(), is_ours=True)
                self.foreign_lock = self.foreign_lock or mine
            self.token, self.confirmed = None, False

    def _keep_lock(self) -> None:
        """Keep the lock in the worker, because a request with an unknown outcome may still need it; remember it as a
        :class:`ForeignLock`."""
        self.known = False
        # If the transport does not watch the request's end (a proxy timed out), the lock counts as another applier's.
        if self.token is not None and (not self.requests.may_run or not self.transport.settled()):
            self.foreign_lock = ForeignLock(self.adapter.claims_for_token(self.token), self.clock.now(), is_ours=True)
        self.token, self.confirmed = None, False

    # -- applying

    def _apply_all(self, entries: list[LogEntry]) -> None:
        while entries:
            at = 0
            while at < len(entries):
                end = self._batch_end(entries, at)
                self._apply_batch(entries[at:end])
                at = end
                if self._budget_spent():
                    return
            if entries[-1].index >= self.target:
                return
            entries = self._fetch_entries()

    def _batch_end(self, entries: list[LogEntry], at: int) -> int:
        stop_at_bulk_load(entries[at])
        if self.suspect is not None and entries[at].index <= self.suspect.last:
            return at + 1  # one of these ends or stalls the worker: only a request with it alone shows which
        return find_batch_end(entries, at, self.merge_transactions, self.merge_bytes)

    def _apply_batch(self, batch: list[LogEntry]) -> None:
        if len(batch) == 1 and self.suspect is not None:
            self._find_harmful(batch[0], self.suspect)
        response = self._send_batch(batch)
        if response is None:
            return
        if len(batch) > 1:
            # The worker refuses one of them. Send each alone: those before it are applied, and the fault is located.
            for entry in batch:
                self._apply_batch([entry])
            return
        entry, operations = batch[0], find_operations(batch)
        if not operations:
            raise StoreUnfit(self.transport.url, response)
        rewritten = -1
        while True:
            at, response = find_refused(operations, response, self._try_prefix)
            other = self.adapter.rewrite_refused(operations[at], response) if at > rewritten else None
            if other is None:
                break
            operations[at], rewritten = other, at
            again = self._send_batch(batch, operations)
            if again is None:
                return
            response = again
        if not is_judgement(response) or self._try_prefix(operations[: at + 1]) is None or not self._can_commit():
            raise StoreUnfit(self.transport.url, response)
        raise TransactionRefused(Refusal(entry.index, executed_txid(entry, at), response.status, response.text))

    def _can_commit(self) -> bool:
        """Whether the worker executes a request without operations, which moves its marker to where it is."""
        if self.marker is None:
            return True
        lock, token = self._lock_action(), self.token or 0
        nothing = self.adapter.apply([], self.marker, self.marker, lock=lock, token=token)
        verdict = self.adapter.parse_apply_result(self._send(nothing))
        if verdict in (ApplyResult.MOVED, ApplyResult.CONTENDED):
            raise PositionChanged if verdict is ApplyResult.MOVED else LockContended
        self.confirmed |= verdict is ApplyResult.APPLIED
        return verdict is ApplyResult.APPLIED

    def _find_harmful(self, entry: LogEntry, suspect: Suspect) -> None:
        """Find the transaction of an entry that ends or stalls the worker. Each failure ends this call."""
        self.suspect, prefix, lost = try_prefixes(suspect, find_operations([entry]), self._try_prefix)
        if lost is not None:
            if lost.fate is not RequestOutcome.NOT_SENT:
                self._note_failure([entry], lost, prefix)
            raise lost

    def _try_prefix(self, operations: Sequence[StoreOperation]) -> WorkerResponse | None:
        """The worker's refusal of these operations; None where it accepts them. Nothing of them stays."""
        trial = self.adapter.apply(operations, self.marker, None, lock=self._lock_action(), token=self.token or 0)
        limit_s = self.execution_s + sum(len(one.payload) for one in operations) / BYTES_PER_S
        response = self._send(replace(trial, timeout_s=limit_s))
        verdict = self.adapter.parse_apply_result(response)
        if verdict is ApplyResult.CONTENDED:
            raise LockContended
        return response if verdict is ApplyResult.REFUSED else None

    def _send_batch(self, batch: list[LogEntry], form: Sequence[StoreOperation] = ()) -> WorkerResponse | None:
        """Send the batch as one request, in another ``form`` where one is given. None: applied. Otherwise the worker's
        response that refuses an operation."""
        last = batch[-1]
        before = self.marker or EMPTY_MARKER
        position, cluster = Position(self.epoch(), last.index, last.hash), self.cluster() or before.cluster
        new = before._replace(position=position, cluster=cluster)
        operations = form or find_operations(batch)
        lock, release = self._lock_action(), self.token is not None and last.index >= self.target
        request = self.adapter.apply(operations, self.marker, new, lock=lock, token=self.token or 0, release=release)
        try:
            response = self._send(replace(request, timeout_s=time_limit_s(batch, self.execution_s)))
        except Unreachable as fault:
            if fault.fate is RequestOutcome.NOT_SENT:
                raise
            if not self._was_applied(new):
                self._note_failure(batch, fault)
                raise
        else:
            verdict = self.adapter.parse_apply_result(response)
            if verdict is ApplyResult.REFUSED:
                return response
            if verdict is not ApplyResult.APPLIED:
                raise LockContended if verdict is ApplyResult.CONTENDED else PositionChanged
        self.marker, self.known = new, True
        if self.suspect is not None and last.index >= self.suspect.last:
            self.suspect = None
        self.applied += len(batch)
        self.confirmed = True
        if release:
            self.token, self.confirmed = None, False
        return None

    def _lock_action(self) -> LockAction:
        if self.token is None:
            return LockAction.NONE
        return LockAction.KEEP if self.confirmed else LockAction.CONFIRM

    def _note_failure(self, batch: list[LogEntry], lost: Unreachable, prefix: int = 0) -> None:
        """See :func:`~txlog.apply.suspect_check.note_failure`."""
        at, now = (self.marker or EMPTY_MARKER).position.index, self.clock.now()
        self.suspect = note_failure(self.suspect, batch, prefix, at, lost, now, self.ended_min)

    def _was_applied(self, new: MarkerPosition) -> bool:
        """Whether a request without an answer was applied. False, too, when the worker does not say."""
        try:
            found = self._is_at(new)
        except (Unreachable, UnexpectedAnswer):
            return False
        if found:
            self.requests.on_answered()
        return found
