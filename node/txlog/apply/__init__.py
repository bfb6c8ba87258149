"""Applies the log to a worker, exactly once, without Spark and without asyncio."""

from txlog.apply.applier import MonotonicClock, SystemClock, apply_up_to
from txlog.apply.log_source import LogSource, MasterLog
from txlog.apply.outcome import ApplyOutcome, ForeignLock, Refusal, WorkerState
from txlog.workers.digest import Digest, digest, digest_worker

__all__ = [
    "ApplyOutcome",
    "Digest",
    "ForeignLock",
    "LogSource",
    "MasterLog",
    "MonotonicClock",
    "Refusal",
    "SystemClock",
    "WorkerState",
    "apply_up_to",
    "digest",
    "digest_worker",
]
