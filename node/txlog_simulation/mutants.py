"""``python -m txlog_simulation.mutants``: takes out one safeguard after another and counts the seeds until it is seen.

Each mutant runs in processes of its own, from several first seeds; the number is the median over these.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from statistics import median

from txlog_simulation.mutant import Mutant
from txlog_simulation.mutant_processes import MutantProcesses, MutantRun, RunEnd
from txlog_simulation.mutant_table import MUTANTS
from txlog_simulation.runner import parallel_runs

SEEDS_MAX = 150
"""A mutant that lives longer than this is called alive."""
STARTS = (0, 100_000, 200_000)
STEERED_SEEDS = 50
"""More than this means that the plans must be steered better."""


def _runs_of(mutant: Mutant, starts: int, seeds: int) -> list[MutantRun]:
    """A directed test counts for one seed."""
    return [MutantRun(mutant, start, seeds) for start in STARTS[: 1 if mutant.test else starts]]


def _seeds_to_kill(end: RunEnd) -> tuple[int, str]:
    """How many seeds until a checker saw it (0: none did), and what it saw."""
    mutant = end.run.mutant
    if mutant.test:
        return int(end.is_killed), f": {mutant.test.rpartition('::')[2]} fails"
    figures = json.loads(end.lines()[-1])
    return (figures["seeds"] if end.is_killed else 0), figures["first"]


def main(arguments: list[str]) -> int:
    """The exit code: 0 when every mutant that can be seen was seen within the steered number of seeds."""
    parser = argparse.ArgumentParser(prog="python -m txlog_simulation.mutants")
    parser.add_argument("--only", default="", help="mutants whose name has this in it")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX)
    parser.add_argument("--starts", type=int, default=len(STARTS))
    options = parser.parse_args(arguments)
    chosen = [m for m in MUTANTS if options.only in m.name]
    began = time.monotonic()
    rows: list[tuple[Mutant, float, list[int], str]] = []
    runs = [run for mutant in chosen for run in _runs_of(mutant, options.starts, options.seeds)]
    ends = MutantProcesses(parallel_runs()).run_all(runs)
    for mutant in chosen:
        found = [_seeds_to_kill(next(ends)) for _ in _runs_of(mutant, options.starts, options.seeds)]
        seeds = [count or options.seeds + 1 for count, _ in found]
        rows.append((mutant, median(seeds), seeds, next((text for count, text in found if count), "")))
        print(_row(*rows[-1], options.seeds), flush=True)
    return _summary(rows, options.seeds, time.monotonic() - began)


def _row(mutant: Mutant, middle: float, seeds: list[int], text: str, most: int) -> str:
    if middle > most:
        what = f"ALIVE {mutant.survives}"
    else:
        what = text.split(": ", 1)[-1][:100]
    star = "*" if mutant.starred else " "
    mix = "a test" if mutant.test else mutant.profile or "all"
    return f"{mutant.rule:>3}{star} {mutant.name:<40} {middle:>6g}  {seeds!s:<18} {mix:<18} {what}"


def _summary(rows: list[tuple[Mutant, float, list[int], str]], most: int, took_s: float) -> int:
    dead = [row for row in rows if row[1] <= most]
    alive = [m.name for m, middle, _, _ in rows if middle > most and not m.survives]
    slow = [m.name for m, middle, _, _ in dead if middle > STEERED_SEEDS and not m.survives]
    covered = [m.name for m, middle, _, _ in rows if middle > most and m.survives]
    if covered:
        print(f"not counted, since a second safeguard does the same in one view: {', '.join(covered)}")
    figures = {
        "mutants": len(rows) - len(covered),
        "killed": len(dead),
        "alive": alive,
        "covered_twice": covered,
        "median_seeds": median([middle for _, middle, _, _ in dead]) if dead else 0,
        "median_seeds_max": max((middle for m, middle, _, _ in dead if not m.survives), default=0),
        "slow": slow,
        "by_a_directed_test": sum(1 for m, _, _, _ in rows if m.test),
        "of_certain_profiles": sum(1 for m, _, _, _ in rows if m.profile),
        "seconds": round(took_s, 1),
    }
    print(json.dumps(figures), flush=True)
    return 1 if alive or slow else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
