"""Bulk loads of one worker, as its lane executes them (decisions/0125).

The body of a load is sent to the store ahead, and held open there, while the worker goes on executing transactions.
When the load is next in the log, the marker is replaced by a mark that names the load, the body is ended, and the mark
is replaced by the new marker. Until the body is ended, everything may be lost. From then on it may land for as long as
the store's process lives. Who finds such a mark of another process has the store restarted first, and repeats the load.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from txlog.apply import WorkerState
from txlog.backup.dataset_load import RestoreTarget
from txlog.backup.target import BackupTarget, open_target
from txlog.backup.worker_lock import WorkerLock
from txlog.bulk.held_body import BodyPhase, HeldBody, StoreWitness, in_flight_mark, landed_mark
from txlog.bulk.load_files import LoadFolder
from txlog.bulk.load_writer import read_quads
from txlog.client.responses import BulkProgress
from txlog.config.process_config import TargetConfig, WorkerConfig
from txlog.model.bulk_entry import BulkReference
from txlog.model.errors import TxLogError
from txlog.workers import ADAPTERS
from txlog.workers.adapter import (
    EMPTY_MARKER,
    ApplyResult,
    LoadMarker,
    LockAction,
    MarkerPosition,
    WorkerResponse,
)
from txlog.workers.http_transport import HttpTransport

HELD_MODE = "held"
LOCK_WAIT_S = 2.0
RETRY_S = 5.0
"""After the begin of a body, or after the store has refused one, before the next body of the same load begins."""
_RESTARTING = "Restarting"


class BulkStep(NamedTuple):
    """What a worker reports while a load of it goes on. ``at``: its marker. ``done``: the load is in, at ``at``.
    ``restart``: the store has to be restarted. ``moved``: the marker is another one; look again."""

    at: MarkerPosition | None
    state: WorkerState = WorkerState.WORKING
    error: str | None = None
    done: bool = False
    restart: bool = False
    moved: bool = False


class _DueLoad(NamedTuple):
    """A load that is next. ``expected``: what the worker has now; ``new``: its marker after the load. ``repeats``: an
    earlier body may have landed, so the worker is at one of the two, is not read, and gets no marker before the load's
    own."""

    reference: BulkReference
    since: MarkerPosition
    expected: MarkerPosition | LoadMarker | None
    new: MarkerPosition
    repeats: bool = False

    def waiting(self) -> BulkStep:
        """The report while the load goes on."""
        if self.repeats:
            why = "a bulk load was interrupted while it came in; it is loaded again"
            return BulkStep(None, WorkerState.UNREACHABLE, why)
        return BulkStep(None if self.since == EMPTY_MARKER else self.since)

    def blocked(self, why: str | None) -> BulkStep:
        """The report of what is tried again."""
        text = f"cannot load {self.reference.id}: {why}; it is tried again"
        return BulkStep(self.waiting().at, WorkerState.BLOCKED, text)


class BulkLane:
    """The loads of one worker in this process. Not thread-safe. ``target``: where the parts are; None: this pipeline
    loads nothing."""

    def __init__(
        self,
        worker: WorkerConfig,
        transport: HttpTransport | None,
        target: TargetConfig | None,
        open_parts: Callable[[TargetConfig], BackupTarget] = open_target,
    ) -> None:
        self._worker, self._adapter = worker, ADAPTERS[worker.engine]
        self._transport = transport or HttpTransport(worker.url)
        self._target, self._open_parts = target, open_parts
        self._cluster = b""
        self._body: HeldBody | None = None
        self._load: BulkReference | None = None
        """What ``_body`` has."""
        self._failed: str | None = None
        self._retry: tuple[BulkReference, float] | None = None
        """No body of this load begins before this time (monotonic)."""
        self._lock: tuple[MarkerPosition | LoadMarker | None, WorkerLock] | None = None
        """The lock of the worker, claimed while it has this. It is kept until it is had: a dead owner is found out by
        its silence, which is longer than one call."""
        self._due: _DueLoad | None = None
        self._mark: LoadMarker | None = None
        """In the worker, or written to it by a request without an answer."""
        self._foreign: LoadMarker | None = None
        self._witness: StoreWitness | None = None
        self._has_ended = False
        """Whether the process that ``_foreign`` is of has ended. It does not begin again."""
        self.loaded = ""
        """The id of the load that came in last by this process."""

    # -- preparation

    def prepare(self, wanted: BulkReference | None, cluster: bytes, *, is_next: bool = False) -> None:
        """Follows what the masters ask for: sends the body of this load ahead, or gives up one that no master asks for.
        ``is_next``: the load is next in the log, so :meth:`execute` sees to a body that failed."""
        self._cluster = cluster or self._cluster
        if self._mark is not None or self._due is not None or self._foreign is not None:
            return
        if self._load != wanted:
            self.drop()
        if wanted is None or self.why_not() is not None:
            return
        if self._body is not None and self._body.phase is not BodyPhase.FAILED:
            self._body.keep()
        elif not is_next and self._may_begin(wanted):
            self._open_body(wanted)

    def why_not(self) -> str | None:
        """Why this worker can get no bulk load; None where it can."""
        if not self._adapter.capabilities.held_load:
            return f"the engine {self._worker.engine} cannot hold a load back; load with txlog load"
        if self._target is None:
            return "its pipeline has no target for parts, since no supervisor restarts its store"
        return None

    def drop(self) -> None:
        """Breaks off a body that was not ended."""
        if self._body is not None:
            self._body.drop()
        self._body = self._load = None

    @property
    def keeps_worker(self) -> bool:
        """Whether this process has a body of the worker, and so no other process should apply to it."""
        return self._body is not None and self._body.phase in (BodyPhase.SENDING, BodyPhase.HELD)

    @property
    def is_busy(self) -> bool:
        """Whether nothing else may be applied to the worker: :meth:`advance` goes on."""
        return self._mark is not None or self._foreign is not None or self.repeated is not None

    @property
    def repeated(self) -> LoadMarker | None:
        """The mark of a load that is repeated, and whose body this process has not ended. The log may have changed its
        mind about it."""
        due = self._due
        if due is None or not due.repeats or self._mark is not None or self._foreign is not None:
            return None
        assert isinstance(due.expected, LoadMarker), "repeats"
        return due.expected

    def progress(self) -> BulkProgress:
        """How far it is, for the report."""
        why = self.why_not()
        if why is not None:
            return BulkProgress(error=why)
        if self._foreign is not None:
            return BulkProgress(HELD_MODE, phase=_RESTARTING)
        if self._body is None or self._load is None:
            return BulkProgress(HELD_MODE, error=self._failed)
        phase = self._body.phase
        shown = phase.value if phase in (BodyPhase.SENDING, BodyPhase.HELD, BodyPhase.FAILED) else "Landing"
        return BulkProgress(HELD_MODE, self._load.id, shown, self._body.quads, self._body.error)

    def _may_begin(self, load: BulkReference) -> bool:
        return self._retry is None or self._retry[0] != load or time.monotonic() > self._retry[1]

    def _open_body(self, load: BulkReference) -> None:
        self.drop()
        self._retry = load, time.monotonic() + RETRY_S
        assert self._target is not None, "why_not() is None"
        try:
            folder = LoadFolder(self._open_parts(self._target), self._cluster.hex(), load.id)
        except TxLogError as unusable:
            self._failed = str(unusable)
            return
        self._failed, self._load = None, load
        self._body = HeldBody(self._worker.url, self._adapter.load(b""), lambda: read_quads(folder, load))

    # -- the load is next

    def execute(self, load: BulkReference, at: MarkerPosition | None, new: MarkerPosition) -> BulkStep:
        """The worker is right before the entry of this load, with the marker ``at``; ``new``: the marker after it."""
        why = self.why_not()
        if why is not None:
            return BulkStep(at, WorkerState.BLOCKED, f"cannot load {load.id}, which is next in the log: {why}")
        due = _DueLoad(load, at or EMPTY_MARKER, at, new)
        return self._continue(due, may_end=True)

    def _continue(self, due: _DueLoad, *, may_end: bool) -> BulkStep:
        if self._body is None or self._load != due.reference:
            if not self._may_begin(due.reference):
                return due.waiting() if self._failed is None else due.blocked(self._failed)
            self._open_body(due.reference)
        body = self._body
        if body is None or body.phase is BodyPhase.FAILED:
            self._failed = self._failed if body is None else body.error
            self.drop()
            return due.blocked(self._failed)
        body.keep()
        if body.phase is BodyPhase.SENDING or not may_end:
            return due.waiting()
        return self._begin_landing(due, body)

    def _begin_landing(self, due: _DueLoad, body: HeldBody) -> BulkStep:
        """Writes the mark and ends the body, in this order. The mark is guarded, so no other process ends one beside
        it; and its answer shows that the store lives."""
        mark = in_flight_mark(due.new.position, due.since)
        self._due, self._mark = due, mark
        refused = self._replace(due.expected, mark)
        if refused is not None:
            self._mark = None
            self._due = due if due.repeats and not refused.moved else None
            return refused
        return due.waiting() if body.end() else self.advance()

    def _replace(self, expected: MarkerPosition | LoadMarker | None, new: LoadMarker) -> BulkStep | None:
        """Replaces what the worker has under the appliers' lock. None: done. Otherwise what to report: it has something
        else, or its store refuses to write."""
        if self._lock is None or self._lock[0] != expected:
            into = RestoreTarget(self._worker.name, self._adapter, self._transport)
            self._lock = expected, WorkerLock(into, 0.0)
        self._lock[1].extend(time.monotonic() + LOCK_WAIT_S)
        token = self._lock[1].claim()
        self._lock = None
        request = self._adapter.apply([], expected, new, lock=LockAction.CONFIRM, token=token, release=True)
        answer = self._transport.send(request)
        result = self._adapter.parse_apply_result(answer)
        if result is ApplyResult.APPLIED:
            return None
        self._transport.send(self._adapter.release_claim(token))
        return self._refused(answer, expected) if result is ApplyResult.REFUSED else BulkStep(None, moved=True)

    def _refused(self, answer: WorkerResponse, has: MarkerPosition | LoadMarker | None) -> BulkStep:
        """The store can write nothing now, above all on a full disk. ``has``: what the worker has; a mark is no place
        at which it is read."""
        at = has if isinstance(has, MarkerPosition) else None
        why = f"the store refuses the mark of a bulk load, and it is tried again: {answer.status}: {answer.text[:300]}"
        return BulkStep(at, WorkerState.BLOCKED, why)

    # -- the body was ended, or another process has ended one

    def take_over(self, mark: LoadMarker, new: MarkerPosition, load: BulkReference | None) -> BulkStep:
        """The worker has the in-flight mark of a load. ``load``: of the log's entry there; None: it has another one."""
        since = mark.since or EMPTY_MARKER
        self._reset()
        self._foreign, self._witness = mark, StoreWitness(self._worker.url)
        self._due = None if load is None else _DueLoad(load, since, mark, new)
        return self.advance()

    def repeat(self, mark: LoadMarker, new: MarkerPosition, load: BulkReference) -> BulkStep:
        """The worker has the mark of a load that may be in, and of which nothing lands any more: another process has
        seen to that, and ended."""
        why = self.why_not()
        if why is not None:
            return BulkStep(None, WorkerState.BLOCKED, f"cannot load {load.id}, which may be in already: {why}")
        self._due = _DueLoad(load, mark.since or EMPTY_MARKER, mark, new, repeats=True)
        return self._due.waiting()

    def leave(self) -> BulkStep:
        """Leaves the mark of a repeated load in the worker: the log has another entry there, or has skipped the load.
        The load may be in, so the worker is off the log, which a batch finds out."""
        self._reset()
        return BulkStep(None, moved=True)

    def advance(self, *, may_end: bool = True) -> BulkStep:
        """Goes on with a load whose mark is in the worker. ``may_end``: the worker is not paused before it."""
        if self._foreign is not None:
            return self._await_restart(self._foreign)
        if self._mark is None:
            assert self._due is not None, "is_busy"
            return self._continue(self._due, may_end=may_end)
        assert self._due is not None, "set with the mark"
        assert self._body is not None, "set with the mark"
        phase = self._body.phase
        if phase is BodyPhase.LANDED:
            return self._finish(self._due, self._mark)
        if phase in (BodyPhase.REFUSED, BodyPhase.FAILED):
            return self._take_back(self._due, self._mark, self._body.error)
        if phase is BodyPhase.LANDING:
            # A store answers reads while a load lands. From one that does not, no client can read.
            self._is_marked(self._mark)
            return self._due.waiting()
        if phase is BodyPhase.HELD:
            return self._end_if_marked(self._due, self._mark, self._body)
        if phase is BodyPhase.CLOSED:
            return self._repeat(self._due, self._mark)
        return self.take_over(self._mark, self._due.new, self._due.reference)

    def _end_if_marked(self, due: _DueLoad, mark: LoadMarker, body: HeldBody) -> BulkStep:
        """There was no answer to the request with the mark."""
        if self._is_marked(mark):
            return due.waiting() if body.end() else self.advance()
        self._due = self._mark = None
        return BulkStep(None, moved=True)

    def _finish(self, due: _DueLoad, mark: LoadMarker) -> BulkStep:
        answer = self._transport.send(self._adapter.end_loading(mark, due.new))
        if not answer.ok and not self._has(due.new):
            if self._is_marked(mark):
                return self._refused(answer, mark)
            self._reset()
            return BulkStep(None, moved=True)
        self._reset()
        self.loaded = due.reference.id
        return BulkStep(due.new, done=True)

    def _take_back(self, due: _DueLoad, mark: LoadMarker, error: str | None) -> BulkStep:
        """Nothing of this body is in, or will be: the store refused it, or it broke off before its end."""
        self._retry, self._failed = (due.reference, time.monotonic() + RETRY_S), error
        if due.repeats or due.since == EMPTY_MARKER:
            # Of an earlier body all may be in; and there is no marker of an empty worker to return to.
            step = self._repeat(due, mark)
            return step if self._due is None or self._mark is not None else self._due.blocked(error)
        answer = self._transport.send(self._adapter.end_loading(mark, due.since))
        if not answer.ok and self._is_marked(mark):
            return self._refused(answer, mark)
        self._reset()
        return BulkStep(None, moved=True) if not answer.ok else due.blocked(error)

    def _repeat(self, due: _DueLoad, mark: LoadMarker) -> BulkStep:
        """Nothing lands any more, and the load may be in. So it is repeated: it only adds."""
        again = landed_mark(mark)
        refused = self._replace(mark, again)
        if refused is not None and not refused.moved:
            return refused
        self._reset()
        if refused is not None:
            return refused
        self._due = due._replace(expected=again, repeats=True)
        return self._due.waiting()

    def _await_restart(self, mark: LoadMarker) -> BulkStep:
        shown = None if mark.since in (None, EMPTY_MARKER) else mark.since
        assert self._witness is not None, "set with the mark"
        self._has_ended = self._has_ended or self._witness.has_ended(self._adapter.is_loading(mark))
        if not self._has_ended:
            why = "another process has ended the body of a bulk load, and it may still land: the store is restarted"
            return BulkStep(shown, WorkerState.UNREACHABLE, why, restart=True)
        due = self._due
        if due is None:
            refused = self._replace(mark, landed_mark(mark))
            return refused if refused is not None and not refused.moved else self.leave()
        return self._repeat(due, mark)

    def _is_marked(self, mark: LoadMarker) -> bool:
        return self._adapter.parse_is_at(self._transport.send(self._adapter.is_loading(mark)))

    def _has(self, marker: MarkerPosition) -> bool:
        return self._adapter.parse_is_at(self._transport.send(self._adapter.is_at(marker)))

    def _reset(self) -> None:
        if self._witness is not None:
            self._witness.close()
        self.drop()
        self._due = self._mark = self._foreign = self._witness = self._lock = None
        self._has_ended = False
