"""``make model-certification``: histories made by hand and random runs, then without one part of the rules at a time.

Prints a table and one line of JSON. Fails when something breaks with all rules, or when a mutant does not break: in its
history, or within its number of runs. ``--count N``: N random runs of each row, however many break.
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

from e2e.model.certification.certification_mutant import MUTANTS, CertificationMutant
from e2e.model.certification.directed_run import HISTORIES, broken_histories
from e2e.model.certification.random_run import run
from e2e.model.certification.values import LeftOut, RuleBroken
from e2e.model.synchronous.count import BATCH, RunTally

RUNS_OF_RULES: Final = 300
"""Random runs with all rules, without ``--count``."""


def try_seeds(left_out: frozenset[LeftOut], seeds: Iterable[int]) -> RunTally:
    """One random run for each seed."""
    tally = RunTally(0, Counter(), None, Counter())
    for seed in seeds:
        try:
            tally += RunTally(1, Counter(), None, run(seed, left_out))
        except RuleBroken as broken:
            tally += RunTally(1, Counter({str(broken): 1}), seed, Counter())
    return tally


def count(pool: Executor, left_out: frozenset[LeftOut], seeds: range, *, until_broken: bool) -> RunTally:
    """Random runs with these seeds, or fewer where the first that breaks ends them."""
    tally, workers = RunTally(0, Counter(), None, Counter()), os.cpu_count() or 1
    batches = [seeds[at : at + BATCH] for at in range(0, len(seeds), BATCH)]
    while batches and not (until_broken and tally.broken):
        now, batches = batches[:workers], batches[workers:]
        for part in pool.map(try_seeds, [left_out] * len(now), now):
            tally += part
    return tally


def _show(name: str, tally: RunTally, seconds: float) -> None:
    broken = sum(tally.broken.values())
    why = "; ".join(f"{text} ({times})" for text, times in tally.broken.most_common(3))
    first = f" first {tally.first}" if tally.first is not None else ""
    print(f"{name:<34} {broken:>5} of {tally.runs:>6} {seconds:>7.1f} s{first}  {why}", flush=True)


def _check_rules(pool: Executor, seeds: range) -> RunTally:
    """All rules: the histories, then random runs."""
    broken = broken_histories(frozenset())
    _show("rules: histories made by hand", RunTally(len(HISTORIES), Counter(broken.values()), None, Counter()), 0.0)
    at = time.monotonic()
    tally = count(pool, frozenset(), seeds, until_broken=False)
    _show("rules: random runs", tally, time.monotonic() - at)
    return tally + RunTally(0, Counter(broken.values()), None, Counter())


def _kill(pool: Executor, mutant: CertificationMutant, runs: int, skip: int) -> bool:
    left_out, at = frozenset({mutant.left_out}), time.monotonic()
    name = f"{mutant.rule:>3} {mutant.left_out}"
    why = broken_histories(left_out).get(mutant.history, "")
    if mutant.history:
        _show(f"{name}: {mutant.history}", RunTally(1, Counter({why: 1} if why else {}), None, Counter()), 0.0)
        if not runs:
            return bool(why)
    seeds = range(skip, skip + (runs or mutant.within))
    tally = count(pool, left_out, seeds, until_broken=not runs)
    _show(name, tally, time.monotonic() - at)
    return bool(tally.broken) or bool(why) or bool(runs)


def main(arguments: list[str]) -> int:
    """The exit code: 0 when no rule breaks and every mutant does."""
    parser = argparse.ArgumentParser(prog="python -m e2e.model.certification.count")
    parser.add_argument("--only", default="", help="rows whose name has this in it; rules: those of all rules")
    parser.add_argument("--count", type=int, default=0, help="random runs of each row")
    parser.add_argument("--skip", type=int, default=0, help="seeds to leave out at the beginning of each row")
    options = parser.parse_args(arguments)
    began, total, wrong = time.monotonic(), RunTally(0, Counter(), None, Counter()), list[str]()
    mutants = [each for each in MUTANTS if options.only in each.left_out.value]
    with ProcessPoolExecutor(os.cpu_count() or 1) as pool:
        if options.only in "rules":
            total = _check_rules(pool, range(options.skip, options.skip + (options.count or RUNS_OF_RULES)))
            wrong += ["rules"] if total.broken else []
        for mutant in mutants:
            wrong += [] if _kill(pool, mutant, options.count, options.skip) else [mutant.left_out.value]
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
