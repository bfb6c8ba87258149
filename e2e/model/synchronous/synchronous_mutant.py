"""The rules, and the rules without one of their parts: in which runs each is tried."""

from __future__ import annotations

from typing import Final, NamedTuple

from e2e.model.synchronous.random_run import RunOptions
from e2e.model.synchronous.values import Missing, Mode

RULES_FROM: Final = 1_000_000
MUTANTS_FROM: Final = 2_000_000
"""The first seeds of runs."""


class SynchronousMutant(NamedTuple):
    """``within``: it must break in so many runs from :data:`MUTANTS_FROM` on. ``seed``: of one run that it breaks; 0:
    the history made by hand breaks."""

    missing: Missing
    rule: str
    options: RunOptions
    within: int
    seed: int

    def broken(self) -> RunOptions:
        """The runs without this part of the rules. S12 lets the branch of the highest anchor win nearly always, so the
        winner's anchor is wrong only without S12."""
        extra = {Missing.VOTES} if self.missing is Missing.WINNERS_ANCHOR else set()
        return self.options._replace(missing=frozenset({self.missing, *extra}))


SMART_4: Final = RunOptions(Mode.SMART, 4)
SMART_5: Final = RunOptions(Mode.SMART, 5)
SIMPLE_4: Final = RunOptions(Mode.SIMPLE, 4)
SIMPLE_5: Final = RunOptions(Mode.SIMPLE, 5)
WEIGHTS_5: Final = RunOptions(Mode.SMART, 5, weights=True)
DISKS_5: Final = RunOptions(Mode.SMART, 5, disks=True)

RULES: Final = (
    SMART_4,
    SMART_5,
    RunOptions(Mode.SMART, 3),
    WEIGHTS_5,
    DISKS_5,
    RunOptions(Mode.SMART, 5, weights=True, disks=True),
    SIMPLE_4,
    RunOptions(Mode.SIMPLE, 5, weights=True, disks=True),
    RunOptions(Mode.MAJORITY, 5),
    RunOptions(Mode.MAJORITY, 5, weights=True),
)
"""Nothing may break in these."""

MUTANTS: Final = (
    SynchronousMutant(Missing.WEAK, "S3", SMART_4, 100, 2_000_001),
    SynchronousMutant(Missing.ANY_VIEW, "S4", SMART_4, 100, 2_000_001),
    SynchronousMutant(Missing.FRESH, "S4", DISKS_5, 1000, 2_000_224),
    SynchronousMutant(Missing.ELECT_NOW, "S4", WEIGHTS_5, 300, 2_000_019),
    SynchronousMutant(Missing.NOT_JOINTLY, "S4", WEIGHTS_5, 500, 2_000_019),
    SynchronousMutant(Missing.NO_ANCHOR, "S5", SIMPLE_5, 500, 2_000_023),
    SynchronousMutant(Missing.WINNERS_ANCHOR, "S5", SIMPLE_5, 500, 2_000_012),
    SynchronousMutant(Missing.FAST_PATH, "S7", SMART_4, 100, 2_000_000),
    SynchronousMutant(Missing.LOCAL_TIMEOUT, "S8", SMART_4, 100, 2_000_002),
    SynchronousMutant(Missing.LATE_TIMEOUT, "S8", SMART_4, 100, 2_000_001),
    SynchronousMutant(Missing.ABSENT, "S8", SMART_5, 100, 2_000_011),
    SynchronousMutant(Missing.UNDOOMED, "S8", SMART_5, 100, 2_000_002),
    SynchronousMutant(Missing.REDOOM, "S9", SMART_5, 500, 2_000_138),
    SynchronousMutant(Missing.SYNCED_ANYWHERE, "S10", SMART_4, 1000, 2_000_428),
    SynchronousMutant(Missing.ENTRY_KEY, "S11", SMART_4, 100, 2_000_022),
    SynchronousMutant(Missing.VOTES, "S12", SMART_5, 500, 2_000_012),
    SynchronousMutant(Missing.TRIM, "S13", SMART_4, 100, 2_000_001),
    SynchronousMutant(Missing.FOOT_BARE, "S13", SMART_4, 100, 2_000_041),
    SynchronousMutant(Missing.FOOT_EARLY, "S13", SMART_5, 0, 0),
    SynchronousMutant(Missing.SERVE_EARLY, "S13", SMART_4, 100, 2_000_019),
    SynchronousMutant(Missing.FOOT_FORGETS, "S13", SMART_4, 100, 2_000_011),
)
