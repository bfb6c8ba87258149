"""Who runs the tasks: Spark; or this process, for a log that fits into its memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

from txlog.pipeline.batch.loading import load
from txlog.pipeline.batch.reading import Told, read
from txlog.pipeline.batch.words import Cuts, Fault, Job, Loaded, Piece, Range
from txlog.workers.base import Transport


class Engine(Protocol):
    def run(self, job: Job, ranges: Sequence[Range]) -> list[Loaded]:
        """Read all ``ranges``, then load all buckets; what became of each bucket. Loading begins when everything has
        been read."""


class Spark:
    """``tasks`` at once, of all the slots that the application has: the stream of the other workers keeps the rest.

    RDDs, not data frames: what travels is pieces of some ten kilobytes that the JVM need not look into, so nothing of
    Spark SQL has to be loaded, planned or compiled (docs/decisions/0010)."""

    def __init__(self, context: Any, tasks: int) -> None:
        self._context, self._tasks = context, tasks

    def run(self, job: Job, ranges: Sequence[Range]) -> list[Loaded]:
        slices = min(self._tasks, len(ranges))
        found: list[Loaded] = (
            self._context.parallelize(_dealt(ranges, slices), slices)
            .flatMap(partial(read, job))
            .partitionBy(job.buckets, _itself)
            .mapPartitions(partial(_load, job))
            .coalesce(self._tasks)
            .collect()
        )
        return found


class Here:
    """In this process, one after another. ``transport``: to the worker, for tests that lose requests."""

    def __init__(self, transport: Transport | None = None) -> None:
        self._transport = transport

    def run(self, job: Job, ranges: Sequence[Range]) -> list[Loaded]:
        buckets: list[list[Piece | Cuts | Fault]] = [[] for _ in range(job.buckets)]
        for bucket, told in read(job, list(ranges)):
            buckets[bucket].append(told)
        return [load(job, told, self._transport) for told in buckets]


def _dealt(ranges: Sequence[Range], slices: int) -> list[list[Range]]:
    """Neighbours together: a task reads one stretch."""
    size, more = divmod(len(ranges), slices)
    dealt: list[list[Range]] = []
    at = 0
    for number in range(slices):
        end = at + size + (number < more)
        dealt.append(list(ranges[at:end]))
        at = end
    return dealt


def _itself(bucket: int) -> int:
    return bucket


def _load(job: Job, told: Iterable[Told]) -> Iterator[Loaded]:
    yield load(job, (each for _, each in told))
