"""The sink: runs on the executor and brings each worker of its rows up to the log.

A ``ForeachWriter``, not a Python data source: for each micro-batch, Spark would start planning and commit of a data
source's writer in Python processes of the driver. Both would do nothing here.
"""

from __future__ import annotations

from pyspark.sql import Row

from txlog.pipeline.gc_settings import freeze_gc
from txlog.pipeline.worker_lanes import ApplyRequest, apply_workers


class WorkersSink:
    """``.writeStream.foreach(WorkersSink(<PipelineConfig as JSON>))``. Its pickled form for a task is class and
    configuration; the lanes belong to the process."""

    def __init__(self, config_json: str) -> None:
        self._config_json = config_json
        self._rows: list[ApplyRequest] = []

    def process(self, row: Row) -> None:
        """Records one worker and its target. It does no work yet: Spark discards a Python process whose rows were not
        all read, and with it every connection (0.7 s for each micro-batch)."""
        self._rows.append(ApplyRequest(str(row[0]), int(row[1]), str(row[2]), str(row[3])))

    def close(self, error: Exception | None) -> None:
        """All rows were read; applies them. Never raises for an error of a worker or of a master. The workers hold what
        was applied, the masters have the reports, and the next micro-batch continues from there."""
        rows, self._rows = self._rows, []
        if rows and error is None:
            freeze_gc()
            apply_workers(self._config_json, rows)
