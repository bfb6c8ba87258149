"""Reports to every master of the data centre, none of which may slow a worker down.

One thread for each master sends the latest report of each worker. A master that does not answer is remembered as
dead: nobody waits for it, and its thread offers it the latest reports until it is back.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from txlog.client import MasterClient, WorkerReport
from txlog.model.errors import NotFound, TxLogError

log = logging.getLogger(__name__)

TIMEOUT_S = 1.0
"""For one report, connecting included in half of it: a report is a kilobyte to a master nearby."""

RETRY_S = (0.25, 4.0)
"""First and longest wait before a dead master is offered the reports again."""


class ReportQueue:
    """The reports to one master. Thread-safe."""

    def __init__(self, url: str) -> None:
        self._client = MasterClient(url, TIMEOUT_S, connect_s=TIMEOUT_S / 2)
        self._changed = threading.Condition()
        self._pending: dict[str, WorkerReport] = {}
        self._sending: str | None = None
        self._dead = False
        self.pauses: dict[str, int] = {}
        """By worker, as this master last answered."""
        threading.Thread(target=self._run, name=f"txlog-reports {url}", daemon=True).start()

    def put(self, worker: str, report: WorkerReport) -> None:
        with self._changed:
            self._pending[worker] = report
            self._changed.notify_all()

    def wait_until_answered(self, worker: str, deadline: float) -> None:
        """Return when the worker's report was answered, the master is dead, or at ``deadline`` (monotonic)."""
        with self._changed:
            while not self._dead and (worker in self._pending or self._sending == worker):
                left = deadline - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    return

    def _run(self) -> None:
        retry_s = RETRY_S[0]
        while True:
            with self._changed:
                while not self._pending:
                    self._changed.wait()
                worker, report = next(iter(self._pending.items()))
                del self._pending[worker]
                self._sending = worker
            try:
                hold = self._client.report_worker(worker, report)
            except NotFound:  # it was taken out, or this master has not heard of it yet: the next report tells
                hold = None
            except TxLogError as fault:
                with self._changed:
                    self._sending = None
                    self._pending.setdefault(worker, report)  # a newer one may have come meanwhile
                    if not self._dead:
                        log.warning("no reports to %s until it answers: %s", self._client.url, fault)
                    self._dead = True
                    self._changed.notify_all()
                time.sleep(retry_s)
                retry_s = min(retry_s * 2, RETRY_S[1])
                continue
            with self._changed:
                self._sending = None
                if hold is None:
                    self.pauses.pop(worker, None)
                else:
                    self.pauses[worker] = hold
                if self._dead:
                    log.info("reports to %s again", self._client.url)
                self._dead = False
                self._changed.notify_all()
            retry_s = RETRY_S[0]


class ProgressReporter:
    """All masters of the data centre."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._queues = [ReportQueue(url) for url in urls]

    def send(self, worker: str, report: WorkerReport, wait_s: float = TIMEOUT_S) -> None:
        """Report to every master; return when each has answered, is dead, or ``wait_s`` is over."""
        for desk in self._queues:
            desk.put(worker, report)
        deadline = time.monotonic() + wait_s
        for desk in self._queues:
            desk.wait_until_answered(worker, deadline)

    def pause_index(self, worker: str) -> int | None:
        """The lowest index at which any master asked to hold this worker, by its last answer; None: no hold."""
        asked = [desk.pauses[worker] for desk in self._queues if worker in desk.pauses]
        return min(asked, default=None)


def report_once(urls: Sequence[str], worker: str, report: WorkerReport) -> None:
    """Report to each master that answers now. One that does not is not told later, when it may no longer be so: others
    tell it, and the worker's lane does."""

    def to(url: str) -> None:
        with suppress(TxLogError), MasterClient(url, TIMEOUT_S, connect_s=TIMEOUT_S / 2) as master:
            master.report_worker(worker, report)

    with ThreadPoolExecutor(len(urls)) as pool:
        list(pool.map(to, urls))
