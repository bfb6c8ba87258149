"""What decides which worker serves a read: the reads in progress, and how far a worker must have executed the log."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

from txlog.runtime.applied_history import AppliedHistory
from txlog.runtime.durability_tracker import DurabilityTracker
from txlog.runtime.watermark import Watermark
from txlog.runtime.worker_state import KnownWorkers


class DurationCounter:
    """The number of events since this process began, and their total duration in milliseconds."""

    def __init__(self) -> None:
        self.total = 0
        self.took_ms = 0.0

    def add(self, took_ms: float, many: int = 1) -> None:
        """Count ``many`` events that took ``took_ms`` milliseconds together."""
        self.total += many
        self.took_ms += took_ms

    @property
    def mean_ms(self) -> float:
        """The mean duration; 0 before the first event."""
        return self.took_ms / self.total if self.total else 0.0


class ReadBalance:
    """``active_reads``: reads of clients in progress, by worker. ``completed_reads``: those that a worker has
    answered."""

    def __init__(self, workers: KnownWorkers, durability: DurabilityTracker) -> None:
        self.active_reads: Counter[str] = Counter()
        self.completed_reads = DurationCounter()
        self.applied_history = AppliedHistory()
        self.worker_watermarks: dict[str, Watermark] = {}
        """Positions of the workers that a request waits or has waited for (:meth:`wait_any_at`)."""
        self._min_index = 0
        self._workers = workers
        self._durability = durability

    def raise_min_index(self, index: int) -> None:
        """Require this index of later reads: a client has received a result that a local worker computed there."""
        self._min_index = max(self._min_index, index)

    def min_index(self) -> int:
        """The least index at which a worker may serve reads like the most advanced one. It covers every index that a
        client has seen, and the lag stays small (:data:`txlog.runtime.applied_history.READ_LAG_S`)."""
        return max(min(self._min_index, self._durability.applied.value), self.applied_history.lower_bound())

    async def wait_any_at(self, needed: Mapping[str, int], seconds: float) -> bool:
        """Wait until one of these workers is known to be at its index. False after ``seconds``."""
        reached: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        for name, index in needed.items():
            worker = self._workers.local.get(name)
            if worker is not None:
                mark = self.worker_watermarks.setdefault(name, Watermark())
                mark.move_to(worker.index)
                mark.add_waiter(index, reached)
        return await self._durability.wait_for(reached, seconds)

    def move_watermarks(self) -> None:
        """Move the watermarks of the workers to their reported positions."""
        for name, mark in self.worker_watermarks.items():
            mark.move_to(self._workers.local[name].index)

    def remove(self, name: str) -> None:
        """A worker was removed: all waits for it end."""
        if (mark := self.worker_watermarks.pop(name, None)) is not None:
            mark.abort_waiters()
