"""Runs the tasks: in Spark, or in this process for a log that fits into its memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

from txlog.pipeline.batch.bucket_load import load_bucket
from txlog.pipeline.batch.log_range_reader import BucketMessage, read_ranges
from txlog.pipeline.batch.task_messages import BucketPiece, BucketResult, LoadJob, LogRange, TaskFault, UpdateIndexes
from txlog.workers.adapter import Transport


class TaskRunner(Protocol):
    """Runs the tasks of a job."""

    def run(self, job: LoadJob, ranges: Sequence[LogRange]) -> list[BucketResult]:
        """Reads all ``ranges``, then loads all buckets; returns the result of each bucket. Loading begins after
        everything has been read."""


class SparkRunner:
    """Runs ``tasks`` concurrently, out of all slots of the application; the stream of the other workers keeps the rest.

    RDDs, not data frames: the data is pieces of some ten kilobytes that the JVM need not parse, so nothing of Spark SQL
    must be loaded, planned or compiled (docs/decisions/0010).
    """

    def __init__(self, context: Any, tasks: int) -> None:
        self._context, self._tasks = context, tasks

    def run(self, job: LoadJob, ranges: Sequence[LogRange]) -> list[BucketResult]:
        slices = min(self._tasks, len(ranges))
        found: list[BucketResult] = (
            self._context.parallelize(_partition(ranges, slices), slices)
            .flatMap(partial(read_ranges, job))
            .partitionBy(job.buckets, _identity)
            .mapPartitions(partial(_load_partition, job))
            .coalesce(self._tasks)
            .collect()
        )
        return found


class InProcessRunner:
    """Runs all in this process, one after another. ``transport``: to the worker, for tests that lose requests."""

    def __init__(self, transport: Transport | None = None) -> None:
        self._transport = transport

    def run(self, job: LoadJob, ranges: Sequence[LogRange]) -> list[BucketResult]:
        buckets: list[list[BucketPiece | UpdateIndexes | TaskFault]] = [[] for _ in range(job.buckets)]
        for bucket, message in read_ranges(job, list(ranges)):
            buckets[bucket].append(message)
        return [load_bucket(job, messages, self._transport) for messages in buckets]


def _partition(ranges: Sequence[LogRange], slices: int) -> list[list[LogRange]]:
    """Neighbours together: a task reads one contiguous run."""
    size, more = divmod(len(ranges), slices)
    dealt: list[list[LogRange]] = []
    at = 0
    for number in range(slices):
        end = at + size + (number < more)
        dealt.append(list(ranges[at:end]))
        at = end
    return dealt


def _identity(bucket: int) -> int:
    return bucket


def _load_partition(job: LoadJob, messages: Iterable[BucketMessage]) -> Iterator[BucketResult]:
    yield load_bucket(job, (each for _, each in messages))
