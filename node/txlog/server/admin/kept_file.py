"""A file beside the journal in which a handler keeps what others reported, so that it outlives a restart."""

from __future__ import annotations

from pathlib import Path

from txlog.config.atomic_file import write_atomically
from txlog.telemetry.event_log import EventLog


def keep(path: Path, content: bytes, log: EventLog, event: str) -> None:
    """Writes the file. A fault is logged as ``event``, and nothing else: another module reports a full disk."""
    try:
        write_atomically(path, content)
    except OSError as wrong:
        log.warning_rate_limited(event, path.stem, error=str(wrong))
