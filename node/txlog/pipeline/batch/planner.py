"""In the running application: who looks for workers that a batch brings up to the log sooner than the stream.

A thread of the driver. It asks a master how far the workers are, as everybody may; a worker that is far behind, or in
which a batch broke off, gets a batch in the application's own Spark, one worker at a time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from txlog.apply import State
from txlog.client import Masters, Worker
from txlog.config.process import PipelineConfig, WorkerConfig
from txlog.model.errors import TxLogError
from txlog.pipeline.batch.catching_up import CatchUp, Ended
from txlog.pipeline.batch.engine import Engine, Spark
from txlog.pipeline.batch.planning import estimate, plan
from txlog.pipeline.lanes import Turn
from txlog.pipeline.reports import Reports

log = logging.getLogger(__name__)

LOOK_S = 2.0
AGAIN_S = (10.0, 300.0)
"""First and longest wait before a worker whose batch failed gets another one."""
TURN_S = 60.0
"""For the lane that applies to the worker now: it gives way between two applications."""
LARGE = 100
"""Operations in one transaction that are thought possible before the log is asked."""


class Planner:
    """``engine``: made anew for each batch. One thread."""

    def __init__(self, config: PipelineConfig, engine: Callable[[], Engine], stop: threading.Event) -> None:
        self._config, self._engine, self._stop = config, engine, stop
        self._masters = Masters(config.masters, 5.0)
        self._reports: Reports | None = None
        self._not_before: dict[str, tuple[float, float]] = {}
        self._settled: dict[str, int] = {}
        """Worker to the index up to which the stream is the better way, as was found out."""

    def run(self) -> None:
        """Until told to stop. Nothing that goes wrong here ends the application: the stream goes on."""
        while True:
            try:
                self.look()
            except TxLogError as nobody:
                log.debug("no plan: %s", nobody)
            except Exception:  # a fault of ours; the stream does the work meanwhile
                log.exception("planning")
            if self._stop.wait(LOOK_S):
                break
        self._masters.close()

    def look(self) -> list[tuple[str, Ended]]:
        """Give a batch to each worker that should have one; what they came to."""
        status = self._masters.status()
        done: list[tuple[str, Ended]] = []
        for worker in status.workers:
            config = self._reaching(worker)
            if config is not None and not self._stop.is_set() and self._is_due(worker, status.stable.index):
                done.append((worker.name, self._batch(config, worker.name)))
        return done

    def _reaching(self, worker: Worker) -> PipelineConfig | None:
        """With the store where the master says that it is: a worker may be added while the application runs. A master
        that does not say it means one that was configured."""
        if worker.url:
            store = WorkerConfig.model_validate({"name": worker.name, "url": worker.url})
            return self._config.model_copy(update={"workers": [store]})
        return self._config if worker.name in [each.name for each in self._config.workers] else None

    def _is_due(self, worker: Worker, stable: int) -> bool:
        if worker.hold is not None or time.monotonic() < self._not_before.get(worker.name, (0.0, 0.0))[0]:
            return False
        if worker.state == State.LOADING:
            return True  # it broke off: ours would not be looked at here
        if worker.state != State.WORKING or not worker.reported_at:
            return False
        at = worker.position.index if worker.position is not None else 0
        if (stable - at) * LARGE < self._config.batch_from or stable <= self._settled.get(worker.name, 0):
            return False
        made = plan(estimate(self._masters, at, stable), self._config.batch_from)
        if made.batch:
            log.info("%s is %s behind: %s", worker.name, f"{stable - at:,}", made.why)
        else:
            self._settled[worker.name] = stable + self._config.batch_from // 4
        return made.batch

    def _batch(self, config: PipelineConfig, worker: str) -> Ended:
        if self._reports is None:
            self._reports = Reports(self._config.masters)
        reports = self._reports
        with _turn(config, worker, self._stop):
            batch = CatchUp(
                config,
                worker,
                self._engine,
                lambda report: reports.tell(worker, report),
                tasks=self._config.batch_tasks,
            )
            ended = batch.run()
        if ended.error is None:
            self._not_before.pop(worker, None)
            rate = ended.entries / max(ended.seconds, 0.001)
            log.info("batch for %s: %s transactions in %.1f s, %.0f/s", worker, ended.entries, ended.seconds, rate)
        else:
            wait_s = min(AGAIN_S[1], 2 * self._not_before.get(worker, (0.0, AGAIN_S[0] / 2))[1])
            self._not_before[worker] = (time.monotonic() + wait_s, wait_s)
            log.warning("batch for %s: %s: %s", worker, ended.state, ended.error)
        return ended


@contextmanager
def _turn(config: PipelineConfig, worker: str, stop: threading.Event) -> Iterator[None]:
    """The turn of this worker on this machine; its lane gives way. On other machines the lock inside the worker does
    the same, more slowly."""
    turn = Turn(config.scratch_folder / "turns" / worker)
    until = time.monotonic() + TURN_S
    try:
        with turn.asked_for():
            while not turn.take() and time.monotonic() < until and not stop.wait(0.05):
                pass
            yield
            turn.give_back()
    finally:
        turn.close()  # whatever it has goes back with it


def start(spark: Any, config: PipelineConfig, stop: threading.Event) -> None:
    """The planner of an application with this Spark session."""
    planner = Planner(config, lambda: Spark(spark.sparkContext, config.batch_tasks), stop)
    threading.Thread(target=planner.run, name="txlog-planner", daemon=True).start()
