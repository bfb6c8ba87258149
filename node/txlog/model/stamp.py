"""Hybrid logical clock stamps: 48 bits of milliseconds since 1970, 16 bits of counting, in one integer."""

from __future__ import annotations

LOGICAL_BITS = 16
STAMP_MAX = (1 << 63) - 1
"""Stamps fit a signed 64-bit integer: the year 6429."""


def stamp_at(wall_ms: int) -> int:
    """The least stamp of a wall-clock millisecond."""
    return wall_ms << LOGICAL_BITS


def stamp_ms(stamp: int) -> int:
    """The wall-clock millisecond of a stamp."""
    return stamp >> LOGICAL_BITS
