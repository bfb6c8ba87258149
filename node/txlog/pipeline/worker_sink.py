"""The sink: on the executor, brings each worker of its rows up to the log.

A ``ForeachWriter``, not a Python data source: Spark would start a planning and a commit of a data source's writer in
Python processes of the driver for each micro-batch, and both have nothing to say here.
"""

from __future__ import annotations

from pyspark.sql import Row

from txlog.pipeline.gc_tuning import freeze_gc
from txlog.pipeline.worker_lanes import ApplyRequest, apply_workers


class WorkersSink:
    """``.writeStream.foreach(WorkersSink(<PipelineConfig as JSON>))``. Travels to each task by name and configuration;
    the lanes are the process'."""

    def __init__(self, config_json: str) -> None:
        self._config_json = config_json
        self._rows: list[ApplyRequest] = []

    def process(self, row: Row) -> None:
        """One worker and how far. Nothing is done yet: Spark throws the Python process of rows that were not all
        read away, and with it every connection (0.7 s for each micro-batch)."""
        self._rows.append(ApplyRequest(str(row[0]), int(row[1]), str(row[2])))

    def close(self, error: Exception | None) -> None:
        """All rows were read. Never raises for a fault of a worker or a master: what was applied is in the workers,
        how far they are was reported to the masters, and the micro-batch that follows goes on from there."""
        rows, self._rows = self._rows, []
        if rows and error is None:
            freeze_gc()
            apply_workers(self._config_json, rows)
