"""``make model-certification``: histories made by hand and random runs, then without one part of the rules at a time.

Prints a table and one line of JSON. Fails when something breaks with all rules, or when a mutant does not break: in its
history, or within its number of runs. ``--count N``: N random runs of each row, however many break.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from concurrent.futures import Executor, ProcessPoolExecutor
from typing import Final

from e2e.model.certification.certification_mutant import MUTANTS, CertificationMutant
from e2e.model.certification.directed_run import HISTORIES, broken_histories
from e2e.model.certification.random_run import run
from e2e.model.certification.values import LeftOut, RuleBroken
from e2e.model.run_count import (
    RandomModel,
    RunTally,
    count_row,
    no_runs,
    parse_count_options,
    print_figures,
    show_tally,
    tally_of_history,
)

RUNS_OF_RULES: Final = 300
"""Random runs with all rules, without ``--count``."""
MODEL: Final = RandomModel(run, RuleBroken)
ALL_RULES: Final = frozenset[LeftOut]()


def main(arguments: list[str]) -> int:
    """The exit code: 0 when no rule breaks and every mutant does."""
    options = parse_count_options("python -m e2e.model.certification.count", arguments)
    began, total, wrong = time.monotonic(), no_runs(), list[str]()
    mutants = [each for each in MUTANTS if options.only in each.left_out.value]
    with ProcessPoolExecutor(os.cpu_count() or 1) as pool:
        if options.only in "rules":
            total = _check_rules(pool, range(options.skip, options.skip + (options.runs or RUNS_OF_RULES)))
            wrong += ["rules"] if total.broken else []
        for mutant in mutants:
            wrong += [] if _breaks(pool, mutant, options.runs, options.skip) else [mutant.left_out.value]
    return print_figures(total, len(mutants), wrong, began)


def _check_rules(pool: Executor, seeds: range) -> RunTally:
    """All rules: the histories, then random runs."""
    broken = Counter(broken_histories(ALL_RULES).values())
    show_tally("rules: histories made by hand", RunTally(len(HISTORIES), broken, None, Counter()), 0.0)
    tally = count_row(pool, MODEL, "rules: random runs", ALL_RULES, seeds, until_broken=False)
    return tally + RunTally(0, broken, None, Counter())


def _breaks(pool: Executor, mutant: CertificationMutant, runs: int, skip: int) -> bool:
    """Whether a mutant does what is asked of it: with a number of runs, it is only counted."""
    left_out, name = frozenset({mutant.left_out}), f"{mutant.rule:>3} {mutant.left_out}"
    why = ""
    if mutant.history:
        why = broken_histories(left_out).get(mutant.history, "")
        show_tally(f"{name}: {mutant.history}", tally_of_history(why), 0.0)
        if not runs:
            return bool(why)
    seeds = range(skip, skip + (runs or mutant.within))
    tally = count_row(pool, MODEL, name, left_out, seeds, until_broken=not runs)
    return bool(tally.broken) or bool(why) or bool(runs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
