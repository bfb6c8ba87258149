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


class SyncThread:
    """``done(error)`` is called on the loop's thread after each :meth:`run`; ``error`` is what the sync raised.
    ``last_sync_s`` is the duration of the last sync in seconds, without the handovers between threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop, done: Callable[[BaseException | None], None]) -> None:
        self._loop = loop
        self._done = done
        self.last_sync_s = 0.0
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
        while (sync := self._jobs.get()) is not None:
            error: BaseException | None = None
            began = time.perf_counter()
            try:
                sync.run()
            except BaseException as wrong:  # noqa: BLE001 - handed to the owner, who ends the process by its name
                error = wrong
            self.last_sync_s = time.perf_counter() - began
            try:
                self._loop.call_soon_threadsafe(self._done, error)
            except RuntimeError:
                return  # the loop is closed: it needs no result
