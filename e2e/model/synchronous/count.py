"""``make model-synchronous``: random runs of the model with all rules, then without one part of them at a time.

Prints a table and one line of JSON. Fails when a run with all rules breaks, or when a mutant does not break within its
number of runs. ``--count N``: N runs of each, however many break.
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import Executor, ProcessPoolExecutor
from typing import Final

from e2e.model.run_count import (
    RandomModel,
    count_row,
    no_runs,
    parse_count_options,
    print_figures,
    show_tally,
    tally_of_history,
)
from e2e.model.synchronous.directed_run import run_directed
from e2e.model.synchronous.random_run import RunOptions, run
from e2e.model.synchronous.synchronous_mutant import (
    MUTANTS,
    MUTANTS_FROM,
    RULES,
    RULES_FROM,
    SMART_5,
    SynchronousMutant,
)
from e2e.model.synchronous.values import ModelViolation

RUNS_OF_RULES: Final = 100
"""Runs of each row of the rules, without ``--count``."""
MODEL: Final = RandomModel(run, ModelViolation)


def breaks_by_hand(options: RunOptions) -> str:
    """What breaks in the history made by hand; empty where nothing does."""
    try:
        run_directed(options)
    except ModelViolation as broken:
        return str(broken)
    return ""


def _name_of(options: RunOptions) -> str:
    extra = "".join([" weights" * options.weights, " disks" * options.disks])
    return f"{options.mode} {options.masters}{extra}"


def main(arguments: list[str]) -> int:
    """The exit code: 0 when no rule breaks and every mutant does."""
    options = parse_count_options("python -m e2e.model.synchronous.count", arguments)
    began, total, wrong = time.monotonic(), no_runs(), list[str]()
    mutants = [each for each in MUTANTS if options.only in each.missing.value]
    first = RULES_FROM + options.skip
    with ProcessPoolExecutor(os.cpu_count() or 1) as pool:
        for each in RULES if options.only in "rules" else ():
            seeds = range(first, first + (options.runs or RUNS_OF_RULES))
            tally = count_row(pool, MODEL, f"rules: {_name_of(each)}", each, seeds, until_broken=False)
            total += tally
            wrong += [_name_of(each)] if tally.broken else []
        wrong += ["the history made by hand"] if breaks_by_hand(SMART_5) else []
        for mutant in mutants:
            wrong += [] if _breaks(pool, mutant, options.runs, options.skip) else [mutant.missing.value]
    return print_figures(total, len(mutants), wrong, began)


def _breaks(pool: Executor, mutant: SynchronousMutant, runs: int, skip: int) -> bool:
    """Whether a mutant does what is asked of it: with a number of runs, it is only counted."""
    name = f"{mutant.rule:>3} {mutant.missing}: {_name_of(mutant.options)}"
    if not mutant.within:
        why = breaks_by_hand(mutant.broken())
        show_tally(name, tally_of_history(why), 0.0)
        return bool(why)
    first = MUTANTS_FROM + skip
    seeds = range(first, first + (runs or mutant.within))
    tally = count_row(pool, MODEL, name, mutant.broken(), seeds, until_broken=not runs)
    return bool(tally.broken) or bool(runs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
