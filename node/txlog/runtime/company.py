"""Whether others use this master just now, so that what is large gives way to them, and nobody waits for nobody."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

WITHIN_S: Final = 0.5
MANY: Final = 5
"""So many moments within that time in which something small was written or asked for: whoever writes or reads ten times
a second notices a wait of milliseconds, and whoever loads files is not slowed by a health probe."""


class Company:
    """On the loop's thread, but for :attr:`here`. ``clock``: seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[float] = deque([clock() - WITHIN_S] * MANY, MANY)
        self._large = 0

    def note(self, entries: int = 1) -> None:
        """So many entries came into the log, or somebody asked for something."""
        small = entries - self._large
        self._large = max(0, -small)
        if small > 0:
            self._seen.append(self._clock())

    def large(self) -> None:
        """One of the entries to come is a large one, which is no company for itself."""
        self._large += 1

    @property
    def here(self) -> bool:
        return self._clock() - self._seen[0] < WITHIN_S
