"""Detects recent interactive traffic; bulk transfers throttle only while there is some."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

WINDOW_S: Final = 0.5
ACTIVE_REQUESTS_MIN: Final = 5
"""Small entries or requests within that time that count as interactive: at ten a second a client notices a wait of
milliseconds."""


class InteractiveLoad:
    """Use it on the loop's thread, except :attr:`is_active`. ``clock``: seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._recent: deque[float] = deque([clock() - WINDOW_S] * ACTIVE_REQUESTS_MIN, ACTIVE_REQUESTS_MIN)
        self._expected_large = 0

    def note_request(self) -> None:
        """Count a client's request without a long body."""
        self._recent.append(self._clock())

    def note_entries(self, count: int) -> None:
        """Count entries that entered the log, large ones included."""
        small = count - self._expected_large
        self._expected_large = max(0, -small)
        if small > 0:
            self._recent.extend([self._clock()] * min(small, ACTIVE_REQUESTS_MIN))

    def expect_large_entry(self) -> None:
        """Announces a large entry so that it is not counted as interactive traffic. Capped: an announced entry that
        never arrives would mask a small one."""
        self._expected_large = min(self._expected_large + 1, ACTIVE_REQUESTS_MIN)

    @property
    def is_active(self) -> bool:
        """Whether there was interactive traffic within the last :data:`WINDOW_S`."""
        return self._clock() - self._recent[0] < WINDOW_S

    async def throttle(self, seconds: float) -> None:
        """Yield to interactive load: for ``seconds`` if there is some, else for one turn of the loop."""
        await asyncio.sleep(seconds if self.is_active else 0)
