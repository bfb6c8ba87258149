"""What a mutant is. Imports nothing of ``txlog``."""

from __future__ import annotations

from typing import NamedTuple

from txlog_simulation.source_patches import SourceEdit
from txlog_simulation.violation import ACKNOWLEDGEMENT, KINDS_COUNTED_FOR_MUTANTS, LOG, PROMISE, WORKER

MUTANT_VARIABLE = "TXLOG_SIMULATION_MUTANT"
"""In the environment of a directed test: the mutant's name, for the processes that the test starts."""
HARM = (LOG, ACKNOWLEDGEMENT, WORKER, PROMISE)
"""Going on late does not count: what a change of views that lost a safeguard does wrong, it does to somebody."""


class Mutant(NamedTuple):
    """``starred``: the rules page calls it needed for safety. ``survives``: why few seeds or none kill it, if so.
    ``profile``: the mixes of faults that can meet its rule, with commas between; empty for all. ``counts``: the kinds
    of violation it dies by. ``test``: what would have to happen is so rare that a test of whole masters or of one
    master, message by message, must fail instead of a seed."""

    name: str
    rule: str
    starred: bool
    edits: tuple[SourceEdit, ...]
    survives: str = ""
    profile: str = ""
    counts: tuple[str, ...] = KINDS_COUNTED_FOR_MUTANTS
    test: str = ""
