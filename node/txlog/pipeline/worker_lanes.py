"""Runs on the executor: one lane for each worker, in which the worker is brought up to the log independently of the
others.

A task sends a request to the lanes of its rows and waits at most :data:`TASK_WAIT_S` for them. A worker that catches
up, or hangs, continues in its lane while the micro-batch ends and the next one serves the others.

Spark assigns tasks to its Python processes in turn, so several processes know a worker. A *mutex*, a locked file in the
scratch folder, lets one process at a time apply to it, since some stores do not isolate overlapping updates. The file
also holds the highest requested index, so that a request is not lost on a lane that another process runs. A lane whose
request got no answer in time keeps the mutex until the connection shows its end, or the process dies. Neither is
needed for exactly-once, which the marker inside the worker guarantees: on several machines each has mutexes of its own.

Lanes live as long as their process; this module must be importable (not pickled) for that.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import msgspec

from txlog.config.process_config import PipelineConfig, WorkerConfig
from txlog.pipeline.apply_round import EMPTY_CACHE, Applier, WorkerCache
from txlog.pipeline.lane_traces import TracedApplier, open_lane_traces
from txlog.pipeline.progress_reporter import ProgressReporter
from txlog.pipeline.repository_configs import FIRST_REPOSITORY, repository_config
from txlog.pipeline.worker_applier import WorkerApplier
from txlog.telemetry.json_log import install_json_log

log = logging.getLogger(__name__)

TASK_WAIT_S = 0.25
"""How long a task waits for its lanes. Long enough to apply and report a usual transaction within its micro-batch. It
also bounds the latency that a lagging worker adds to the others."""

BATCH_BACKLOG = 100_000
"""Missing entries of a worker above which another machine may want to take it for a batch, ..."""
YIELD_S = 0.1
"""... for which the lock inside the worker stays free for so long after each application."""


AWAIT_S = 0.5
"""Interval at which a lane looks whether its request without an answer is over."""

KEEP_S = 1.0
"""Interval of reports while a worker is at its target and this process holds the body of a bulk load open, ..."""
KEEP_POLL_S = 0.02
"""... and how often the lane looks for a request of another process meanwhile."""


class ApplyRequest(NamedTuple):
    """A request to bring ``worker`` up to ``upto``. ``store``: its :class:`WorkerConfig` as JSON; empty for a
    configured one. ``repository``: whose log it follows, as in :mod:`txlog.pipeline.repository_configs`."""

    worker: str
    upto: int
    store: str = ""
    repository: str = FIRST_REPOSITORY


class WorkerMutex:
    """Lets one process of this machine apply to a worker. It also stores the requested index and the last owner's
    cache."""

    _TARGET_BYTES = 20

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._reservation_fd = os.open(path.with_name(path.name + ".asked"), os.O_RDWR | os.O_CREAT, 0o600)

    def set_target(self, upto: int) -> None:
        """The last request counts, even a lower one: a new cluster's log begins again at 0."""
        os.pwrite(self._fd, b"%0*d" % (self._TARGET_BYTES, upto), 0)

    def read_target(self) -> int:
        """The index requested last."""
        return int(os.pread(self._fd, self._TARGET_BYTES, 0) or b"0")

    def try_acquire(self) -> bool:
        """True when this process has it now; False when another process has it. The kernel releases it when the process
        dies."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Lets another process apply to the worker."""
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    @contextmanager
    def reserve(self) -> Iterator[None]:
        """While it is reserved, a lane yields at its next opportunity and does not acquire the mutex."""
        fcntl.flock(self._reservation_fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._reservation_fd, fcntl.LOCK_UN)

    def is_reserved(self) -> bool:
        """Whether a batch wants the worker. Never for long: the reservation is a lock that ends with its process."""
        try:
            fcntl.flock(self._reservation_fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._reservation_fd, fcntl.LOCK_UN)
        return False

    def close(self) -> None:
        """Closes the files; this also releases the mutex."""
        os.close(self._fd)
        os.close(self._reservation_fd)

    def read_cache(self) -> WorkerCache:
        """Only for the owner of the mutex. Empty where the last owner was killed while it wrote."""
        stored = os.pread(self._fd, os.fstat(self._fd).st_size, self._TARGET_BYTES)
        try:
            return msgspec.json.decode(stored, type=WorkerCache) if stored else EMPTY_CACHE
        except (msgspec.DecodeError, UnicodeDecodeError):
            return EMPTY_CACHE

    def write_cache(self, known: WorkerCache) -> None:
        """Only for the owner of the mutex."""
        stored = msgspec.json.encode(known)
        os.pwrite(self._fd, stored, self._TARGET_BYTES)
        os.ftruncate(self._fd, self._TARGET_BYTES + len(stored))


