"""What a master knows of the time: its own clock, its counter, and the clocks of its peers (rule 6).

Stamps order transactions, and the age of an idempotency key is a difference of stamps. So one wrong clock must not move
the stamps of a cluster. Agreement depends on nothing here: a counter that is not raised counts upwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from txlog.model.errors import PeerFault, Unavailable
from txlog.model.stamp import LOGICAL_BITS, PEER_STAMP_MAX, stamp_at
from txlog.protocol.events import ClockReading

READING_AGE_MAX_MS: Final = 24 * 3_600_000
"""For how long the last reading of a peer's clock counts. The peer may be gone, and this machine may have slept since,
while its ``mono`` clock stood still."""
STEP_MIN_MS: Final = 1000
"""The least step of a counter in a round, for a ``maxClockSkew`` of almost nothing: a master catches up in any case."""
DOUBT_MIN_MS: Final = 10_000
"""How much further ahead than everything known a counter is doubted at least."""
AHEAD_MAX_MS: Final = 100 * 365 * 24 * 3_600_000
"""A stamp that is a century ahead of this master's clock and counter comes from no clock. A dead clock shows 1970."""
CLOCK_RETRY_S: Final = 5
"""When a client may try a refused key again: a message of a master that can be reached arrives within a second."""


class ClockComparison:
    """``is_ahead``: this master's clock was more than ``maxClockSkew`` ahead of the others' when it was last judged.
    Readings of peers' clocks outlive every view; the counter, which is durable, is the memory across starts."""

    def __init__(self) -> None:
        self.is_ahead = False
        self._now = ClockReading(0, 0)
        self._readings: dict[str, tuple[int, int]] = {}
        """By node: the clock's millisecond, and the ``mono`` millisecond at which it arrived."""
        self._round_stamp = -1
        self._round_ms = 0
        self._has_merged_counter = False
        """The counter of another master has counted since this start: from then on, counters grow together."""
        self._began_without_counter = False
        self._has_caught_up = False
        """The counter has reached the clock since this start. From then on, ``mono`` bounds the time that passes."""

    def tick(self, now: ClockReading) -> None:
        """Advance the time."""
        self._now = now

    @property
    def wall_ms(self) -> int:
        """This master's clock, in milliseconds since 1970, as its messages report it."""
        return max(0, self._now.wall // 1000)

    def on_peer_clock(self, node: str, wall_ms: int) -> None:
        """A message that the node itself sent reports its clock; 0: its version reports none."""
        if wall_ms:
            self._readings[node] = wall_ms, self._now.mono

    def on_peer_counter(self) -> None:
        """The counter of a post counts: this master's is not below it."""
        self._has_merged_counter = True

    def raised_counter(
        self, now: ClockReading, counter: int, skew_ms: int, round_ms: int, counters: Callable[[], dict[str, int]]
    ) -> int:
        """The counter, raised to the clock as far as rule 6 allows. ``counters``: of the peers that are present, used
        where a peer's version does not report its clock."""
        self._now = now
        wall = stamp_at(now.wall)
        self._began_without_counter |= not counter
        if self._round_stamp < 0:
            self._round_stamp, self._round_ms = counter, now.mono
        elapsed_ms = now.mono - self._round_ms
        bound = self._round_stamp + (elapsed_ms + max(skew_ms, STEP_MIN_MS) << LOGICAL_BITS)
        skew = skew_ms << LOGICAL_BITS
        raised = counter
        if wall <= counter:
            self.is_ahead = False
            self._has_caught_up |= counter - wall <= skew
        elif counter and wall <= bound and wall - counter <= skew:
            self.is_ahead = False
            self._has_caught_up, raised = True, wall
        else:
            clock, is_confirmed = self._judge(wall, counter, skew, counters())
            is_free = not counter or (is_confirmed and not self._has_caught_up)
            raised = max(counter, clock if is_free else min(clock, bound))
            self._has_caught_up |= raised >= clock
        if elapsed_ms >= round_ms:
            self._round_stamp, self._round_ms = raised, now.mono
        return raised

    def lag_error(self, counter: int, bound_ms: int, is_alone: bool) -> Unavailable | None:
        """Why the counter is no time to judge the age of a key by, on a master that has others; None when it is one.
        Since this start no post has merged counters, and the counter began with this clock alone, or this clock is more
        than ``bound_ms`` ahead of it. Neither does the clock of another master confirm it. The others may be at another
        time already, and a key that was sent to both would have two ages. ``is_alone``: the view in force has no other
        member, so no other master takes work."""
        lag_ms = stamp_at(self._now.wall) - counter >> LOGICAL_BITS
        is_of_one_clock = self._began_without_counter and not is_alone
        if self._has_merged_counter or (lag_ms <= bound_ms and not is_of_one_clock):
            return None
        if any(abs(ms - (counter >> LOGICAL_BITS)) <= bound_ms for ms in self._fresh_readings().values()):
            return None
        return Unavailable(
            "ClockUnconfirmed",
            "this master was stopped for long, and no other one has confirmed the time since, so it cannot judge the "
            "age of an Idempotency-Key: send the request to another master, or without a key",
            CLOCK_RETRY_S,
        )

    def _judge(self, wall: int, counter: int, skew: int, counters: dict[str, int]) -> tuple[int, bool]:
        """The clock to use, as a stamp, and whether two clocks show it. A clock that is behind the counter proves no
        other one to be ahead. Of the rest, this master's own included, the middle one decides, the lower of two."""
        known = counters | {node: ms << LOGICAL_BITS for node, ms in self._fresh_readings().items()}
        clocks = sorted([wall, *(clock for clock in known.values() if clock >= counter - skew)])
        middle = clocks[(len(clocks) - 1) // 2]
        self.is_ahead = wall - middle > skew
        clock = middle if self.is_ahead else wall
        return clock, sum([1 for one in clocks if abs(one - clock) <= skew]) > 1

    def _fresh_readings(self) -> dict[str, int]:
        """The clocks of the peers as they should be now, in milliseconds since 1970."""
        mono = self._now.mono
        return {
            node: wall_ms + mono - at_ms
            for node, (wall_ms, at_ms) in self._readings.items()
            if mono - at_ms <= READING_AGE_MAX_MS
        }

    def check_stamp(self, peer: str, stamp: int, counter: int) -> None:
        """:class:`PeerFault` for a stamp or counter that no clock leads to. Nothing that came with it may count, and
        no promise may follow it: one above all later stamps would end all ordering, durably."""
        if not 0 <= stamp <= PEER_STAMP_MAX:
            raise PeerFault(peer, "StampOutOfRange", f"stamp {stamp} is not from 0 to {PEER_STAMP_MAX}")
        known = max(counter, stamp_at(self._now.wall))
        if stamp - known > AHEAD_MAX_MS << LOGICAL_BITS:
            raise PeerFault(peer, "StampOutOfRange", f"stamp {stamp} is a century ahead of all known here ({known})")

    def is_doubtful(self, stamp: int, counter: int, skew_ms: int) -> bool:
        """Whether the stamp is further ahead than ``maxClockSkew`` of every clock and counter known here."""
        beyond = stamp - (max(skew_ms, DOUBT_MIN_MS) << LOGICAL_BITS)
        if beyond <= counter or beyond <= stamp_at(self._now.wall):
            return False
        return all(beyond > ms << LOGICAL_BITS for ms in self._fresh_readings().values())
