"""From the log into one worker, exactly once: :func:`apply_up_to`.

The worker's own marker is the only truth about its position. It moves in the same transaction as the data and only
from where the applier expects it (the guard), so anything may be lost, repeated or restored around it.

Engines that let two updates overlap need a lock besides, because then two requests can pass the guard together.
It lies in the worker as well, is claimed once per call, confirmed by the first request and given back by the last.
An applier that dies leaves it behind; the next one takes it over once nothing has moved for ``takeover_s``, and raises
the fence, so that nothing that the dead one sends later can land. A request that we gave up waiting for keeps the lock
as well, until the connection tells that it is over.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Protocol

from txlog.apply.log_source import LogSource
from txlog.apply.outcome import ApplyOutcome, ForeignLock, Refusal, WorkerState
from txlog.model.entry import CONTROL_KINDS, LogEntry, Position
from txlog.model.errors import LogAhead, LogDiverged, LogNeedsRestore
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
    WorkerRequest,
    WorkerResponse,
)

MERGE_TRANSACTIONS = 500
"""Transactions in one request when the worker is far behind. A request that is refused is repeated one by one."""
MERGE_BYTES = 1 << 16
"""Payload bytes in one request (one larger transaction goes alone): above, Oxigraph takes longer per quad."""
PAGE_BYTES = 4 << 20
"""Payload asked of the log at a time."""
AUDIT_PROBABILITY = 1 / 64
"""How often a cached marker is not believed but read anew, with all there are: two markers are found within minutes
also where a worker is always busy."""
YIELD_S = (0.02, 0.5)
"""First and longest pause of who finds that another applier is at work on the same worker. Each of two that both go on
loses half of its requests, and of the log that it fetches."""
_POLL_S = 0.02


class MonotonicClock(Protocol):
    """Time that only grows, in seconds, and a way to let some of it pass."""

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def apply_up_to(
    adapter: Adapter,
    transport: Transport,
    log: LogSource,
    upto: int,
    *,
    epoch: int | Callable[[], int] = 0,
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
) -> ApplyOutcome:
    """Bring one worker to index ``upto`` of ``log`` (at most to ``hold``), or as far as ``budget_s`` seconds allow;
    at least one request is tried. Never raises for a fault of the worker: the outcome says it.

    ``epoch`` is written into the marker: that of the view in which the log gave out the last page (a function is asked
    then). By it a worker on an abandoned branch is known that stands above the log. ``cached``: where the worker stood
    last, to spare asking; a wrong one costs a request and nothing else. ``foreign_lock``: the last outcome's, in the
    same process and with the same transport. Errors of the log itself (no master reached) are raised, with the worker
    left in order."""
    if cached is not None and random.random() < audit:
        cached = None
    run = _ApplySession(
        adapter,
        transport,
        log,
        min(upto, hold) if hold is not None else upto,
        epoch if callable(epoch) else lambda: epoch,
        clock or SystemClock(),
        budget_s,
        merge_max_transactions,
        merge_max_bytes,
        page_max_bytes,
        takeover_s,
        held,
    )
    return run.run(cached)


class _PositionChanged(Exception):
    """The worker is not where this run thought: read its marker again."""


class _LockContended(Exception):
    """Another applier claimed at the same moment, or took the lock away."""


class _TransactionRefused(Exception):
    def __init__(self, refusal: Refusal) -> None:
        super().__init__(
            f"refuses {refusal.txid} at index {refusal.index} with {refusal.status}: {refusal.body[:500]}; "
            "mend the worker, or pass the transaction over with `txlog skip`"
        )
        self.refusal = refusal


class _BatchLoading(Exception):
    """A batch loads the net effect of the log into this worker."""

    def __init__(self, url: str, loading: LoadMarker) -> None:
        super().__init__(
            f"a batch brings {url} up to index {loading.position.index}; wait until it is there, or until another one "
            "repeats it"
        )
        # What it has executed for certain, and from where the log is needed.
        self.since = None if loading.since == EMPTY_MARKER else loading.since


class _ApplySession:
    """One call of :func:`apply_up_to`."""

    def __init__(
        self,
        adapter: Adapter,
        transport: Transport,
        log: LogSource,
        target: int,
        epoch: Callable[[], int],
        clock: MonotonicClock,
        budget_s: float,
        merge_transactions: int,
        merge_bytes: int,
        page_bytes: int,
        takeover_s: float,
        held: ForeignLock | None,
    ) -> None:
        self.adapter, self.transport, self.log = adapter, transport, log
        self.target, self.epoch = target, epoch
        self.clock = clock
        self.deadline = clock.now() + budget_s
        self.merge_transactions, self.merge_bytes, self.page_bytes = merge_transactions, merge_bytes, page_bytes
        self.takeover_s = takeover_s
        self.foreign_lock = held
        self.locking = not adapter.capabilities.serial_updates
        self.known = False
        """Whether ``marker`` is what the worker was last seen or left with; None then means an empty store."""
        self.marker: MarkerPosition | None = None
        self.token: int | None = None
        """The lock that this run has, or may have, in the worker."""
        self.confirmed = False
        self.contended = False
        self.pause_s = YIELD_S[0]
        self.applied = 0
        self.requests = 0

    # -- the frame

    def run(self, cached: MarkerPosition | None) -> ApplyOutcome:
        self.known, self.marker = cached is not None, cached
        refusal: Refusal | None = None
        error: str | None = None
        state = WorkerState.WORKING
        try:
            error = self._follow(trusted=cached is None)
        except Unreachable as fault:
            state, error = WorkerState.UNREACHABLE, str(fault)
            self._keep_lock(fault.fate)
        except _TransactionRefused as fault:
            state, error, refusal = WorkerState.BLOCKED, str(fault), fault.refusal
        except _BatchLoading as batch:
            state, error = WorkerState.LOADING, str(batch)
            self.known, self.marker = True, batch.since
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
            except Unreachable as fault:
                self._keep_lock(fault.fate)
        position = self.marker if self.known else None
        return ApplyOutcome(position, state, error, refusal, self.applied, self.requests, self.foreign_lock)

    def _follow(self, trusted: bool) -> str | None:
        """Until the target or the end of the budget. Returns what it waits for, if anything."""
        while True:
            try:
                if not self.known:
                    self._read_position()
                    trusted = True
                entries = self._fetch_entries()
                if not entries:
                    if not trusted and self.marker is not None and not self._is_at(self.marker):
                        raise _PositionChanged
                    return None
                if self.locking and not self._lock():
                    return "another applier has the lock of this worker; waiting until it is done or silent"
                self._apply_all(entries)
                return None
            except (_PositionChanged, _LockContended) as lost:
                self.known = False
                self._release()
                if isinstance(lost, _LockContended):
                    self.contended = True
                    # Both of two that claimed at once find this out; which one comes back first is chance.
                    self.clock.sleep(random.uniform(0.001, 0.01))
                elif trusted:
                    self._back_off()
                if self._budget_spent():
                    self._read_position()
                    return "another applier was faster; going on at the next call"

    def _back_off(self) -> None:
        """The worker has moved since it was asked: another applier is at it, and gets on better alone."""
        self.clock.sleep(min(random.uniform(0.5, 1) * self.pause_s, max(0.0, self.deadline - self.clock.now())))
        self.pause_s = min(2 * self.pause_s, YIELD_S[1])

    def _budget_spent(self) -> bool:
        return self.clock.now() >= self.deadline

    def _send(self, request: WorkerRequest) -> WorkerResponse:
        self.requests += 1
        return self.transport.send(request)

    # -- position

    def _read_position(self) -> None:
        system = self._read_markers()
        catching_up = [loading for loading in system.loading if loading.since is not None]
        if catching_up:
            raise _BatchLoading(self.transport.url, catching_up[0])
        if system.loading:
            raise WorkerRefused(
                "Loading",
                f"a data set is being loaded into {self.transport.url}, to stand at index "
                f"{system.loading[0].position.index}; wait, or begin that restore again if it broke off",
            )
        if not system.markers and not self.adapter.parse_is_empty(self._send(self.adapter.is_empty())):
            system = self._read_markers()  # somebody may have begun to fill it between the two questions
            if not system.markers:
                raise WorkerRefused(
                    "ForeignStore",
                    f"{self.transport.url} holds data that TxLog did not write; "
                    "register an empty store and upload the data through a master",
                )
        self.known, self.marker = True, (system.markers[0] if system.markers else None)

    def _read_system(self) -> SystemGraphs:
        return self.adapter.parse_system_graphs(self._send(self.adapter.read_system()))

    def _read_markers(self) -> SystemGraphs:
        """Two markers are a fault, except for the moment in which a takeover finds out that it came too early."""
        system = self._read_system()
        for _ in range(5):
            if len(system.markers) < 2 or not system.claims:
                break
            self.clock.sleep(_POLL_S)
            system = self._read_system()
        if len(system.markers) > 1:
            named = ", ".join(f"{m.position} fence {m.fence}" for m in system.markers)
            raise WorkerDiverged(
                f"{self.transport.url} holds {len(system.markers)} markers ({named}): two appliers have overlapped; "
                "rebuild this worker from another one"
            )
        return system

    def _is_at(self, marker: MarkerPosition) -> bool:
        return self.adapter.parse_is_at(self._send(self.adapter.is_at(marker)))

    # -- the log

    def _fetch_entries(self) -> list[LogEntry]:
        position, unordered = (self.marker or EMPTY_MARKER).position, (self.marker or EMPTY_MARKER).unordered
        # Also asked when there is nothing to fetch: only the log can say that this is its branch.
        after, upto = position if position.index else None, max(self.target, position.index)
        entries = self.log.page(after, upto, self.page_bytes, unordered)
        assert not entries or entries[0].index == position.index + 1, (position.index, entries[0].index)
        return entries

    # -- the lock

    def _lock(self) -> bool:
        """True: this run has claimed. False: another applier has, and the budget is spent."""
        while self.token is None:
            # Claiming beside a lock that is known to be there would only look like its owner moving.
            if self.foreign_lock is None and not self.contended:
                token = random.randrange(self.adapter.token_limit)
                self.token = token  # it may be there from now on, whatever comes back
                if self._send(self.adapter.claim(token)).ok:
                    return True
                self.token = None
            if self._lock_owner_died():
                return True
            if self.token is None and self._budget_spent():
                return False
        return True

    def _lock_owner_died(self) -> bool:
        """Looks at the lock of another. True: its owner is gone, and this run has the lock now."""
        system = self._read_markers()
        if system.markers != (() if self.marker is None else (self.marker,)):
            raise _PositionChanged
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
            if now - held.since < self.takeover_s:
                self.clock.sleep(_POLL_S)
                return False
        self.token = random.randrange(self.adapter.token_limit)
        if not self._send(self.adapter.take_over(self.marker, self.token)).ok:
            raise _PositionChanged
        self.foreign_lock = None
        if self.marker is None:
            return True
        raised = self.marker._replace(fence=self.marker.fence + 1)
        markers = self._read_system().markers
        if markers != (raised,):
            # A request of the old owner was still under way and has landed. We have applied nothing, so its marker
            # is the true one and ours goes.
            if raised in markers:
                self._send(self.adapter.drop_marker(raised))
            raise _PositionChanged
        self.marker = raised
        return True

    def _release(self) -> None:
        if self.token is not None:
            self._send(self.adapter.release_claim(self.token))
            self.token, self.confirmed = None, False

    def _keep_lock(self, fate: RequestOutcome) -> None:
        """A request with an unknown end may need the lock: it stays in the worker, and this is what to know of it."""
        self.known = False
        # An unknown end that the transport does not watch (a proxy gave up) is like that of a stranger's request.
        if self.token is not None and (fate is not RequestOutcome.UNKNOWN or not self.transport.settled()):
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
        end, size, last = at, 0, min(len(entries), at + self.merge_transactions)
        while end < last:
            size += len(entries[end].payload)
            if size > self.merge_bytes and end > at:
                break
            end += 1
        return end

    def _apply_batch(self, batch: list[LogEntry]) -> None:
        response = self._send_batch(batch)
        if response is None:
            return
        if len(batch) > 1:
            # One of them is refused. The good ones before it land; which one it is, is found by being alone.
            for entry in batch:
                self._apply_batch([entry])
            return
        entry = batch[0]
        if _is_noop(entry):
            raise UnexpectedAnswer("moving the position", response)
        if self.marker is not None and not self._is_at(self.marker):
            raise _PositionChanged
        raise _TransactionRefused(Refusal(entry.index, entry.txid, response.status, response.text))

    def _send_batch(self, batch: list[LogEntry]) -> WorkerResponse | None:
        """One request for the batch. None: applied. Else the worker's refusal of something inside."""
        last = batch[-1]
        new = (self.marker or EMPTY_MARKER)._replace(position=Position(self.epoch(), last.index, last.hash))
        operations = [StoreOperation(e.kind, e.payload) for e in batch if not _is_noop(e)]
        lock, release = LockAction.NONE, False
        if self.token is not None:
            lock = LockAction.KEEP if self.confirmed else LockAction.CONFIRM
            release = last.index >= self.target
        request = self.adapter.apply(operations, self.marker, new, lock=lock, token=self.token or 0, release=release)
        try:
            response = self._send(request)
        except Unreachable as fault:
            if fault.fate is RequestOutcome.NOT_SENT or not self._was_applied(new):
                raise
        else:
            verdict = self.adapter.parse_apply_result(response)
            if verdict is ApplyResult.REFUSED:
                return response
            if verdict is not ApplyResult.APPLIED:
                raise _LockContended if verdict is ApplyResult.CONTENDED else _PositionChanged
        self.marker, self.known = new, True
        self.applied += len(batch)
        self.confirmed = True
        if release:
            self.token, self.confirmed = None, False
        return None

    def _was_applied(self, new: MarkerPosition) -> bool:
        """Whether a request without an answer has been carried out; the worker may well be gone."""
        try:
            return self._is_at(new)
        except Unreachable:
            return False


def _is_noop(entry: LogEntry) -> bool:
    return bool(entry.noop) or entry.kind in CONTROL_KINDS
