"""How far a joining master is behind, and how fast it catches up while others write. Guesses: safety never depends on
them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from txlog.model.ids import Origin
from txlog.wire.messages import Hello

CAUGHT_UP_LAG_MAX: Final = 1000
"""At most so many missing transactions are fetched while the view is stopped, however slowly that goes."""
CATCH_UP_MS_MAX: Final = 500
"""More are fetched while the view is stopped if that takes at most so long, at the pace of the last second."""
PACE_WINDOW_MS: Final = 1000

Held = Mapping[Origin, int]
"""The last seq of each origin that is persisted somewhere."""


class FetchPace:
    """How fast one master fetches what another has: transactions done, at several times of the last second."""

    def __init__(self) -> None:
        self.lacking = 0
        self._samples: deque[tuple[int, int]] = deque()
        self._origins: set[Origin] = set()

    def observe(self, wanted: Held, held: Held, now_ms: int, is_new: bool) -> None:
        """One master has ``wanted`` now; the other one had ``held`` of it at its latest report. ``is_new``: that report
        was not observed before."""
        done = sum(min(seq, held.get(origin, 0)) for origin, seq in wanted.items())
        self.lacking = sum(wanted.values()) - done
        if not is_new:
            return
        if self._origins != wanted.keys():  # what was held of another origin before is no progress
            self._origins = set(wanted)
            self._samples.clear()
        self._samples.append((now_ms, done))
        while len(self._samples) > 2 and self._samples[1][0] <= now_ms - PACE_WINDOW_MS:
            self._samples.popleft()

    @property
    def is_near_end(self) -> bool:
        """Whether the rest is fetched soon. At least one report was observed."""
        if self.lacking <= CAUGHT_UP_LAG_MAX:
            return True
        (first_ms, before), (last_ms, done) = self._samples[0], self._samples[-1]
        return done > before and self.lacking * (last_ms - first_ms) <= CATCH_UP_MS_MAX * (done - before)


class CatchUp:
    """One joining master. ``theirs``: how it fetches what this master has; ``mine``: how this master fetches what only
    the joining one has."""

    def __init__(self) -> None:
        self.theirs = FetchPace()
        self.mine = FetchPace()
        self._hello: Hello | None = None

    def observe(self, hello: Hello, now_ms: int, theirs: tuple[Held, Held], mine: tuple[Held, Held]) -> None:
        """The latest hello of the master, with what is wanted and what is held on either side."""
        before, self._hello = self._hello, hello
        if before is None or (before.birth, before.start) != (hello.birth, hello.start):
            self.theirs, self.mine = FetchPace(), FetchPace()
        self.theirs.observe(*theirs, now_ms, hello is not before)
        self.mine.observe(*mine, now_ms, hello is not before)

    @property
    def is_near_end(self) -> bool:
        """Whether neither side lacks more than it fetches soon."""
        return self.theirs.is_near_end and self.mine.is_near_end
