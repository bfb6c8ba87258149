"""From the log into a worker, exactly once, without Spark and without asyncio."""

from txlog.apply.applier import Clock, SystemClock, apply_up_to
from txlog.apply.log import LogSource, MasterLog
from txlog.apply.outcome import Held, Outcome, Refusal, State

__all__ = [
    "Clock",
    "Held",
    "LogSource",
    "MasterLog",
    "Outcome",
    "Refusal",
    "State",
    "SystemClock",
    "apply_up_to",
]
