"""How far the workers of a data centre were a moment ago: the least index at which a worker may serve reads."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

READ_LAG_S: Final = 0.5
"""A worker may lag the most advanced one by this time and still takes its share of the reads. Time, not entries: a
hundred entries are an instant while data is loaded, and an hour at night. Workers that keep up differ by a micro-batch
of their pipeline, which is well below."""
_STEP_S: Final = 0.02
"""Changes within this many seconds are one step: that bounds the memory."""


class AppliedHistory:
    """The highest index that a worker here had executed, for the last :data:`READ_LAG_S`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._steps: deque[tuple[float, int]] = deque([(clock(), 0)])

    def record(self, index: int) -> None:
        """Record the present index. It may fall: a worker is removed, or rebuilt."""
        steps, now = self._steps, self.clock()
        if index == steps[-1][1]:
            return
        if len(steps) > 1 and now - steps[-1][0] < _STEP_S and index > steps[-1][1]:
            steps[-1] = (steps[-1][0], index)
        else:
            steps.append((now, index))
        self._drop_old_steps(now)

    def lower_bound(self) -> int:
        """The highest index executed :data:`READ_LAG_S` ago, or now, if that is less."""
        self._drop_old_steps(self.clock())
        return min(self._steps[0][1], self._steps[-1][1])

    def _drop_old_steps(self, now: float) -> None:
        steps = self._steps
        while len(steps) > 1 and steps[1][0] <= now - READ_LAG_S:
            steps.popleft()
