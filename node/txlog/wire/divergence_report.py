"""What a master shows of a worker whose data differs, and of its repair. An older master leaves out fields that have a
default."""

from __future__ import annotations

from typing import Final

import msgspec

from txlog.model.store_cell import StoreCell

REPAIR_STATES: Final = ("Due", "Running", "Waiting", "Undecided", "ByHand", "GivenUp", "Done")


class DivergenceFinding(msgspec.Struct, frozen=True, rename="camel"):
    """A worker whose data differs from that of other workers, or from its own earlier data. ``kind``: the kind of the
    digests, or ``refusal``. ``wrong``: this worker is known to be the wrong one; False: undecided. ``graphs``: the
    first ones, without brackets, the empty name being the default graph; ``graph_count`` None: the graphs are not
    known. ``first_index``: the first position at which the difference was seen; ``index``, ``hash``: the last.
    ``right``: workers of its own engine to copy from, as ``data centre/worker``. ``cells``: the first ones that are
    known to differ."""

    kind: str
    wrong: bool
    why: str
    graphs: list[str] = []
    graph_count: int | None = None
    first_index: int = 0
    index: int = 0
    hash: str = ""
    fence: int = 0
    right: list[str] = []
    cells: list[StoreCell] = []


class CompletedRepair(msgspec.Struct, frozen=True, rename="camel"):
    """A completed repair. ``at``: seconds since 1970; ``source``: the worker that was copied, with its data centre;
    ``graphs``: the first of ``graph_count``; ``index``, ``fence``: of the repaired worker's marker."""

    worker: str
    source: str
    graphs: list[str]
    graph_count: int
    added: int
    removed: int
    index: int
    fence: int
    at: float


class RepairStatus(msgspec.Struct, frozen=True):
    """``state``: ``Due``; ``Running``; ``Waiting`` for the reason in ``why``; ``Undecided``, ``ByHand`` and ``GivenUp``
    need an operator; ``Done``: the worker does not differ. ``done``: repairs within a day; ``last``: the last known
    repair."""

    state: str
    why: str = ""
    done: int = 0
    last: CompletedRepair | None = None
