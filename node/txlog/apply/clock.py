"""The clock of an applier."""

from __future__ import annotations

import time
from typing import Protocol


class MonotonicClock(Protocol):
    """A monotonic clock that can also sleep. Tests replace it by one that they move."""

    def now(self) -> float:
        """Seconds since an arbitrary moment."""

    def sleep(self, seconds: float) -> None:
        """Block the calling thread for at least ``seconds``."""


class SystemClock:
    """The clock of the operating system, which no change of the date moves."""

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
