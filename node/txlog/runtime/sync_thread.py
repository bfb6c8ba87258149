"""The one thread that writes and fsyncs.

A queue and one wake-up of the loop, rather than ``run_in_executor``: no future and no work item for each commit.
Measured: ``README.md``.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from txlog.runtime.executor import SyncTask
from txlog.runtime.scheduler_hints import request_short_timeslice


class SyncRunner:
    """Runs one sync at a time away from the loop's turn. ``done(error)`` is called on the loop's thread after each
    sync; ``error`` is what the sync raised. ``last_sync_s`` is the duration of the last sync in seconds, without the
    handovers between threads. ``timer``: seconds."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        done: Callable[[BaseException | None], None],
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._loop = loop
        self._done = done
        self._timer = timer
        self.last_sync_s = 0.0

    def run(self, sync: SyncTask) -> None:
        """Queue one sync."""
        raise NotImplementedError

    def close(self, timeout_s: float) -> None:
        """End when the queued syncs have run, or after ``timeout_s``."""
        raise NotImplementedError

    def _run_sync(self, sync: SyncTask) -> bool:
        """Run one sync and report it to the loop; False when the loop is closed and needs no result."""
        error: BaseException | None = None
        began = self._timer()
        try:
            sync.run()
        except BaseException as wrong:  # noqa: BLE001 - handed to the owner, who ends the process by its name
            error = wrong
        self.last_sync_s = self._timer() - began
        try:
            self._loop.call_soon_threadsafe(self._done, error)
        except RuntimeError:
            return False
        return True


class SyncThread(SyncRunner):
    """A thread of its own, which waits for syncs."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        done: Callable[[BaseException | None], None],
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__(loop, done, timer)
        self._jobs: SimpleQueue[SyncTask | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run_thread, name="journal-sync", daemon=True)
        self._thread.start()

    def run(self, sync: SyncTask) -> None:
        """Queue one sync."""
        self._jobs.put(sync)

    def close(self, timeout_s: float) -> None:
        """End the thread when it has run its queued jobs, or after ``timeout_s``."""
        self._jobs.put(None)
        self._thread.join(timeout_s)

    def _run_thread(self) -> None:
        request_short_timeslice()
        while (sync := self._jobs.get()) is not None and self._run_sync(sync):
            pass
