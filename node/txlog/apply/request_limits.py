"""How long an applier waits for the answer to a request with entries of the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from txlog.model.entry import LogEntry

EXECUTION_S: Final = 20.0
"""Seconds in which a worker has to execute one transaction, and half of them for a request with several; more for a
long payload. A worker that takes longer at a second try, too, is *stalled* (:mod:`txlog.apply.suspect`)."""
BYTES_PER_S: Final = 1 << 19
"""A payload of so many bytes allows another second."""


def time_limit_s(batch: Sequence[LogEntry], execution_s: float) -> float:
    """Seconds in which the worker has to answer a request with these entries."""
    size = sum(len(entry.payload) for entry in batch)
    return (execution_s if len(batch) == 1 else execution_s / 2) + size / BYTES_PER_S


def silence_limit_s(entry: LogEntry, execution_s: float, takeover_s: float) -> float:
    """Seconds without a change after which the owner of a lock is taken for dead, where ``entry`` is the next one of
    the worker. The owner may be executing it: it waits no longer than its time-out, which grows with the entry."""
    return takeover_s + max(0.0, time_limit_s([entry], execution_s) - EXECUTION_S)
