"""``python -m e2e.model.check``: explores the model on small sizes, then each mutant until its property is violated.

Prints a table and one line of JSON. Fails when a property does not hold, or when a mutant is alive.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from e2e.model.model_mutant import MUTANTS, ModelMutant
from e2e.model.model_run import DEEP_RUNS, RUNS, ModelRun
from e2e.model.tla_checker import CheckerFailed, CheckResult, check_module, prepare
from e2e.model.tla_source import edited, module_text, properties_of

Tools = tuple[Path, Path]
FAILED: Final = "(the checker failed)"
"""In place of a violated property."""


def _check(tools: Tools, module: str, configuration: str) -> CheckResult:
    """As :func:`check_module`; a checker without a result is shown and ends neither the other runs nor the table."""
    try:
        return check_module(tools, module, configuration)
    except CheckerFailed as why:
        return CheckResult(0, 0, FAILED, str(why))


def explore(tools: Tools, run: ModelRun) -> tuple[CheckResult, float]:
    """Check all properties of the module on these sizes. The result and the seconds that it took."""
    began = time.monotonic()
    return _check(tools, module_text(), run.configuration([])), time.monotonic() - began


def kill(tools: Tools, mutant: ModelMutant) -> tuple[CheckResult, float]:
    """Check the mutant for the one property that it must violate."""
    began = time.monotonic()
    run = next(one for one in RUNS if one.name == mutant.run).resized(mutant.constants)
    result = _check(tools, edited(mutant.edits), run.configuration([mutant.violates]))
    return result, time.monotonic() - began


def _print_row(name: str, what: str, result: CheckResult, seconds: float) -> None:
    print(f"{name:<36} {what:<34} {result.distinct:>9,} states {seconds:>6.1f} s", flush=True)


def main(arguments: list[str]) -> int:
    """The exit code: 0 when every property holds and every mutant dies."""
    parser = argparse.ArgumentParser(prog="python -m e2e.model.check")
    parser.add_argument("--only", default="", help="runs and mutants whose name has this in it")
    parser.add_argument("--deep", action="store_true", help="also the runs that take hours")
    options = parser.parse_args(arguments)
    began, tools = time.monotonic(), prepare()
    runs = [one for one in (RUNS + DEEP_RUNS if options.deep else RUNS) if options.only in one.name]
    mutants = [one for one in MUTANTS if options.only in one.name]
    wrong: list[str] = []
    states = generated = killed = 0
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        explored = [(run, pool.submit(explore, tools, run)) for run in runs]
        tried = [(mutant, pool.submit(kill, tools, mutant)) for mutant in mutants]
        for run, waiting in explored:
            result, seconds = waiting.result()
            states, generated = states + result.distinct, generated + result.generated
            _print_row(run.name, f"VIOLATED {result.violated}" if result.violated else "holds", result, seconds)
            if result.violated:
                wrong.append(run.name)
                print(result.output)
        for mutant, waiting in tried:
            result, seconds = waiting.result()
            is_dead = result.violated == mutant.violates
            killed += is_dead
            end = f"violates {result.violated}" if is_dead else f"ALIVE, not {mutant.violates} {result.violated}"
            _print_row(f"{mutant.rule:>3} {mutant.name}", end, result, seconds)
            wrong += [] if is_dead else [mutant.name]
            if result.violated == FAILED:
                print(result.output)
    figures = {
        "states": states,
        "states_generated": generated,
        "runs": len(runs),
        "properties": len(properties_of()),
        "mutants": len(mutants),
        "mutants_killed": killed,
        "wrong": wrong,
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(figures), flush=True)
    return 1 if wrong or not (runs or mutants) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
