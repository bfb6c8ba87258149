"""How far the workers of a data centre were a moment ago: the least at which one is as good for a read as the best."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

READ_LAG_S: Final = 0.5
"""So long a worker may lack what the best one has executed, and still takes its share of the reads. Time, not entries:
a hundred entries are an instant while data is loaded, and an hour at night. Workers that keep up differ by a
micro-batch of their pipeline, which is well below."""
_STEP_S: Final = 0.02
"""What happens within so short a time is one step: it bounds what is remembered."""


class AppliedHistory:
    """The highest index that a worker here had executed, for the last :data:`READ_LAG_S`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._steps: deque[tuple[float, int]] = deque([(clock(), 0)])

    def record(self, index: int) -> None:
        """It is ``index`` now. It may fall: a worker is taken out, or made anew."""
        steps, now = self._steps, self.clock()
        if index == steps[-1][1]:
            return
        if len(steps) > 1 and now - steps[-1][0] < _STEP_S and index > steps[-1][1]:
            steps[-1] = (steps[-1][0], index)
        else:
            steps.append((now, index))
        self._drop_old_steps(now)

    def lower_bound(self) -> int:
        """What the best had executed :data:`READ_LAG_S` ago, or has now, if that is less."""
        self._drop_old_steps(self.clock())
        return min(self._steps[0][1], self._steps[-1][1])

    def _drop_old_steps(self, now: float) -> None:
        steps = self._steps
        while len(steps) > 1 and steps[1][0] <= now - READ_LAG_S:
            steps.popleft()
