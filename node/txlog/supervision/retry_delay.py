"""Delays between attempts: they double from a first one up to a limit."""

from __future__ import annotations


def next_delay_s(previous_s: float, bounds_s: tuple[float, float]) -> float:
    """The delay after ``previous_s`` (0: no attempt has failed yet). ``bounds_s``: the first delay and the longest."""
    first_s, longest_s = bounds_s
    return min(longest_s, max(first_s, 2 * previous_s))
