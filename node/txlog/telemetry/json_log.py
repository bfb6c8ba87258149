"""Python's ``logging`` in the format of the event log: one line of JSON per record, to stderr. So are warnings of
libraries, and errors that end a process or a thread."""

from __future__ import annotations

import logging
import sys
import threading
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final

import msgspec

RECORD_EVENT: Final = "Log"
"""The event of a record: it has a text where events of a master have fields."""
CRASH_LOGGER: Final = "txlog.crash"
"""Names the records of errors that nothing has caught."""
_encode = msgspec.json.Encoder(enc_hook=str).encode


class JsonFormatter(logging.Formatter):
    """``node``: which process writes, as for :class:`~txlog.telemetry.event_log.EventLog`."""

    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record, without a line end."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "node": self._node,
            "event": RECORD_EVENT,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return _encode(line).decode()


def install_json_log(node: str, level: int = logging.INFO) -> None:
    """All records of this process from ``level`` on go to stderr as JSON, and so do errors that nothing catches. A
    second call replaces the first."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(node))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.captureWarnings(True)
    sys.excepthook = _log_crash
    threading.excepthook = _log_thread_crash


def _log_crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        return
    logging.getLogger(CRASH_LOGGER).critical("%s: %s", kind.__name__, error, exc_info=(kind, error, trace))


def _log_thread_crash(crash: threading.ExceptHookArgs) -> None:
    error = crash.exc_value or crash.exc_type()
    where = crash.thread.name if crash.thread is not None else "a thread"
    kind = crash.exc_type
    logging.getLogger(CRASH_LOGGER).error(
        "%s: %s: %s", where, kind.__name__, error, exc_info=(kind, error, crash.exc_traceback)
    )
