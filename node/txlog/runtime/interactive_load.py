"""Whether others use this master just now, so that what is large gives way to them, and nobody waits for nobody."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

WINDOW_S: Final = 0.5
ACTIVE_REQUESTS_MIN: Final = 5
"""So many small entries or requests within that time: whoever writes or reads ten times a second notices a wait of
milliseconds."""


class InteractiveLoad:
    """On the loop's thread, but for :attr:`is_active`. ``clock``: seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._recent: deque[float] = deque([clock() - WINDOW_S] * ACTIVE_REQUESTS_MIN, ACTIVE_REQUESTS_MIN)
        self._expected_large = 0

    def note_request(self) -> None:
        """A client asks for something, and not with a long body."""
        self._recent.append(self._clock())

    def note_entries(self, count: int) -> None:
        """So many came into the log, the large ones among them."""
        small = count - self._expected_large
        self._expected_large = max(0, -small)
        if small > 0:
            self._recent.extend([self._clock()] * min(small, ACTIVE_REQUESTS_MIN))

    def expect_large_entry(self) -> None:
        """One of the entries to come is a large one, which is no company for itself. One that never comes hides a small
        one; so no more than a few are expected."""
        self._expected_large = min(self._expected_large + 1, ACTIVE_REQUESTS_MIN)

    @property
    def is_active(self) -> bool:
        return self._clock() - self._recent[0] < WINDOW_S

    async def throttle(self, seconds: float) -> None:
        """Let others go first: so long if they are here, else one turn of the loop."""
        await asyncio.sleep(seconds if self.is_active else 0)
