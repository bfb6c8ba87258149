"""``make model-crosslog``: random runs of the model with all rules, then without one part of them at a time.

Prints a table and one line of JSON. Fails when a run with all rules breaks, or when a mutant does not break within its
number of runs. ``--count N``: N runs of each, however many break.
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import Executor, ProcessPoolExecutor
from typing import Final

from e2e.model.crosslog.crosslog_mutant import MUTANTS, MUTANTS_FROM, RULES, RULES_FROM, CrosslogMutant
from e2e.model.crosslog.random_run import CrosslogOptions, run
from e2e.model.crosslog.values import CrosslogViolation
from e2e.model.run_count import RandomModel, count_row, no_runs, parse_count_options, print_figures

RUNS_OF_RULES: Final = 300
"""Runs of each row of the rules, without ``--count``."""
MODEL: Final = RandomModel(run, CrosslogViolation)


def name_of(options: CrosslogOptions) -> str:
    """What a row of the table says of the runs."""
    strategy = options.strategy.value if options.strategy is not None else "mixed"
    return strategy + " watermarks" * options.watermarks


def main(arguments: list[str]) -> int:
    """The exit code: 0 when no rule breaks and every mutant does."""
    options = parse_count_options("python -m e2e.model.crosslog.count", arguments)
    began, total, wrong = time.monotonic(), no_runs(), list[str]()
    mutants = [each for each in MUTANTS if options.only in each.missing.value]
    first = RULES_FROM + options.skip
    with ProcessPoolExecutor(os.cpu_count() or 1) as pool:
        for each in RULES if options.only in "rules" else ():
            seeds = range(first, first + (options.runs or RUNS_OF_RULES))
            tally = count_row(pool, MODEL, f"rules: {name_of(each)}", each, seeds, until_broken=False)
            total += tally
            wrong += [name_of(each)] if tally.broken else []
        for mutant in mutants:
            wrong += [] if _breaks(pool, mutant, options.runs, options.skip) else [mutant.missing.value]
    return print_figures(total, len(mutants), wrong, began)


def _breaks(pool: Executor, mutant: CrosslogMutant, runs: int, skip: int) -> bool:
    """Whether a mutant does what is asked of it: with a number of runs, it is only counted."""
    first = MUTANTS_FROM + skip
    seeds = range(first, first + (runs or mutant.within))
    name = f"{mutant.rule:>3} {mutant.missing}: {name_of(mutant.options)}"
    tally = count_row(pool, MODEL, name, mutant.broken(), seeds, until_broken=not runs)
    return bool(tally.broken) or bool(runs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
