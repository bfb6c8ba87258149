"""Finds workers of the running application that a batch brings up to the log sooner than the stream.

It is a thread of the driver. It asks a master for the workers' positions. A worker that lags far, or in which a batch
was interrupted, gets a batch in the application's own Spark, one worker at a time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from txlog.apply import WorkerState
from txlog.client import FailoverClient, WorkerStatus
from txlog.config.process_config import PipelineConfig, WorkerConfig
from txlog.model.errors import TxLogError
from txlog.pipeline.batch.catch_up import CatchUp, CatchUpResult
from txlog.pipeline.batch.cost_model import decide_batch, estimate_log
from txlog.pipeline.batch.task_runner import SparkRunner, TaskRunner
from txlog.pipeline.progress_reporter import ProgressReporter
from txlog.pipeline.worker_lanes import WorkerMutex, mutex_path

log = logging.getLogger(__name__)

POLL_S = 2.0
RETRY_S = (10.0, 300.0)
"""First and longest wait before a worker whose batch failed gets another one."""
MUTEX_TIMEOUT_S = 60.0
"""How long to wait for the lane that applies to the worker now: it yields between two applications."""
OPERATIONS_GUESS_MAX = 100
"""Assumed maximum of operations in one transaction before the log is sampled."""


class BatchScheduler:
    """``engine``: created for each batch. ``turn``: held by the one batch that the application runs. Not
    thread-safe."""

    def __init__(
        self,
        config: PipelineConfig,
        engine: Callable[[], TaskRunner],
        stop: threading.Event,
        turn: threading.Lock | None = None,
    ) -> None:
        self._config, self._make_runner, self._stop = config, engine, stop
        self._turn = turn or threading.Lock()
        self._masters = FailoverClient(config.masters, 5.0)
        self._reports: ProgressReporter | None = None
        self._not_before: dict[str, tuple[float, float]] = {}
        self._stream_until: dict[str, int] = {}
        """By worker, the index up to which the stream was found to be the better way."""

    def run(self) -> None:
        """Runs until it is stopped. No error here ends the application: the stream continues."""
        while True:
            try:
                self.schedule_batches()
            except TxLogError as unreachable:
                log.debug("no plan: %s", unreachable)
            except Exception:  # a bug; the stream does the work meanwhile
                log.exception("planning")
            if self._stop.wait(POLL_S):
                break
        self._masters.close()

    def schedule_batches(self) -> list[tuple[str, CatchUpResult]]:
        """Runs a batch for each worker that should have one; returns the results."""
        status = self._masters.status()
        done: list[tuple[str, CatchUpResult]] = []
        for worker in status.workers:
            config = self._config_for(worker)
            if config is not None and not self._stop.is_set() and self._is_due(worker, status.stable.index):
                ended = self._run_batch(config, worker.name)
                if ended is not None:
                    done.append((worker.name, ended))
        return done

    def _config_for(self, worker: WorkerStatus) -> PipelineConfig | None:
        """The worker's configuration with the URL that the master reports: a worker may be added while the application
        runs. Where a master reports none, the configured one counts."""
        if worker.url:
            fields = {"name": worker.name, "url": worker.url, "engine": worker.engine or "oxigraph"}
            store = WorkerConfig.model_validate(fields)
            return self._config.model_copy(update={"workers": [store]})
        return self._config if worker.name in [each.name for each in self._config.workers] else None

    def _is_due(self, worker: WorkerStatus, stable: int) -> bool:
        if worker.hold is not None or time.monotonic() < self._not_before.get(worker.name, (0.0, 0.0))[0]:
            return False
        if worker.state == WorkerState.LOADING:
            return True  # an interrupted batch; a running batch of this process cannot be seen here
        if worker.state != WorkerState.WORKING or not worker.reported_at:
            return False
        at = worker.position.index if worker.position is not None else 0
        if (stable - at) * OPERATIONS_GUESS_MAX < self._config.batch_from or stable <= self._stream_until.get(
            worker.name, 0
        ):
            return False
        made = decide_batch(estimate_log(self._masters, at, stable), self._config.batch_from)
        if made.batch:
            log.info("%s is %s behind: %s", worker.name, f"{stable - at:,}", made.reason)
        else:
            self._stream_until[worker.name] = stable + self._config.batch_from // 4
        return made.batch

    def _run_batch(self, config: PipelineConfig, worker: str) -> CatchUpResult | None:
        """None: the worker's lane keeps it, since a request of the lane may still be executed."""
        if self._reports is None:
            self._reports = ProgressReporter(self._config.masters)
        reports = self._reports
        with self._turn, _worker_mutex(config, worker, self._stop) as is_ours:
            if not is_ours:
                self._postpone(worker)
                log.info("no batch for %s yet: its lane has kept it for %g s", worker, MUTEX_TIMEOUT_S)
                return None
            batch = CatchUp(
                config,
                worker,
                self._make_runner,
                lambda report: reports.send(worker, report),
                tasks=self._config.batch_tasks,
            )
            ended = batch.run()
        if ended.left_updates:
            self._postpone(worker)
            log.info("batch for %s: the stream executes the updates after %s", worker, ended.marker)
        elif ended.error is None:
            self._not_before.pop(worker, None)
            rate = ended.entries / max(ended.seconds, 0.001)
            log.info("batch for %s: %s transactions in %.1f s, %.0f/s", worker, ended.entries, ended.seconds, rate)
        else:
            self._postpone(worker)
            log.warning("batch for %s: %s: %s", worker, ended.state, ended.error)
        return ended

    def _postpone(self, worker: str) -> None:
        """No batch for this worker for a while, twice as long as the last time."""
        wait_s = min(RETRY_S[1], 2 * self._not_before.get(worker, (0.0, RETRY_S[0] / 2))[1])
        self._not_before[worker] = (time.monotonic() + wait_s, wait_s)


@contextmanager
def _worker_mutex(config: PipelineConfig, worker: str, stop: threading.Event) -> Iterator[bool]:
    """The mutex of this worker on this machine; its lane yields. On other machines the lock inside the worker does the
    same, more slowly. False: the lane has kept it for :data:`MUTEX_TIMEOUT_S`."""
    turn = WorkerMutex(mutex_path(config, worker))
    until = time.monotonic() + MUTEX_TIMEOUT_S
    try:
        with turn.reserve():
            is_ours = turn.try_acquire()
            while not is_ours and time.monotonic() < until and not stop.wait(0.05):
                is_ours = turn.try_acquire()
            yield is_ours
    finally:
        turn.close()  # closing releases the mutex


def start_schedulers(spark: Any, configs: Sequence[PipelineConfig], stop: threading.Event) -> None:
    """Starts the scheduler of each repository of an application with this Spark session."""
    turn = threading.Lock()
    for config in configs:
        runner = partial(SparkRunner, spark.sparkContext, config.batch_tasks)
        planner = BatchScheduler(config, runner, stop, turn)
        threading.Thread(target=planner.run, name="txlog-planner", daemon=True).start()
