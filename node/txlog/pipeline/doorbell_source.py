"""The source ``txlog_doorbell``: wakes the stream when the log has grown. It has one row ``(worker, upto, store,
repository)`` for each worker that the masters list, since workers come and go while the application runs.

The offset is only a wake-up: ``{"pos": stable index, "tick": n}``. The real position is in the worker. So a lost
checkpoint, a replayed batch or two concurrent applications change nothing. ``tick`` wakes without a new transaction.
That happens when the master reports a lagging worker, when the application starts, and every :data:`RECHECK_S`. It also
happens when an idle worker is gone or has moved (:mod:`txlog.pipeline.worker_liveness`).

With several repositories the offset is ``{"bell": n}``, a count of the wake-ups of all logs, and only the repositories
that rang have rows (:mod:`txlog.pipeline.repository_bells`).

The reader lives in a Python process of the driver; one thread calls it.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from txlog.client import Doorbell, FailoverClient, WorkerStatus
from txlog.client.master_client import MasterClient
from txlog.config.process_config import PipelineConfig, WorkerConfig
from txlog.model.errors import TxLogError
from txlog.pipeline.gc_settings import freeze_gc
from txlog.pipeline.lost_log import report_to_waiting_masters
from txlog.pipeline.progress_reporter import report_once
from txlog.pipeline.repository_bells import RepositoryBells
from txlog.pipeline.repository_configs import FIRST_REPOSITORY, repository_configs
from txlog.pipeline.worker_liveness import LivenessMonitor

log = logging.getLogger(__name__)

SCHEMA = "worker string, upto bigint, store string, repository string"
CONFIG_OPTION = "config"
"""The option of source and sink that holds the whole :class:`PipelineConfig` as JSON."""

RECHECK_S = 30.0
"""Interval after which an idle application checks all workers. A micro-batch costs about 0.1 s of CPU, so this is well
under 1 % of a core."""

DOORBELL_WAIT_S = 2.0
"""Longest wait of one doorbell request while workers are watched, and so the longest delay of the watch's alarm."""

PROGRESS_POLL_S = 0.25
"""The same while a working worker catches up. Only the next answer shows that it has arrived, and it is not watched
before. New transactions wake the stream themselves, so this applies to the last one."""

NO_MASTER_RETRY_S = 1.0
"""The wait before the next attempt after all masters failed at once."""


@dataclass
class WorkerRange(InputPartition):  # type: ignore[misc]  # pyspark is not followed
    """Bring this worker up to this index of the log, as far as possible. ``store``: its :class:`WorkerConfig` as JSON;
    empty for one of the application's configuration."""

    worker: str
    upto: int
    store: str = ""


class WakeupPoller:
    """The state of the source between two wake-ups. Independent of Spark, so that tests can use it.

    A master's tick is its own count and restarts with the master. The offset's tick is the application's, and grows
    whenever a master's tick has changed.
    """

    def __init__(
        self,
        masters: FailoverClient,
        workers: Sequence[str],
        poll_s: float,
        watch: LivenessMonitor | None = None,
        clock: Any = time.monotonic,
        on_no_master: Callable[[], object] = lambda: None,
    ) -> None:
        self._masters = masters
        self._on_no_master = on_no_master
        self._workers = dict.fromkeys(workers, "")
        self._watch = watch
        self._polls = math.ceil(poll_s / DOORBELL_WAIT_S) if watch else 1
        self._poll_s = poll_s / self._polls
        self._clock = clock
        self._ticks: dict[str, int] = {}
        self._pauses: Mapping[str, int] = {}
        self._recheck_at = clock()  # at once: the application checks every worker when it starts
        self._no_master = False
        self._catching_up = False

    def wait(self, pos: int, tick: int) -> tuple[int, int]:
        """The next ``(pos, tick)``, after at most ``poll_s``; unchanged when nothing happened. Never raises for
        unreachable masters: their logs wait, and so does the source."""
        for _ in range(self._polls):
            due = self._recheck_at - self._clock()
            piece = min(due, self._poll_s, PROGRESS_POLL_S) if self._catching_up else min(due, self._poll_s)
            try:
                url, bell = self._masters.call_first_available(
                    lambda master: self._request_doorbell(master, pos, max(0.0, piece))  # noqa: B023 - called at once
                )
            except TxLogError as unreachable:
                if not self._no_master:
                    log.warning("no master answers: %s", unreachable)
                self._no_master = True
                self._on_no_master()
                time.sleep(NO_MASTER_RETRY_S)
                return pos, tick
            if self._no_master:
                log.info("a master answers again")
                self._no_master = False
            if self._has_work(url, bell, pos):
                self._recheck_at = self._clock() + RECHECK_S
                return bell.stable.index, tick + 1
        return pos, tick

    def _has_work(self, url: str, bell: Doorbell, pos: int) -> bool:
        """Whether a micro-batch has something to do."""
        self._pauses = {w.name: w.hold for w in bell.workers if w.hold is not None}
        listed = {w.name: _store_config_json(w) for w in bell.workers}
        changed, self._workers = listed.keys() != self._workers.keys(), listed
        moved = self._ticks.get(url, 0) != bell.tick
        self._ticks[url] = bell.tick
        has_alarm = False
        if self._watch is not None:
            self._catching_up = self._watch.set_expected(bell.stable.index, bell.workers)
            has_alarm = self._watch.take_alarm()
        return bell.stable.index != pos or moved or has_alarm or changed or bool(self._clock() >= self._recheck_at)

    def _request_doorbell(self, master: MasterClient, pos: int, timeout_s: float) -> tuple[str, Doorbell]:
        return master.url, master.doorbell(pos, self._ticks.get(master.url, 0), timeout_s)

    def ranges(self, upto: int) -> list[WorkerRange]:
        """One for each worker, limited by the pauses in the last answer."""
        return [
            WorkerRange(name, min(upto, self._pauses.get(name, upto)), store) for name, store in self._workers.items()
        ]


