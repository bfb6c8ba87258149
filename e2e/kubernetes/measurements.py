"""What the tests measured on the way, for the last line of ``make e2e``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Measurements:
    """``ready_s``: from nothing but images to both resources Ready, the slowest one; ``forbidden``: requests of pods
    that the API servers refused; ``operator_rss_mb``: of the largest one; ``operator_cpu_percent``: of a core, of an
    operator whose cluster is well; ``took_s``: seconds from a fault or a change to its end. None: not measured."""

    ready_s: float | None = None
    forbidden: int | None = None
    operator_rss_mb: float | None = None
    operator_cpu_percent: float | None = None
    took_s: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """What is done within is timed, unless it fails."""
        began = time.monotonic()
        yield
        self.took_s[what] = round(time.monotonic() - began, 1)


MEASUREMENTS = Measurements()
