"""Reports to every master of the data centre; no master may slow a worker down.

One thread for each master sends the latest report of each worker. A master that does not answer is marked as dead: no
lane waits for it, and its thread retries the latest reports for a while.

Several processes report one worker in turn, and a master takes the report that it receives last for the newest. So an
old one is dropped: the worker may have moved since. A master that is back learns positions from the other masters of
its data centre, or wakes the lanes, since it knows no position.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from txlog.client import MasterClient, WorkerReport
from txlog.client.responses import BulkRequest, PauseResponse
from txlog.model.errors import NotFound, TxLogError

log = logging.getLogger(__name__)
T = TypeVar("T")

TIMEOUT_S = 1.0
"""Time-out of one report, with half of it for the connection: a report is a kilobyte to a master nearby."""

RESEND_S = 20.0
"""Seconds for which a report is sent again to a master that does not answer. Lanes report at least every 30 s."""

BULK_ASK_S = 30.0
"""Seconds for which an answer asks for a bulk load: as long as a master keeps what it was asked for."""

PAUSE_KEPT_S = 15.0
"""Seconds for which the pauses of a master count that does not answer: longer than masters keep a pause for a look or a
repair. Who pauses a worker for longer asks every master."""

RETRY_S = (0.25, 4.0)
"""First and longest wait before the reports are sent again to a dead master."""


class ReportQueue:
    """The reports to one master. Thread-safe."""

    def __init__(self, url: str) -> None:
        self._client = MasterClient(url, TIMEOUT_S, connect_s=TIMEOUT_S / 2)
        self._changed = threading.Condition()
        self._pending: dict[str, tuple[WorkerReport, float]] = {}
        """The latest report of each worker, and when it was made, by the monotonic clock."""
        self._sending: str | None = None
        self._dead = False
        self._answered_at = time.monotonic()
        self._pauses: dict[str, int] = {}
        """The pauses by worker, from this master's last answer."""
        self.bulk_loads: dict[str, tuple[BulkRequest, float]] = {}
        """The bulk loads to prepare by worker, from this master's last answer, and when it came (monotonic)."""
        threading.Thread(target=self._run, name=f"txlog-reports {url}", daemon=True).start()

    def put(self, worker: str, report: WorkerReport) -> None:
        """Replaces the pending report of the worker."""
        with self._changed:
            self._pending[worker] = report, time.monotonic()
            self._changed.notify_all()

    def wait_until_answered(self, worker: str, deadline: float) -> None:
        """Returns when the worker's report was answered, the master is dead, or at ``deadline`` (monotonic)."""
        with self._changed:
            while not self._dead and (worker in self._pending or self._sending == worker):
                left = deadline - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    return

    def pause_index(self, worker: str) -> int | None:
        """Where this master pauses the worker; None: nowhere, or it has not answered for :data:`PAUSE_KEPT_S`."""
        is_gone = self._dead and time.monotonic() - self._answered_at > PAUSE_KEPT_S
        return None if is_gone else self._pauses.get(worker)

    def _run(self) -> None:
        retry_s = RETRY_S[0]
        while True:
            with self._changed:
                while not self._pending:
                    self._changed.wait()
                worker, (report, made_at) = next(iter(self._pending.items()))
                del self._pending[worker]
                self._sending = worker
            try:
                asked = self._client.report_worker(worker, report)
            except NotFound:  # the worker was removed, or this master does not know it yet: the next report shows which
                asked = PauseResponse()
            except TxLogError as fault:
                with self._changed:
                    self._sending = None
                    if time.monotonic() - made_at < RESEND_S:
                        self._pending.setdefault(worker, (report, made_at))  # unless a newer one came in the meantime
                    if not self._dead:
                        log.warning("no reports to %s until it answers: %s", self._client.url, fault)
                    self._dead = True
                    self._changed.notify_all()
                time.sleep(retry_s)
                retry_s = min(retry_s * 2, RETRY_S[1])
                continue
            with self._changed:
                self._sending = None
                self._answered_at = time.monotonic()
                _keep(self._pauses, worker, asked.hold)
                _keep(self.bulk_loads, worker, None if asked.bulk is None else (asked.bulk, time.monotonic()))
                if self._dead:
                    log.info("reports to %s again", self._client.url)
                self._dead = False
                self._changed.notify_all()
            retry_s = RETRY_S[0]


def _keep(answers: dict[str, T], worker: str, answer: T | None) -> None:
    if answer is None:
        answers.pop(worker, None)
    else:
        answers[worker] = answer


class ProgressReporter:
    """The report queues to all masters of the data centre."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._queues = [ReportQueue(url) for url in urls]

    def send(self, worker: str, report: WorkerReport, wait_s: float = TIMEOUT_S) -> None:
        """Sends a report to every master; returns when each has answered or is dead, or after ``wait_s``."""
        for queue in self._queues:
            queue.put(worker, report)
        deadline = time.monotonic() + wait_s
        for queue in self._queues:
            queue.wait_until_answered(worker, deadline)

    def pause_index(self, worker: str) -> int | None:
        """The lowest index at which any master pauses this worker, from the last answers; None: no pause."""
        asked = (queue.pause_index(worker) for queue in self._queues)
        return min((index for index in asked if index is not None), default=None)

    def bulk_load(self, worker: str) -> BulkRequest | None:
        """The bulk load that any master asks this worker to prepare, from the answers of the last :data:`BULK_ASK_S`;
        None: no load. A master that answers no more asks for nothing."""
        since = time.monotonic() - BULK_ASK_S
        answers = [queue.bulk_loads[worker] for queue in self._queues if worker in queue.bulk_loads]
        return next((asked for asked, at in answers if at > since), None)


def report_once(urls: Sequence[str], worker: str, report: WorkerReport) -> None:
    """Sends a report to each master, once. There is no retry, because the report may be outdated by then. Other masters
    forward it, and the worker's lane reports too."""

    def to(url: str) -> None:
        with suppress(TxLogError), MasterClient(url, TIMEOUT_S, connect_s=TIMEOUT_S / 2) as master:
            master.report_worker(worker, report)

    with ThreadPoolExecutor(len(urls)) as pool:
        list(pool.map(to, urls))
