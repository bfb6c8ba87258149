"""How far the archive of a data centre is, measured by a master with its own clock. Pure.

The archiver only reports places. A delay that it measured itself would stop growing when the archiver dies.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from txlog.wire.archive_report import ArchivePlace

PLACES_MAX: Final = 64
"""Places of one stream that a master remembers: after a rejoin an older one may be the last that is on its log."""
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


class PlaceMemory:
    """The places that were reported of one stream. ``is_on_log`` says whether a place is on this master's log."""

    def __init__(self) -> None:
        self._places: deque[ArchivePlace] = deque(maxlen=PLACES_MAX)

    def add(self, places: Iterable[ArchivePlace]) -> None:
        """Takes the places of a report. What was reported earlier stays: a file is never deleted."""
        for place in places:
            if place in self._places:
                self._places.remove(place)
            self._places.append(place)

    def highest(self, is_on_log: Callable[[ArchivePlace], bool]) -> ArchivePlace | None:
        """The highest place on the log; None when there is none, or the master does not know any more."""
        return max((each for each in self._places if is_on_log(each)), key=lambda each: each.index, default=None)
