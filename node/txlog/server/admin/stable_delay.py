"""How long entries of the log have been stable, by the clock of this master: the delay of what follows the log.

Who follows it only reports places. A delay that it measured itself would stop growing when it dies.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from typing import Final

from txlog.model.stamp import stamp_ms
from txlog.runtime.master_context import MasterContext

SAMPLES_MAX: Final = 4096


class StableAges:
    """When this master learned that an index is stable. Seconds of any clock that only grows."""

    def __init__(self) -> None:
        self._samples: list[tuple[int, float]] = []

    def note(self, stable_index: int, now: float) -> None:
        """Call it regularly. A rejoin may have shortened the log."""
        while self._samples and self._samples[-1][0] > stable_index:
            self._samples.pop()
        if not self._samples or self._samples[-1][0] < stable_index:
            self._samples.append((stable_index, now))
        if len(self._samples) > SAMPLES_MAX:
            del self._samples[1 : SAMPLES_MAX // 2 : 2]

    def age_of(self, index: int, now: float) -> float:
        """How long this index has been stable here, as far as it was noted; 0.0 for one that is not."""
        at = bisect_left(self._samples, (index, 0.0))
        return now - self._samples[at][1] if at < len(self._samples) else 0.0


class StableDelay:
    """:meth:`note` must be called regularly."""

    def __init__(self, site: MasterContext) -> None:
        self._context = site
        self._ages = StableAges()

    def note(self) -> None:
        """Remember what is stable now."""
        self._ages.note(self._context.durability.stable.value, time.monotonic())

    def age_above(self, index: int) -> float:
        """Seconds since the oldest stable entry above ``index`` was stable here, or since its stamp, whichever is
        longer. So neither a restart nor a stamp that is ahead shortens it."""
        agreement, stable = self._context.status.log_state, self._context.durability.stable.value
        if agreement is None or stable <= index:
            return 0.0
        oldest = max(index, agreement.log_index.start) + 1
        if oldest > min(stable, agreement.log_index.length):
            return 0.0
        stamped_s = time.time() - stamp_ms(self._context.status.stamp_at(oldest)) / 1000
        return max(0.0, stamped_s, self._ages.age_of(oldest, time.monotonic()))
