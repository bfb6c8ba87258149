"""The sink ``txlog_workers``: on the executor, brings each worker of its rows up to the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Row
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage

from txlog.pipeline.garbage import set_aside
from txlog.pipeline.lanes import drive
from txlog.pipeline.source import CONFIG_OPTION, SCHEMA


@dataclass
class Driven(WriterCommitMessage):  # type: ignore[misc]
    """The workers of this task. How far they are, stands in them and was reported to the masters."""

    workers: tuple[str, ...]


class WorkersWriter(DataSourceStreamWriter):  # type: ignore[misc]
    def __init__(self, config_json: str) -> None:
        self._config_json = config_json

    def write(self, iterator: Iterator[Row]) -> Driven:
        # drained before anything else: Spark throws the Python process of an undrained iterator away, and with it
        # every connection (0.7 s for each micro-batch)
        rows = [(str(row[0]), int(row[1])) for row in iterator]
        set_aside()
        drive(self._config_json, rows)
        return Driven(tuple(worker for worker, _ in rows))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing: what was applied is in the workers already."""
        set_aside()

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing: what was applied stays applied; the batch that follows goes on from there."""


class WorkersSink(DataSource):  # type: ignore[misc]
    """``.writeStream.format("txlog_workers").option("config", <PipelineConfig as JSON>)``."""

    @classmethod
    def name(cls) -> str:
        return "txlog_workers"

    def schema(self) -> str:
        return SCHEMA

    def streamWriter(self, schema: Any, overwrite: bool) -> WorkersWriter:  # noqa: N802
        set_aside()
        return WorkersWriter(self.options[CONFIG_OPTION])
