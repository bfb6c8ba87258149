"""``python -m txlog_simulation.mutants``: takes out one safeguard after another and counts the seeds until it is seen.

Each mutant runs in fresh processes, from several first seeds; the number is the median over these.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median

from txlog_simulation.mutant import Mutant
from txlog_simulation.mutant_table import MUTANTS
from txlog_simulation.runner import parallel_runs
from txlog_simulation.source_patches import ROOT

SEEDS_MAX = 150
"""A mutant that lives longer than this is called alive."""
STARTS = (0, 100_000, 200_000)
MUTANT_VARIABLE = "TXLOG_SIMULATION_MUTANT"
"""In the environment of a directed test: the mutant's name, for the processes that the test starts."""
STEERED_SEEDS = 50
"""More than this means that the plans must be steered better."""


def seeds_to_kill(mutant: Mutant, start: int, seeds: int) -> tuple[int, str]:
    """How many seeds from ``start`` on until a checker saw it (0: none did), and what it saw. A directed test counts
    for one seed."""
    if mutant.test:
        return _killed_by_test(mutant)
    command = [sys.executable, "-m", "txlog_simulation", "--mutant", mutant.name, "--seeds", str(seeds)]
    command += ["--start", str(start), "--jobs", "1", "--stop-at-first", "--quiet"]
    command += ["--profile", mutant.profile] if mutant.profile else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    if done.returncode not in (0, 1) or not lines:
        raise SystemExit(f"mutant {mutant.name} cannot run:\n{done.stderr[-2000:]}")
    figures = json.loads(lines[-1])
    return (figures["seeds"] if figures["violations"] else 0), figures["first"]


_PYTEST = """
import sys
from txlog_simulation import mutant_table, source_patches
source_patches.install_edits(next(m.edits for m in mutant_table.MUTANTS if m.name == sys.argv[1]))
import pytest
sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", "--no-header", sys.argv[2]]))
"""


def _killed_by_test(mutant: Mutant) -> tuple[int, str]:
    command = [sys.executable, "-c", _PYTEST, mutant.name, mutant.test]
    told = {**os.environ, MUTANT_VARIABLE: mutant.name}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT.parent, env=told)
    if done.returncode not in (0, 1):
        raise SystemExit(f"mutant {mutant.name} cannot run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode, f": {mutant.test.rpartition('::')[2]} fails"


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
    with ThreadPoolExecutor(parallel_runs()) as pool:
        waiting = [
            (m, [pool.submit(seeds_to_kill, m, s, options.seeds) for s in STARTS[: 1 if m.test else options.starts]])
            for m in chosen
        ]
        for mutant, runs in waiting:
            found = [run.result() for run in runs]
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
