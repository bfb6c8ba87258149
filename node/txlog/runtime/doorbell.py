"""Wakes pipelines that wait for work: at once when a pause changes, and again and again while a worker lags."""

from __future__ import annotations

import asyncio

from txlog.runtime.durability_tracker import DurabilityTracker
from txlog.runtime.worker_state import KnownWorkers, RegisteredWorker

BACKOFF_S = (0.25, 2.0)
"""First and longest interval between two wake-ups for a worker that lags although nothing new arrives."""
POLL_S_MIN = 0.05
"""Least interval between two checks."""


class DoorbellBackoff:
    """The next wake-up for one worker. Times are in seconds of the event loop's clock."""

    def __init__(self) -> None:
        self.wait_s = BACKOFF_S[0]
        self.due = 0.0
        self.index = -1

    def restart(self, index: int, now: float) -> None:
        """The worker has moved to ``index``, or has nothing to do: begin with the first interval."""
        self.wait_s, self.index, self.due = BACKOFF_S[0], index, now + BACKOFF_S[0]


class WorkerDoorbell:
    """``tick`` is incremented with each wake-up, so that a pipeline notices one that it missed."""

    def __init__(self, workers: KnownWorkers, durability: DurabilityTracker) -> None:
        self.tick = 0
        self._workers = workers
        self._durability = durability
        self._backoffs: dict[str, DoorbellBackoff] = {}
        self._waiters: list[asyncio.Future[bool]] = []

    def remove(self, name: str) -> None:
        """A worker of this data centre was removed."""
        self._backoffs.pop(name, None)

    def is_lagging(self, worker: RegisteredWorker) -> bool:
        """Whether the worker is below the executable index (or its pause), or its position is unknown."""
        end = self._durability.executable.value
        paused_at = worker.paused_at
        upto = end if paused_at is None else min(paused_at, end)
        return worker.index < upto or worker.position is None

    def ring_if_due(self) -> float:
        """Wake the pipelines if a lagging worker is due. Returns the seconds until the next one may be due."""
        now = asyncio.get_running_loop().time()
        is_due = False
        nearest = BACKOFF_S[1]
        for name, worker in self._workers.local.items():
            backoff = self._backoffs.setdefault(name, DoorbellBackoff())
            if not self.is_lagging(worker):
                backoff.restart(worker.index, now)
                continue
            if worker.index != backoff.index:  # a pipeline applies to it: no wake-up is needed
                backoff.restart(worker.index, now)
            if now >= backoff.due:
                is_due = True
                backoff.wait_s = min(2 * backoff.wait_s, BACKOFF_S[1])
                backoff.due = now + backoff.wait_s
            nearest = min(nearest, backoff.due - now)
        if is_due:
            self.wake_all()
        return max(POLL_S_MIN, nearest)

    def add_waiter(self, future: asyncio.Future[bool]) -> None:
        """Resolve ``future`` at the next tick."""
        if len(self._waiters) & 63 == 63:
            self._waiters = [waiter for waiter in self._waiters if not waiter.done()]
        self._waiters.append(future)

    def wake_all(self) -> None:
        """Wake all pipelines that wait."""
        self.tick += 1
        waiters, self._waiters = self._waiters, []
        for future in waiters:
            if not future.done():
                future.set_result(True)
