"""The event log of a process: one line of JSON per event, to stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

_encode = msgspec.json.Encoder(enc_hook=str).encode


class EventLog:
    """``limit_s``: a rate-limited event about one subject is written once in that many seconds. The next line has the
    number of omitted ones in ``suppressed``."""

    def __init__(
        self,
        node: str,
        stream: TextIO | None = None,
        limit_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node = node
        self._stream = stream
        self._limit_s = limit_s
        self._clock = clock
        self._last_written: dict[tuple[str, str], tuple[float, int]] = {}

    def info(self, event: str, **fields: Any) -> None:
        """Logs a normal event."""
        self._write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Logs an event that may need attention."""
        self._write("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Logs a failure."""
        self._write("error", event, fields)

    def warning_rate_limited(self, event: str, about: str, **fields: Any) -> None:
        """Logs a warning that a peer or a client could make this process repeat for ever."""
        now = self._clock()
        if len(self._last_written) > 1000:  # the names come from outside: bound the memory
            self._last_written.clear()
        last, suppressed = self._last_written.get((event, about), (-1e9, 0))
        if now - last < self._limit_s:
            self._last_written[event, about] = (last, suppressed + 1)
            return
        self._last_written[event, about] = (now, 0)
        self._write("warning", event, {**fields, **({"suppressed": suppressed} if suppressed else {})})

    def _write(self, level: str, event: str, fields: dict[str, Any]) -> None:
        line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "level": level, "node": self._node}
        text = _encode({**line, "event": event, **fields}).decode() + "\n"
        stream = self._stream or sys.stderr
        try:
            stream.write(text)
            stream.flush()
        except (OSError, ValueError):
            return  # the reader of stderr is gone; that is no reason to stop
