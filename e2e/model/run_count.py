"""Counts the random runs of a model that break: in parallel, as a table with a row for each sort, then as JSON.

A model brings its run, its violation, its mutants and what its rows are called.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from itertools import repeat
from typing import Final, Generic, NamedTuple, TypeVar

BATCH: Final = 25
"""Runs that a process makes before it reports."""

Options = TypeVar("Options")


class RunTally(NamedTuple):
    """So many runs of one sort: what broke, by its message; the first seed that broke; what the others met."""

    runs: int
    broken: Counter[str]
    first: int | None
    counts: Counter[str]

    def __add__(self, other: object) -> RunTally:
        assert isinstance(other, RunTally), other
        first = self.first if self.first is not None else other.first
        return RunTally(self.runs + other.runs, self.broken + other.broken, first, self.counts + other.counts)


class RandomModel(NamedTuple, Generic[Options]):
    """``run(seed, options)`` returns what it met, or raises ``violation``. Both are sent to other processes."""

    run: Callable[[int, Options], Counter[str]]
    violation: type[Exception]


class CountOptions(NamedTuple):
    """``only``: a part of the names of the rows to make. ``runs``: of each row, 0 for its own number. ``skip``:
    seeds to leave out at the beginning of each row."""

    only: str
    runs: int
    skip: int


def parse_count_options(program: str, arguments: list[str]) -> CountOptions:
    """The options of a command line."""
    parser = argparse.ArgumentParser(prog=program)
    parser.add_argument("--only", default="", help="rows whose name has this in it; rules: those of all rules")
    parser.add_argument("--count", type=int, default=0, help="random runs of each row")
    parser.add_argument("--skip", type=int, default=0, help="seeds to leave out at the beginning of each row")
    found = parser.parse_args(arguments)
    return CountOptions(found.only, found.count, found.skip)


def no_runs() -> RunTally:
    """The tally before the first run."""
    return RunTally(0, Counter(), None, Counter())


def tally_of_history(why: str) -> RunTally:
    """Of one history made by hand. ``why``: what broke in it, empty for nothing."""
    return RunTally(1, Counter({why: 1} if why else {}), None, Counter())


def try_seeds(model: RandomModel[Options], options: Options, seeds: Iterable[int]) -> RunTally:
    """One run for each seed."""
    tally = no_runs()
    for seed in seeds:
        try:
            tally += RunTally(1, Counter(), None, model.run(seed, options))
        except model.violation as broken:
            tally += RunTally(1, Counter({str(broken): 1}), seed, Counter())
    return tally


def count_runs(
    pool: Executor, model: RandomModel[Options], options: Options, seeds: range, *, until_broken: bool
) -> RunTally:
    """Runs with these seeds, or fewer where the first that breaks ends them."""
    tally, workers = no_runs(), os.cpu_count() or 1
    batches = [seeds[at : at + BATCH] for at in range(0, len(seeds), BATCH)]
    while batches and not (until_broken and tally.broken):
        now, batches = batches[:workers], batches[workers:]
        for part in pool.map(try_seeds, repeat(model), repeat(options), now):
            tally += part
    return tally


def show_tally(name: str, tally: RunTally, seconds: float) -> None:
    """Print a row of the table."""
    broken = sum(tally.broken.values())
    why = "; ".join(f"{text} ({times})" for text, times in tally.broken.most_common(3))
    first = f" first {tally.first}" if tally.first is not None else ""
    print(f"{name:<44} {broken:>5} of {tally.runs:>6} {seconds:>7.1f} s{first}  {why}", flush=True)


def count_row(
    pool: Executor, model: RandomModel[Options], name: str, options: Options, seeds: range, *, until_broken: bool
) -> RunTally:
    """:func:`count_runs`, printed as a row."""
    began = time.monotonic()
    tally = count_runs(pool, model, options, seeds, until_broken=until_broken)
    show_tally(name, tally, time.monotonic() - began)
    return tally


def print_figures(total: RunTally, mutants: int, wrong: list[str], began: float) -> int:
    """Print the line of JSON. ``total``: of all rules. ``wrong``: rows that did not do what they must. ``began``: by
    ``time.monotonic``. Returns the exit code."""
    figures = {
        "runs": total.runs,
        "broken": sum(total.broken.values()),
        "mutants": mutants,
        "wrong": wrong,
        "counts": dict(sorted(total.counts.items())),
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(figures), flush=True)
    return 1 if wrong else 0
