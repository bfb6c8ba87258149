"""How far the comparison of a worker's content is, as its pipeline reports it to the masters."""

from __future__ import annotations

import msgspec


class ComparisonReport(msgspec.Struct, frozen=True, rename="camel"):
    """``cells``: the parts that are compared, with ``quads`` in all. ``waiting``: cells that were written, or that
    differ, and are read next. ``oldest_cell_s``: since that cell was read whose last reading is the oldest; for one
    that was never read, since it is known. ``pass_s``: how long the last whole pass took; None: none has ended since
    the pipeline began, or the worker was rebuilt. ``estimate_s``: how long the present one takes; None: not known
    yet."""

    cells: int = 0
    quads: int = 0
    waiting: int = 0
    oldest_cell_s: float = 0.0
    pass_s: float | None = None
    estimate_s: float | None = None
