"""``make model-crosslog``: random runs of the model with all rules, then without one part of them at a time.

Prints a table and one line of JSON. Fails when a run with all rules breaks, or when a mutant does not break within its
number of runs. ``--count N``: N runs of each, however many break.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Executor, ProcessPoolExecutor
from typing import Final

from e2e.model.crosslog.crosslog_mutant import MUTANTS, MUTANTS_FROM, RULES, RULES_FROM, CrosslogMutant
from e2e.model.crosslog.random_run import CrosslogOptions, run
from e2e.model.crosslog.values import CrosslogViolation
from e2e.model.synchronous.count import RunTally

RUNS_OF_RULES: Final = 300
"""Runs of each row of the rules, without ``--count``."""
BATCH: Final = 25


def try_seeds(options: CrosslogOptions, seeds: Iterable[int]) -> RunTally:
    """One run for each seed."""
    tally = RunTally(0, Counter(), None, Counter())
    for seed in seeds:
        try:
            tally += RunTally(1, Counter(), None, run(seed, options))
        except CrosslogViolation as broken:
            tally += RunTally(1, Counter({str(broken): 1}), seed, Counter())
    return tally


def count(pool: Executor, options: CrosslogOptions, start: int, runs: int, *, until_broken: bool) -> RunTally:
    """So many runs from a seed on, or fewer where the first that breaks ends them."""
    tally, workers = RunTally(0, Counter(), None, Counter()), os.cpu_count() or 1
    batches = [range(at, min(at + BATCH, start + runs)) for at in range(start, start + runs, BATCH)]
    while batches and not (until_broken and tally.broken):
        now, batches = batches[:workers], batches[workers:]
        for part in pool.map(try_seeds, [options] * len(now), now):
            tally += part
    return tally


def name_of(options: CrosslogOptions) -> str:
    """What a row of the table says of the runs."""
    strategy = options.strategy.value if options.strategy is not None else "mixed"
    return strategy + " watermarks" * options.watermarks


def _show(name: str, tally: RunTally, seconds: float) -> None:
    broken = sum(tally.broken.values())
    why = "; ".join(f"{text} ({times})" for text, times in tally.broken.most_common(3))
    first = f" first {tally.first}" if tally.first is not None else ""
    print(f"{name:<32} {broken:>5} of {tally.runs:>6} {seconds:>7.1f} s{first}  {why}", flush=True)


def main(arguments: list[str]) -> int:
    """The exit code: 0 when no rule breaks and every mutant does."""
    parser = argparse.ArgumentParser(prog="python -m e2e.model.crosslog.count")
    parser.add_argument("--only", default="", help="rows whose name has this in it; rules: those of all rules")
    parser.add_argument("--count", type=int, default=0, help="runs of each row")
    parser.add_argument("--skip", type=int, default=0, help="seeds to leave out at the beginning of each row")
    options = parser.parse_args(arguments)
    began, total, wrong = time.monotonic(), RunTally(0, Counter(), None, Counter()), list[str]()
    mutants = [each for each in MUTANTS if options.only in each.missing.value]
    with ProcessPoolExecutor(os.cpu_count() or 1) as pool:
        for each in RULES if options.only in "rules" else ():
            at, runs = time.monotonic(), options.count or RUNS_OF_RULES
            tally = count(pool, each, RULES_FROM + options.skip, runs, until_broken=False)
            _show(f"rules: {name_of(each)}", tally, time.monotonic() - at)
            total += tally
            wrong += [name_of(each)] if tally.broken else []
        for mutant in mutants:
            wrong += [] if _breaks(pool, mutant, options.count, options.skip) else [mutant.missing.value]
    figures = {
        "runs": total.runs,
        "broken": sum(total.broken.values()),
        "mutants": len(mutants),
        "wrong": wrong,
        "counts": dict(sorted(total.counts.items())),
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(figures), flush=True)
    return 1 if wrong else 0


def _breaks(pool: Executor, mutant: CrosslogMutant, runs: int, skip: int) -> bool:
    """Whether a mutant does what is asked of it: with a number of runs, it is only counted."""
    at, name = time.monotonic(), f"{mutant.rule:>3} {mutant.missing}: {name_of(mutant.options)}"
    tally = count(pool, mutant.broken(), MUTANTS_FROM + skip, runs or mutant.within, until_broken=not runs)
    _show(name, tally, time.monotonic() - at)
    return bool(tally.broken) or bool(runs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
