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
from txlog.model.entry import Position
from txlog.model.errors import TxLogError
from txlog.workers import ADAPTERS
from txlog.workers.adapter import (
    EMPTY_MARKER,
    ApplyResult,
    LoadMarker,
    LockAction,
    MarkerPosition,
)
from txlog.workers.http_transport import HttpTransport

HELD_MODE = "held"
LOCK_WAIT_S = 2.0
RETRY_S = 5.0
"""After the begin of a body that failed, before another one is sent ahead."""
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
    earlier body may have landed, so the worker is at one of the two, and is not read."""

    reference: BulkReference
    since: MarkerPosition
    expected: MarkerPosition | LoadMarker | None
    new: MarkerPosition
    repeats: bool = False

    def waiting(self) -> BulkStep:
        """The report while the load goes on."""
        if self.repeats:
            why = "its store ended while a bulk load came in; it is loaded again"
            return BulkStep(None, WorkerState.UNREACHABLE, why)
        return BulkStep(None if self.since == EMPTY_MARKER else self.since)


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
        self._due: _DueLoad | None = None
        self._mark: LoadMarker | None = None
        """In the worker, or written to it by a request without an answer."""
        self._foreign: LoadMarker | None = None
        self._witness: StoreWitness | None = None
        self.loaded = ""
        """The id of the load that came in last by this process."""

    # -- preparation

    def prepare(self, wanted: BulkReference | None, cluster: bytes, *, is_next: bool = False) -> None:
        """Follows what the masters ask for: sends the body of this load ahead, or gives up one that no master asks for.
        ``is_next``: the load is next in the log, so :meth:`execute` sees to a body that failed."""
        self._cluster = cluster or self._cluster
        if self._mark is not None or self._due is not None or self._foreign is not None:
            return
        if wanted is None or self.why_not() is not None:
            self.drop()
        elif self._load != wanted or self._body is None:
            self._open_body(wanted)
        elif self._body.phase is not BodyPhase.FAILED:
            self._body.keep()
        elif not is_next and time.monotonic() > self._body.began_at + RETRY_S:
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
        repeats = self._due is not None and self._due.repeats
        return self._mark is not None or self._foreign is not None or repeats

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

    def _open_body(self, load: BulkReference) -> None:
        self.drop()
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
        return self._continue(due)

    def _continue(self, due: _DueLoad) -> BulkStep:
        if self._body is None or self._load != due.reference:
            self._open_body(due.reference)
        body = self._body
        if body is None or body.phase is BodyPhase.FAILED:
            error = self._failed if body is None else body.error
            self.drop()
            why = f"cannot load {due.reference.id}: {error}; it is tried again"
            return BulkStep(due.waiting().at, WorkerState.BLOCKED, why)
        if body.phase is BodyPhase.SENDING:
            return due.waiting()
        return self._begin_landing(due, body)

    def _begin_landing(self, due: _DueLoad, body: HeldBody) -> BulkStep:
        """Writes the mark and ends the body, in this order. The mark is guarded, so no other process ends one beside
        it; and its answer shows that the store lives."""
        mark = in_flight_mark(due.new.position, due.since)
        self._due, self._mark = due, mark
        if not self._replace(due.expected, mark):
            self._due = self._mark = None
            return BulkStep(None, moved=True)
        body.end()
        return due.waiting()

    def _replace(self, expected: MarkerPosition | LoadMarker | None, new: LoadMarker) -> bool:
        """Replaces what the worker has under the appliers' lock. False: it has something else."""
        into = RestoreTarget(self._worker.name, self._adapter, self._transport)
        token = WorkerLock(into, time.monotonic() + LOCK_WAIT_S).claim()
        request = self._adapter.apply([], expected, new, lock=LockAction.CONFIRM, token=token, release=True)
        answer = self._transport.send(request)
        if self._adapter.parse_apply_result(answer) is ApplyResult.APPLIED:
            return True
        self._transport.send(self._adapter.release_claim(token))
        return False

    # -- the body was ended, or another process has ended one

    def take_over(self, mark: LoadMarker, new: MarkerPosition, load: BulkReference | None) -> BulkStep:
        """The worker has the in-flight mark of a load. ``load``: of the log's entry there; None: it has another one."""
        since = mark.since or EMPTY_MARKER
        self.drop()
        self._mark, self._foreign, self._witness = None, mark, StoreWitness(self._worker.url)
        self._due = None if load is None else _DueLoad(load, since, mark, new)
        return self.advance()

    def advance(self) -> BulkStep:
        """Goes on with a load whose mark is in the worker."""
        if self._foreign is not None:
            return self._await_restart(self._foreign)
        if self._mark is None:
            assert self._due is not None, "is_busy"
            return self._continue(self._due)
        assert self._due is not None, "set with the mark"
        assert self._body is not None, "set with the mark"
        phase = self._body.phase
        if phase is BodyPhase.LANDED:
            return self._finish(self._due, self._mark)
        if phase is BodyPhase.REFUSED and self._due.since != EMPTY_MARKER:
            return self._undo(self._due, self._mark, self._body.error)
        if phase is BodyPhase.LANDING:
            return self._due.waiting()
        if phase is BodyPhase.HELD:
            return self._end_if_marked(self._due, self._mark, self._body)
        if phase is BodyPhase.CLOSED:
            return self._repeat(self._due, self._mark)
        return self.take_over(self._mark, self._due.new, self._due.reference)

    def _end_if_marked(self, due: _DueLoad, mark: LoadMarker, body: HeldBody) -> BulkStep:
        """There was no answer to the request with the mark."""
        if self._adapter.parse_is_at(self._transport.send(self._adapter.is_loading(mark))):
            body.end()
            return due.waiting()
        self._due = self._mark = None
        return BulkStep(None, moved=True)

    def _finish(self, due: _DueLoad, mark: LoadMarker) -> BulkStep:
        answer = self._transport.send(self._adapter.end_loading(mark, due.new))
        if not answer.ok and not self._has(due.new):
            self._reset()
            return BulkStep(None, moved=True)
        self._reset()
        self.loaded = due.reference.id
        return BulkStep(due.new, done=True)

    def _undo(self, due: _DueLoad, mark: LoadMarker, error: str | None) -> BulkStep:
        """The store refused the whole body, so the worker is where it was."""
        self._transport.send(self._adapter.end_loading(mark, due.since))
        self._reset()
        return BulkStep(due.since, WorkerState.BLOCKED, f"cannot load {due.reference.id}: {error}; it is tried again")

    def _repeat(self, due: _DueLoad, mark: LoadMarker) -> BulkStep:
        """Nothing lands any more, and the load may be in. So it is repeated: it only adds."""
        again = landed_mark(mark)
        if not self._replace(mark, again):
            self._reset()
            return BulkStep(None, moved=True)
        self._reset()
        self._due = due._replace(expected=again, repeats=True)
        return self._due.waiting()

    def _await_restart(self, mark: LoadMarker) -> BulkStep:
        shown = None if mark.since in (None, EMPTY_MARKER) else mark.since
        assert self._witness is not None, "set with the mark"
        if not self._witness.has_ended(self._adapter.is_loading(mark)):
            why = "another process has ended the body of a bulk load, and it may still land: the store is restarted"
            return BulkStep(shown, WorkerState.UNREACHABLE, why, restart=True)
        due = self._due
        if due is None:
            self._replace(mark, landed_mark(mark))
            self._reset()
            return BulkStep(None, moved=True)
        return self._repeat(due, mark)

    def _has(self, marker: MarkerPosition) -> bool:
        return self._adapter.parse_is_at(self._transport.send(self._adapter.is_at(marker)))

    def _reset(self) -> None:
        if self._witness is not None:
            self._witness.close()
        self.drop()
        self._due = self._mark = self._foreign = self._witness = None


def next_marker(before: MarkerPosition, position: Position, cluster: bytes) -> MarkerPosition:
    """The marker of a worker that has executed one entry more."""
    return before._replace(position=position, cluster=cluster or before.cluster)
