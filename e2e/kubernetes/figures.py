"""What the tests measured on the way, for the last line of ``make e2e``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Figures:
    """``ready_s``: from nothing but images to both resources Ready, the slowest one; ``forbidden``: requests of pods
    that the API servers refused; ``operator_rss_mb``: of the largest one. None: not measured."""

    ready_s: float | None = None
    forbidden: int | None = None
    operator_rss_mb: float | None = None


FIGURES = Figures()