def mutex_path(config: PipelineConfig, worker: str) -> Path:
    """The file of a worker's mutex. The URL is in its name: what is known of one store, such as that it passed the
    probe, is not known of another one under the same name."""
    (url,) = [each.url for each in config.workers if each.name == worker]
    return config.scratch_folder / "turns" / f"{worker}-{blake2b(url.encode(), digest_size=8).hexdigest()}"


class WorkerLane:
    """One worker in this process. Tasks call ``request`` and ``wait``; everything else runs in the lane's own
    thread."""

    def __init__(
        self, worker: str, turn: WorkerMutex, apply: Applier, reports: ProgressReporter, budget_s: float
    ) -> None:
        self._worker = worker
        self._mutex = turn
        self._apply = apply
        self._reports = reports
        self._budget_s = budget_s
        self._pauses_known = False
        self._changed = threading.Condition()
        self._requested = 0
        self._served = 0
        threading.Thread(target=self._run, name=f"txlog-lane {worker}", daemon=True).start()

    def request(self, upto: int) -> int:
        """Request ``upto``; returns the number to :meth:`wait` for."""
        self._mutex.set_target(upto)
        with self._changed:
            self._requested += 1
            self._changed.notify_all()
            return self._requested

    def wait(self, number: int, deadline: float) -> bool:
        """Waits until this request was answered or until ``deadline`` (monotonic). Returns whether it was answered."""
        with self._changed:
            return self._changed.wait_for(lambda: self._served >= number, max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._requested > self._served)
                number = self._requested
            try:
                self._apply_while_requested()
            except Exception:  # a bug must not end the lane; the next request retries
                log.exception("worker %s", self._worker)
            with self._changed:
                self._served = max(self._served, number)
                self._changed.notify_all()

    def _apply_while_requested(self) -> None:
        while not self._mutex.is_reserved() and self._mutex.try_acquire():
            try:
                wanted, healthy = self._apply_to_target()
            finally:
                self._mutex.release()
            if not healthy or self._mutex.read_target() <= wanted:
                return  # a request came just before the release; no other lane would serve it

    def _apply_to_target(self) -> tuple[int, bool]:
        """Applies and reports until the worker reaches the target, is paused, or cannot continue. Returns the last
        target and whether it could continue."""
        before: int | None = None
        prepared = ""
        while True:
            wanted = self._mutex.read_target()
            hold = self._reports.pause_index(self._worker)
            # a new lane applies nothing before it knows the masters' pauses
            limit = 0 if not self._pauses_known else wanted if hold is None else min(wanted, hold)
            done = self._apply(limit, self._budget_s, self._mutex.read_cache())
            self._mutex.write_cache(done.cache)
            self._reports.send(self._worker, done.report)
            if done.awaits:
                # The mutex stays here until the request is over: another process would send the same beside it.
                self._pauses_known = True
                time.sleep(AWAIT_S)
                continue
            if not done.healthy:
                return wanted, False
            hold = self._reports.pause_index(self._worker)
            at = done.report.position.index if done.report.position else 0
            asked = self._reports.bulk_load(self._worker)
            if asked is not None and asked.id != prepared:
                prepared = asked.id  # another round, which begins it
                continue
            # at == before: the master that serves the pages lags the one that sent the request; it will send one too
            if at >= (wanted if hold is None else min(wanted, hold)) or at == before:
                if not done.keeps or not self._await_request(wanted):
                    return wanted, True
                before, self._pauses_known = None, True
                if self._mutex.is_reserved():
                    return wanted, False
                continue
            before = at if self._pauses_known else None
            self._pauses_known = True
            if self._mutex.is_reserved():
                return wanted, False
            if wanted - at > BATCH_BACKLOG:
                time.sleep(YIELD_S)

    def _await_request(self, served: int) -> bool:
        """Keeps the mutex at the target, for a body that this process alone can end. Returns after a request, or after
        :data:`KEEP_S`; False: another process is to have the worker."""
        with self._changed:
            self._served = self._requested
            self._changed.notify_all()
        until = time.monotonic() + KEEP_S
        while self._mutex.read_target() <= served and time.monotonic() < until:
            if self._mutex.is_reserved():
                return False
            time.sleep(KEEP_POLL_S)
        return not self._mutex.is_reserved()


