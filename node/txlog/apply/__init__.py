"""From the log into a worker, exactly once, without Spark and without asyncio."""

from txlog.apply.applier import Clock, SystemClock, apply_up_to
from txlog.apply.log import LogSource, MasterLog
from txlog.apply.outcome import Held, Outcome, Refusal, State
from txlog.workers.digest import Digest, digest, digest_of_worker

__all__ = [
    "Clock",
    "Digest",
    "Held",
    "LogSource",
    "MasterLog",
    "Outcome",
    "Refusal",
    "State",
    "SystemClock",
    "apply_up_to",
    "digest",
    "digest_of_worker",
]
