"""Compacts a stream again and again, and deletes what is below its recovery window, in a thread: no file that is due
waits for it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from txlog.archive.compaction_plan import CompactionLimits
from txlog.archive.compactor import CompactionResult, Compactor
from txlog.archive.stream import Stream
from txlog.archive.window_plan import WindowPlan
from txlog.model.errors import TxLogError
from txlog.telemetry.event_log import EventLog

STOP_S: Final = 5.0
RETIRE_S: Final = 3600.0
"""Between two looks at what is below the recovery window."""
Retire = Callable[[], WindowPlan]


class StreamUpkeep:
    """Runs from the start until :meth:`stop`, every ``pause_s`` seconds. An error of the target is logged, and the next
    run goes on. ``retire``: deletes what is below the recovery window; None keeps everything."""

    def __init__(
        self, stream: Stream, log: EventLog, limits: CompactionLimits, pause_s: float, retire: Retire | None = None
    ) -> None:
        self._compactor = Compactor(stream, log, limits)
        self._log = log
        self._pause_s = pause_s
        self._retire = retire
        self._retired_at = 0.0
        self._results: deque[CompactionResult] = deque()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="compaction", daemon=True)
        self._thread.start()

    def take_results(self) -> list[CompactionResult]:
        """What was done since the last call."""
        found = []
        while self._results:
            found.append(self._results.popleft())
        return found

    def stop(self) -> None:
        """Ends after the present run; one that takes longer is cut off, as by a kill."""
        self._stopping.set()
        self._thread.join(STOP_S)

    def _run(self) -> None:
        while not self._stopping.wait(self._pause_s):
            try:
                self._results.append(self._compactor.run())
                self._retire_files()
            except TxLogError as error:
                self._log.warning_rate_limited("ArchiveNotCompacted", error.name, error=str(error))

    def _retire_files(self) -> None:
        now = time.monotonic()
        if self._retire is None or (self._retired_at and now - self._retired_at < RETIRE_S):
            return
        self._retired_at = now
        plan = self._retire()
        if plan.reason:
            self._log.warning_rate_limited("ArchiveNotRetired", "window", reason=plan.reason)
            return
        gone = [*plan.branches, *plan.files]
        self._results.append(CompactionResult([], [], gone))
        self._log.info("ArchiveRetired", floor=plan.floor, files=len(gone), bases=list(plan.bases))
