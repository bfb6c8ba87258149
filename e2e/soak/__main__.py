"""``python -m e2e.soak``: the strategies one after the other under faults; see ``e2e/soak/README.md``."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final

from e2e.lib.report import BenchReport, Figure, build_table, console, print_table
from e2e.soak.cluster_shape import SHAPES, STRATEGIES
from e2e.soak.phase import PhaseResult, SoakPhase

STATE: Final = Path(".txlog-soak")
PER_S: Final = 300.0
FULL_MINUTES: Final = 30
FAULTS, ACKNOWLEDGED, SPLITS = 300, 200_000, 20
"""Musts of a run of :data:`FULL_MINUTES`; a shorter one must reach its share."""
SHOWN: Final = 20


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m e2e.soak", description="a cluster under faults")
    parser.add_argument("--minutes", type=float, default=float(FULL_MINUTES), help="of faults, all strategies together")
    parser.add_argument("--only", default=",".join(STRATEGIES), help="with commas: " + ", ".join(STRATEGIES))
    parser.add_argument("--masters", type=int, default=3, choices=sorted(SHAPES), help="of the cluster")
    parser.add_argument("--per-s", type=float, default=PER_S, help="transactions a second while nothing breaks")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the faults that are drawn")
    parser.add_argument("--state", type=Path, default=STATE)
    parser.add_argument("--synchronous", action="store_true", help="a third of the graphs need a quorum")
    parser.add_argument("--keep", action="store_true", help="keep the state folders, also of clean phases")
    options = parser.parse_args(arguments)
    shape = SHAPES[options.masters]
    strategies = [name for name in shape.strategies if name.lower() in options.only.lower().split(",")]
    if not strategies:
        parser.error(f"no strategy is called {options.only}; there are {', '.join(shape.strategies)}")
    console.print(f"seed {options.seed}", highlight=False)
    report = BenchReport("make soak")
    found: list[PhaseResult] = []
    for strategy in strategies:
        folder = options.state.with_name(f"{options.state.name}-{strategy.lower()}").absolute()
        phase = SoakPhase(strategy, folder, options.seed, options.per_s, shape, synchronous=options.synchronous)
        one = phase.run(60 * options.minutes / len(strategies))
        found.append(one)
        if one.is_clean and not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    report_phases(report, found, options.minutes, splits=0 if shape.is_lone else SPLITS)
    if options.synchronous:
        report_synchronous(report, found)
    return report.end()


def report_phases(report: BenchReport, found: list[PhaseResult], minutes: float, splits: int = SPLITS) -> None:
    """Tables and musts of all phases. ``splits``: of a run of :data:`FULL_MINUTES`."""
    kinds = sorted({kind for one in found for kind in one.faults})
    rows: list[list[Figure]] = [[kind, *(one.faults.get(kind, 0) for one in found)] for kind in kinds]
    print_table(build_table("faults", ("kind", *(one.strategy for one in found)), rows))
    columns = ("strategy", "faults", "acknowledged", "unknown", "splits", "long pauses", "looks", "stalls", "seconds")
    rows = [
        [
            one.strategy,
            sum(one.faults.values()),
            one.acknowledged,
            one.unknown,
            one.splits,
            one.pauses,
            one.checks,
            one.stalls,
            one.seconds,
        ]
        for one in found
    ]
    print_table(build_table("what was done and seen", columns, rows))
    for name in ("lost", "doubled", "foreign", "disordered", "unequal", "false_splits", "missed_splits", "wrong"):
        for text in [text for one in found for text in getattr(one, name)][:SHOWN]:
            console.print(f"{name}: {text}", highlight=False, markup=False)
    share = min(1.0, minutes / FULL_MINUTES)
    faults = sum((Counter(one.faults) for one in found), Counter[str]())
    report.at_least("faults", sum(faults.values()), int(FAULTS * share))
    report.at_least("acknowledged", sum(one.acknowledged for one in found), int(ACKNOWLEDGED * share))
    report.at_least("splits", sum(one.splits for one in found), int(splits * share) or min(splits, 1))
    for name in ("lost", "doubled", "foreign"):
        report.equal(name, sum(len(getattr(one, name)) for one in found), 0)
    report.equal("digests_equal", all(one.checks and not one.unequal for one in found), True)
    report.equal("false_splits", sum(len(one.false_splits) for one in found), 0)
    report.equal("missed_splits", sum(len(one.missed_splits) for one in found), 0)
    for one in found:
        report.require(f"{one.strategy}: the order that clients were told stands", not one.disordered)
        report.require(f"{one.strategy}: it went on to its end", not one.wrong, (one.wrong or [""])[0][:200] or None)


def report_synchronous(report: BenchReport, found: list[PhaseResult]) -> None:
    """Table and musts of the writes that need a quorum."""
    told = sum((Counter(one.told) for one in found), Counter[str]())
    rows: list[list[Figure]] = [[kind, *(one.told.get(kind, 0) for one in found)] for kind in sorted(told)]
    print_table(build_table("writes that need a quorum", ("told", *(one.strategy for one in found)), rows))
    for text in [text for one in found for text in one.contradictions][:SHOWN]:
        console.print(f"contradiction: {text}", highlight=False, markup=False)
    report.nested({"told": dict(told)})
    report.at_least("synchronous_committed", told["committed"], 1)
    report.equal("contradictions", sum(len(one.contradictions) for one in found), 0)


if __name__ == "__main__":
    sys.exit(main())
