"""Reports to the masters how far a process is, in a thread of its own: a master that does not answer delays no work,
and work that takes long delays no report."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

import msgspec

from txlog.client.connection import MasterConnection
from txlog.client.json_calls import JsonCalls
from txlog.model.errors import NotFound, TxLogError
from txlog.telemetry.event_log import EventLog

REPORT_S: Final = 5.0
REQUEST_S: Final = 3.0
CONNECT_S: Final = 1.0
LAST_REPORT_S: Final = 5.0


class ReportSender:
    """Every :data:`REPORT_S`, and soon after each :meth:`publish` that says something new. ``path``: where masters take
    these reports. ``event``: the name of the event in the log when one is not taken."""

    def __init__(self, urls: Sequence[str], path: str, first: msgspec.Struct, log: EventLog, event: str) -> None:
        self._urls = urls
        self._path = path
        self._log = log
        self._event = event
        self._report = first
        self._changed = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="reports", daemon=True)
        self._thread.start()

    def publish(self, report: msgspec.Struct) -> None:
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

    def _send(self, master: MasterConnection, report: msgspec.Struct) -> None:
        try:
            JsonCalls(master).post(self._path, report)
        except NotFound:
            pass  # a master of an older version
        except TxLogError as error:
            self._log.warning_rate_limited(self._event, master.url, error=f"{error.name}: {error}")
