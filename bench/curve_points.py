"""What the curves of ``make bench-scale`` have in common."""

from __future__ import annotations

from typing import Any

Point = dict[str, Any]
"""``of``: the curve; ``at``: how much of it; and what was found there."""


def deviation_pct(model: float, measured: float) -> float:
    """How far a model is off, in percent of what was measured."""
    return 100 * (model - measured) / measured
