"""The result of a rehearsed recovery, as it is stored on the target and reported to masters: ``POST
/txlog/rehearsals``."""

from __future__ import annotations

from typing import Final

import msgspec

DIFFERING_SHOWN_MAX: Final = 20
"""Names of graphs in a report."""


class RehearsalReport(msgspec.Struct, frozen=True, rename="camel"):
    """``at``: when it began, in seconds since 1970 by the clock of the process that rehearsed. ``index``, ``hash``: the
    place of the log that was restored; 0 and empty before it was known. ``base``: name of the backup; empty for an
    empty store. ``graphs``: how many were compared with those of ``worker``. ``differing``: how many of them differ,
    ``differ``: the first of their names (empty: the default graph).

    ``rpo_seconds``: how much would have been lost at ``at``. ``rto_writes_seconds``, ``rto_reads_seconds``: until a new
    cluster could take writes, and until its stores were filled. ``phases``: seconds of each, in order. ``phase``: where
    it failed. ``error``: the name of the fault, empty after a good one."""

    at: float
    ok: bool
    level: str = "data"
    index: int = 0
    hash: str = ""
    base: str = ""
    engine: str = ""
    worker: str = ""
    entries: int = 0
    quads: int = 0
    graphs: int = 0
    differing: int = 0
    differ: list[str] = []
    rpo_seconds: float | None = None
    rto_writes_seconds: float | None = None
    rto_reads_seconds: float | None = None
    phases: dict[str, float] = {}
    phase: str = ""
    error: str = ""
    message: str = ""
    stream: str = ""
