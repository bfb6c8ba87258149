"""Reports to the masters how far the archiver is, in a thread of its own: a master that does not answer delays no file,
and a target that does not answer delays no report."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from txlog.archive.file_name import Node
from txlog.client.connection import MasterConnection
from txlog.client.json_calls import JsonCalls
from txlog.model.errors import NotFound, TxLogError
from txlog.telemetry.event_log import EventLog
from txlog.wire.archive_report import PLACES_REPORTED_MAX, ArchivePlace, ArchiveReport

REPORT_S: Final = 5.0
REQUEST_S: Final = 3.0
CONNECT_S: Final = 1.0
LAST_REPORT_S: Final = 5.0


def report_places(newest_first: Sequence[Node]) -> list[ArchivePlace]:
    """The newest places, as a report has them."""
    return [ArchivePlace(node.index, node.hash.hex()) for node in newest_first[:PLACES_REPORTED_MAX][::-1]]


class ReportSender:
    """Every :data:`REPORT_S`, and soon after each :meth:`publish` that says something new."""

    def __init__(self, urls: Sequence[str], log: EventLog) -> None:
        self._urls = urls
        self._log = log
        self._report = ArchiveReport([], state="Waiting")
        self._changed = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="reports", daemon=True)
        self._thread.start()

    def publish(self, report: ArchiveReport) -> None:
        """The next report. It is not waited for."""
        if report != self._report:
            self._report = report
            self._changed.set()

    def stop(self) -> None:
        """Sends the last report, for a few seconds."""
        self._stopping = True
        self._changed.set()
        self._thread.join(LAST_REPORT_S)

    def _run(self) -> None:
        with ExitStack() as closing:
            connections = [MasterConnection(url, timeout_s=REQUEST_S, connect_s=CONNECT_S) for url in self._urls]
            for each in connections:
                closing.callback(each.close)
            while not self._stopping:
                self._changed.wait(REPORT_S)
                self._changed.clear()
                report = self._report
                for each in connections:
                    self._send(each, report)

    def _send(self, master: MasterConnection, report: ArchiveReport) -> None:
        try:
            JsonCalls(master).post("/txlog/archive", report)
        except NotFound:
            pass  # a master of an older version, which measures no delay
        except TxLogError as error:
            self._log.warning_rate_limited("ArchiveNotReported", master.url, error=f"{error.name}: {error}")