def _store_config_json(worker: WorkerStatus) -> str:
    """Where a master reports no URL for a worker, the configured one counts."""
    if not worker.url:
        return ""
    fields = {"name": worker.name, "url": worker.url, "engine": worker.engine or "oxigraph"}
    return WorkerConfig.model_validate(fields).model_dump_json()


@dataclass
class RepositoryRange(InputPartition):  # type: ignore[misc]
    """Bring these workers of a repository up to their indexes."""

    repository: str
    workers: list[WorkerRange]


def _start_poller(config: PipelineConfig) -> tuple[WakeupPoller, LivenessMonitor]:
    """What waits for the log of one repository, and watches its idle workers."""
    watch = LivenessMonitor(config.workers, partial(report_once, config.masters))
    watch.start()
    poller = WakeupPoller(
        FailoverClient(config.masters, timeout_s=2.0),
        [w.name for w in config.workers],
        config.poll_s,
        watch,
        on_no_master=partial(report_to_waiting_masters, config),
    )
    return poller, watch


class DoorbellReader(DataSourceStreamReader):  # type: ignore[misc]
    """Spark's interface to :class:`WakeupPoller`. An offset is ``{"pos": stable index, "tick": count}``, with the
    tick of the poller."""

    def __init__(self, config: PipelineConfig) -> None:
        self._config = config
        # created on first use: connections cannot be pickled
        self._poller: WakeupPoller | None = None
        self._watch: LivenessMonitor | None = None

    @property
    def poller(self) -> WakeupPoller:
        """The poller of this process. The first use starts it and the liveness monitor."""
        if self._poller is None:
            self._poller, self._watch = _start_poller(self._config)
        return self._poller

    def stop(self) -> None:
        """Spark calls this when the query ends: the liveness monitor stops."""
        if self._watch is not None:
            self._watch.stop()

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """The offset before the first entry of the log. A checkpoint replaces it after a restart."""
        return {"pos": 0, "tick": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Block until there is work, for at most the poll interval. An equal offset starts no micro-batch."""
        pos, tick = self.poller.wait(start["pos"], start["tick"])
        return {"pos": pos, "tick": tick}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """One :class:`WorkerRange` for each worker."""
        return self.poller.ranges(end["pos"])

    def read(self, partition: InputPartition) -> Iterator[tuple[str, int, str, str]]:
        """On an executor: the one row of a partition, as in :data:`SCHEMA`."""
        assert isinstance(partition, WorkerRange)
        freeze_gc()
        yield partition.worker, partition.upto, partition.store, FIRST_REPOSITORY


class RepositoriesReader(DataSourceStreamReader):  # type: ignore[misc]
    """Spark's interface to :class:`RepositoryBells`, for an application with several repositories."""

    def __init__(self, config: PipelineConfig) -> None:
        self._config = config
        # created on first use: connections and threads cannot be pickled
        self._bells: RepositoryBells[WorkerRange] | None = None
        self._watches: list[LivenessMonitor] = []

    @property
    def bells(self) -> RepositoryBells[WorkerRange]:
        """The bells of this process. The first use starts them and the liveness monitors."""
        if self._bells is None:
            pollers: dict[str, WakeupPoller] = {}
            for name, config in repository_configs(self._config).items():
                pollers[name], watch = _start_poller(config)
                self._watches.append(watch)
            self._bells = RepositoryBells(pollers)
        return self._bells

    def stop(self) -> None:
        """Spark calls this when the query ends: the threads stop."""
        for watch in self._watches:
            watch.stop()
        if self._bells is not None:
            self._bells.stop()

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """The offset before the first wake-up."""
        return {"bell": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Block until a log wakes the stream, for at most the poll interval. An equal offset starts no micro-batch."""
        return {"bell": self.bells.wait(start["bell"], self._config.poll_s)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """One partition for each repository that rang: a task waits for its workers together."""
        return [RepositoryRange(*each) for each in self.bells.ranges(start["bell"], end["bell"]).items()]

    def read(self, partition: InputPartition) -> Iterator[tuple[str, int, str, str]]:
        """On an executor: the rows of a partition, as in :data:`SCHEMA`."""
        assert isinstance(partition, RepositoryRange)
        freeze_gc()
        for each in partition.workers:
            yield each.worker, each.upto, each.store, partition.repository


class DoorbellSource(DataSource):  # type: ignore[misc]
    """``spark.readStream.format("txlog_doorbell").option("config", <PipelineConfig as JSON>)``."""

    @classmethod
    def name(cls) -> str:
        """The format name under which Spark registers this source."""
        return "txlog_doorbell"

    def schema(self) -> str:
        """The columns of :meth:`DoorbellReader.read`, as DDL."""
        return SCHEMA

    def streamReader(self, schema: Any) -> DoorbellReader | RepositoriesReader:  # noqa: N802
        """The reader for the :class:`PipelineConfig` in the option :data:`CONFIG_OPTION`."""
        freeze_gc()
        config = PipelineConfig.model_validate_json(self.options[CONFIG_OPTION])
        return RepositoriesReader(config) if config.repositories else DoorbellReader(config)
