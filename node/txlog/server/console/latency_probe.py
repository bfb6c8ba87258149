"""How long a transaction of this master takes, measured on a sample at a time while a console is open."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Final

from txlog.runtime.durability_tracker import DurabilityTracker
from txlog.runtime.watermark import Watermark

SAMPLES_MAX: Final = 16
"""The shown value is the median of the last samples."""
FORGET_AFTER_S: Final = 30.0
"""A sample without an end after this time is dropped, and so is every older result."""


class LatencyProbe:
    """Follows the next transaction that this master accepts: to ``synced``, and to ``applied`` in its data centre."""

    def __init__(self, durability: DurabilityTracker) -> None:
        self._durability = durability
        self._waiting: asyncio.Future[bool] | None = None
        self._accepted_at = 0.0
        self._started_at = 0.0
        self._synced: deque[tuple[float, float]] = deque(maxlen=SAMPLES_MAX)
        self._applied: deque[tuple[float, float]] = deque(maxlen=SAMPLES_MAX)

    def poll(self) -> None:
        """Starts a sample if none runs. It costs nothing until a transaction is accepted."""
        if self._waiting is not None and time.monotonic() - self._started_at < FORGET_AFTER_S:
            return
        if self._waiting is not None:
            self._waiting.cancel()
        durability, self._started_at = self._durability, time.monotonic()
        seq = durability.accepted.value + 1
        self._follow(durability.accepted, seq, lambda: self._on_accepted(seq))

    def median_ms(self) -> dict[str, float | None]:
        """``{"synced", "applied"}``: milliseconds from the acceptance; None without a recent sample."""
        return {"synced": self._median(self._synced), "applied": self._median(self._applied)}

    def _median(self, samples: deque[tuple[float, float]]) -> float | None:
        while samples and time.monotonic() - samples[0][0] > FORGET_AFTER_S:
            samples.popleft()
        return round(1000 * median(took for _, took in samples), 1) if samples else None

    def _follow(self, mark: Watermark, target: int, then: Callable[[], None]) -> None:
        """Calls ``then`` when the mark is at the target. The sample ends without a result if the wait is aborted."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting = future

        def on_done(done: asyncio.Future[bool]) -> None:
            if self._waiting is not done:
                return
            self._waiting = None
            if not done.cancelled() and done.result():
                then()

        future.add_done_callback(on_done)
        mark.add_waiter(target, future)

    def _on_accepted(self, seq: int) -> None:
        self._accepted_at = time.monotonic()
        self._follow(self._durability.synced, seq, self._on_synced)

    def _on_synced(self) -> None:
        now = time.monotonic()
        self._synced.append((now, now - self._accepted_at))
        # The transaction is at or below the stable index; one that is slightly later is applied at the same time.
        self._follow(self._durability.applied, self._durability.stable.value, self._on_applied)

    def _on_applied(self) -> None:
        now = time.monotonic()
        self._applied.append((now, now - self._accepted_at))