class LaneSet:
    """The lanes of one application in this process."""

    def __init__(self, config: PipelineConfig, applier: Callable[[PipelineConfig, str], Applier]) -> None:
        self._config = config
        self._make_applier = applier
        self._reports = ProgressReporter(config.masters)
        self._traces = open_lane_traces(config)
        self._lanes: dict[tuple[str, str], WorkerLane] = {}

    def apply_workers(self, rows: Sequence[ApplyRequest], patience_s: float = TASK_WAIT_S) -> None:
        """Sends a request to each lane and waits, at most ``patience_s`` for all of them."""
        deadline = time.monotonic() + patience_s
        requests = [(self._lane_for(row), row.upto) for row in rows]
        numbers = [(lane, lane.request(upto)) for lane, upto in requests]
        for lane, number in numbers:
            lane.wait(number, deadline)

    def _lane_for(self, request: ApplyRequest) -> WorkerLane:
        """A worker that returns at another URL gets a new lane."""
        key = (request.worker, request.store)
        if key not in self._lanes:
            config = self._config
            if request.store:
                store = WorkerConfig.model_validate_json(request.store)
                config = config.model_copy(update={"workers": [store]})
            turn = WorkerMutex(mutex_path(config, request.worker))
            apply = self._make_applier(config, request.worker)
            if isinstance(apply, WorkerApplier):
                apply.follow_bulk_loads(lambda: self._reports.bulk_load(request.worker))
            if self._traces is not None:
                apply = TracedApplier(request.worker, apply, self._traces)
            self._lanes[key] = WorkerLane(request.worker, turn, apply, self._reports, config.budget_s)
        return self._lanes[key]


_lane_sets: dict[tuple[str, str], LaneSet] = {}
"""By configuration and repository."""


def apply_workers(config_json: str, rows: Sequence[ApplyRequest]) -> None:
    """Entry point of a task: see :meth:`LaneSet.apply_workers`. Each process creates the lanes of a repository once.
    An error in one repository does not end the task, and with it the query, of several."""
    for repository in dict.fromkeys(row.repository for row in rows):
        try:
            lanes = _lane_set(config_json, repository)
            lanes.apply_workers([row for row in rows if row.repository == repository])
        except Exception:
            if not PipelineConfig.model_validate_json(config_json).repositories:
                raise
            log.exception("repository %s", repository or "of the first log")


def _lane_set(config_json: str, repository: str) -> LaneSet:
    key = (config_json, repository)
    if key not in _lane_sets:
        config = PipelineConfig.model_validate_json(config_json)
        install_json_log(f"{config.data_center}-lanes")
        _lane_sets[key] = LaneSet(repository_config(config, repository), WorkerApplier)
    return _lane_sets[key]
