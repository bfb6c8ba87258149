"""Applies the log to a worker, exactly once, without Spark and without asyncio."""

from txlog.apply.applier import apply_up_to
from txlog.apply.log_source import MasterLog
from txlog.apply.outcome import ApplyOutcome, ForeignLock, WorkerState
from txlog.apply.request_limits import EXECUTION_S
from txlog.apply.suspect import ABANDONED_S, Suspect
from txlog.workers.digest import Digest, digest, digest_worker

__all__ = [
    "ABANDONED_S",
    "EXECUTION_S",
    "ApplyOutcome",
    "Digest",
    "ForeignLock",
    "MasterLog",
    "Suspect",
    "WorkerState",
    "apply_up_to",
    "digest",
    "digest_worker",
]
