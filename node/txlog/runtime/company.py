"""Whether others use this master just now, so that what is large gives way to them, and nobody waits for nobody."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

WITHIN_S: Final = 0.5
MANY: Final = 5
"""So many small entries or requests within that time: whoever writes or reads ten times a second notices a wait of
milliseconds."""


class Company:
    """On the loop's thread, but for :attr:`here`. ``clock``: seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[float] = deque([clock() - WITHIN_S] * MANY, MANY)
        self._large = 0

    def request(self) -> None:
        """A client asks for something, and not with a long body."""
        self._seen.append(self._clock())

    def entries(self, count: int) -> None:
        """So many came into the log, the large ones among them."""
        small = count - self._large
        self._large = max(0, -small)
        if small > 0:
            self._seen.extend([self._clock()] * min(small, MANY))

    def large(self) -> None:
        """One of the entries to come is a large one, which is no company for itself. One that never comes hides a small
        one; so no more than a few are expected."""
        self._large = min(self._large + 1, MANY)

    @property
    def here(self) -> bool:
        return self._clock() - self._seen[0] < WITHIN_S

    async def rest(self, seconds: float) -> None:
        """Let others go first: so long if they are here, else one turn of the loop."""
        await asyncio.sleep(seconds if self.here else 0)
