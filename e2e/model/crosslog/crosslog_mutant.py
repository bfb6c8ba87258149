"""The rules, and the rules without one of their parts: in which runs each is tried."""

from __future__ import annotations

from typing import Final, NamedTuple

from e2e.model.crosslog.random_run import CrosslogOptions
from e2e.model.crosslog.values import LogStrategy, MissingPart

RULES_FROM: Final = 1_000_000
MUTANTS_FROM: Final = 2_000_000
"""The first seeds of runs."""

MIXED: Final = CrosslogOptions()
SMART: Final = CrosslogOptions(LogStrategy.SMART)
SIMPLE: Final = CrosslogOptions(LogStrategy.SIMPLE)
WATERMARKS: Final = CrosslogOptions(watermarks=True)

RULES: Final = (MIXED, SMART, SIMPLE, WATERMARKS)
"""Nothing may break in these."""


class CrosslogMutant(NamedTuple):
    """``within``: it must break in so many runs from :data:`MUTANTS_FROM` on. ``seed``: of one run that it breaks."""

    missing: MissingPart
    rule: str
    options: CrosslogOptions
    within: int
    seed: int

    def broken(self) -> CrosslogOptions:
        """The runs without this part of the rules. The second look (R21) makes void what the gate and the wait for
        outcomes prevent; so these two break runs only without it."""
        hidden = self.missing in {MissingPart.NO_GATE, MissingPart.EARLY}
        extra = {MissingPart.NO_RECHECK} if hidden else set()
        return self.options._replace(missing=frozenset({self.missing, *extra}))


MUTANTS: Final = (
    CrosslogMutant(MissingPart.OWN_CLOCKS, "R6", MIXED, 500, 2_000_093),
    CrosslogMutant(MissingPart.NO_QUORUM, "R11", MIXED, 200, 2_000_011),
    CrosslogMutant(MissingPart.LOG, "R12", MIXED, 200, 2_000_002),
    CrosslogMutant(MissingPart.LOGQ, "R12", SIMPLE, 1000, 2_000_005),
    CrosslogMutant(MissingPart.PENDING_D, "R12", MIXED, 100, 2_000_001),
    CrosslogMutant(MissingPart.LAST_D, "R12", MIXED, 100, 2_000_008),
    CrosslogMutant(MissingPart.OWN_ABORT, "R13", MIXED, 100, 2_000_000),
    CrosslogMutant(MissingPart.NO_PREPARE, "R14", MIXED, 200, 2_000_008),
    CrosslogMutant(MissingPart.FORGET_EARLY, "R16", MIXED, 200, 2_000_001),
    CrosslogMutant(MissingPart.FORGET_BLANK, "R16", MIXED, 100, 2_000_001),
    CrosslogMutant(MissingPart.NO_PRESUME, "R16", MIXED, 200, 2_000_001),
    CrosslogMutant(MissingPart.PASS_UNDECIDED, "R16", WATERMARKS, 200, 2_000_004),
    CrosslogMutant(MissingPart.PASS_UNKNOWN, "R16", WATERMARKS, 500, 2_000_259),
    CrosslogMutant(MissingPart.EARLY, "R19", MIXED, 100, 2_000_001),
    CrosslogMutant(MissingPart.LOG_END, "R19", MIXED, 500, 2_000_033),
    CrosslogMutant(MissingPart.NO_GATE, "R20", MIXED, 200, 2_000_002),
    CrosslogMutant(MissingPart.NO_RECHECK, "R21", MIXED, 200, 2_000_022),
    CrosslogMutant(MissingPart.UNSETTLED, "R22", MIXED, 100, 2_000_001),
    CrosslogMutant(MissingPart.YOUNG_VIEW, "R22", MIXED, 300, 2_000_008),
)
