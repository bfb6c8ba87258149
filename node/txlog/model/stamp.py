"""Hybrid logical clock stamps: 48 bits of milliseconds since 1970, 16 bits of counting, in one integer."""

from __future__ import annotations

LOGICAL_BITS = 16
STAMP_MAX = (1 << 63) - 1
"""Stamps fit a signed 64-bit integer: the year 6429."""
PEER_STAMP_MAX = STAMP_MAX // 2
"""A peer's stamp or counter above this value is refused: the year 4199. What lies above is left to count in."""


def stamp_at(wall_us: int) -> int:
    """The stamp of a wall-clock microsecond. The part below a millisecond goes into the upper end of the counting
    bits. So batches that different masters accept in one millisecond do not interleave."""
    ms, us = divmod(wall_us, 1000)
    return ms << LOGICAL_BITS | us << 6


def stamp_ms(stamp: int) -> int:
    """The wall-clock millisecond of a stamp."""
    return stamp >> LOGICAL_BITS
