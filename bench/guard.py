"""``python -m bench.guard``: does a transaction cost the masters more processor than it did?

Three real masters are given two loads in turn, again and again, and between them a server that only answers is given
its own. The processor time that all masters together use for a transaction, divided by what that server uses for an
answer in the same seconds, is a ratio that a slow hour, or somebody else on the machine, changes much less than any
time: both are slowed alike. The median of each load's ratios is compared with the figure in ``guard.json``; more than
``MARGIN`` times that is a miss.

===== ====================================================================================================
c64   64 clients spread over the masters, one transaction in a request: requests, messages, syncs, wake-ups
b100  8 clients, 100 transactions in a request: what each entry costs
===== ====================================================================================================

(A lonely client's transaction is no load for this: on a busy machine so few fit into a second that what masters do
without any work is most of it.)

``--note`` writes the figures of this run into ``guard.json`` instead (``make bench-guard NOTE=1``): for a change that
is meant to cost more, in the same commit as the change.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bench.echo import Echo, echo_server
from bench.load import Load, Requests
from bench.machine import NoDisk, cpu_seconds, disk
from bench.masters import REPOSITORY, CannotMeasure, Masters, three_masters
from bench.report import Figure, Report, console, median, show, table
from txlog.client import MasterClient

FIGURES: Final = Path(__file__).with_name("guard.json")
MARGIN: Final = 1.5


class Shape(NamedTuple):
    """A load: clients, transactions in a request, and the share of a round's seconds that it gets."""

    case: str
    clients: int
    batch: int
    share: float


SHAPES: Final = (Shape("c64", 64, 1, 0.6), Shape("b100", 8, 100, 0.4))
YARDSTICK_SHARE: Final = 0.25
SKIPPED: Final = 10_000_000
"""More than a round that was given up can have sent: no transaction is sent twice."""


class Cost(NamedTuple):
    """Of one load in one round, in microseconds of processor: all masters for a transaction, and the yardstick for an
    answer."""

    us: float
    yardstick_us: float

    @property
    def ratio(self) -> float:
        return self.us / self.yardstick_us


class Verdict(NamedTuple):
    """``us`` and ``ratio``: medians of a load's rounds. ``allowed_us``: at the speed that the machine had meanwhile."""

    us: float
    ratio: float
    allowed_us: float
    allowed_ratio: float

    @property
    def good(self) -> bool:
        return self.ratio <= self.allowed_ratio


def judge(costs: Sequence[Cost], committed: float, margin: float = MARGIN) -> Verdict:
    """One load's rounds against the committed ratio."""
    ratio = median([cost.ratio for cost in costs])
    us = median([cost.us for cost in costs])
    yardstick = median([cost.yardstick_us for cost in costs])
    if ratio is None or us is None or yardstick is None:
        raise CannotMeasure("no round was measured")
    return Verdict(us, ratio, margin * committed * yardstick, margin * committed)


def committed_figures(file: Path, native: bool) -> dict[str, float]:
    """The ratio of each load, for compiled or interpreted masters. :class:`CannotMeasure` when the file is not so."""
    kind = "native" if native else "interpreted"
    try:
        found = json.loads(file.read_text())[kind]
        figures = {shape.case: float(found[shape.case]) for shape in SHAPES}
    except (OSError, ValueError, KeyError, TypeError) as why:
        raise CannotMeasure(f"{file} has no figures for {kind} masters ({why!r}); --note writes them") from None
    if not all(0 < ratio < float("inf") for ratio in figures.values()):
        raise CannotMeasure(f"{file}: a ratio is a number above 0, found {figures}")
    return figures


def note_figures(file: Path, native: bool, ratios: Mapping[str, float]) -> None:
    """Keep this run's ratios; those of the other kind of masters stay as they are."""
    known = json.loads(file.read_text()) if file.exists() else {}
    known["native" if native else "interpreted"] = {case: round(ratio, 4) for case, ratio in ratios.items()}
    file.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def measure(masters: Masters, echo: Echo, rounds: int, seconds: float, warm_s: float) -> dict[str, list[Cost]]:
    """``seconds``: of one round, shared by all loads and the yardstick."""
    costs: dict[str, list[Cost]] = {shape.case: [] for shape in SHAPES}
    number, failed = 0, 0
    scale = seconds / (sum(shape.share for shape in SHAPES) + len(SHAPES) * YARDSTICK_SHARE)
    while len(costs[SHAPES[-1].case]) < rounds:
        try:
            found, number = _round(masters, echo, number, scale, warm_s)
        except CannotMeasure as why:  # whoever stops these processes for a while has not made them dearer
            failed += 1
            if failed > rounds:
                raise
            console.print(f"this round is repeated: {why}", highlight=False)
            number += SKIPPED
            continue
        for case, cost in found.items():
            costs[case].append(cost)
        said = ", ".join(f"{case} {cost.us:.1f} us, {cost.ratio:.3f}" for case, cost in found.items())
        console.print(f"round {len(costs[SHAPES[0].case])} of {rounds}: {said}", highlight=False)
    return costs


def _round(masters: Masters, echo: Echo, number: int, scale: float, warm_s: float) -> tuple[dict[str, Cost], int]:
    """Each load once, between two looks at the yardstick; and the number of the next transaction."""
    found: dict[str, Cost] = {}
    before = echo.measure(YARDSTICK_SHARE * scale, warm_s)[1]
    for shape in SHAPES:
        us, number = _cost(masters, shape, number, shape.share * scale, warm_s)
        after = echo.measure(YARDSTICK_SHARE * scale, warm_s)[1]
        found[shape.case] = Cost(us, (before + after) / 2)
        before = after
    return found, number


def _cost(masters: Masters, shape: Shape, number: int, seconds: float, warm_s: float) -> tuple[float, int]:
    """Microseconds of all masters' processor for a transaction."""
    requests = Requests(REPOSITORY, "synced", shape.batch, "guard", number)
    load = Load(masters.urls, requests, shape.clients)
    used: list[float] = []

    def look() -> None:
        used.append(sum(cpu_seconds(pid) for pid in masters.pids.values()))

    round_ = load.run(warm_s, seconds, look, look)
    if load.wrong:
        raise CannotMeasure(f"{shape.case}: {load.wrong[0][:300]}")
    count = len(round_.latencies) * shape.batch
    if not count:
        raise CannotMeasure(f"{shape.case}: nothing was acknowledged in {seconds:.2f} s")
    return 1e6 * (used[1] - used[0]) / count, requests.next


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.guard", description="see the module's head")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="measured in each round")
    parser.add_argument("--warm", type=float, default=0.15, help="seconds before each load")
    parser.add_argument("--figures", type=Path, default=FIGURES)
    parser.add_argument("--note", action="store_true", help="write the figures of this run instead of comparing")
    options = parser.parse_args(arguments)
    report = Report("make bench-guard")
    scratch = Path.cwd() / ".txlog-bench"
    scratch.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="guard-", dir=scratch))
    try:
        disk(folder)
        with three_masters(folder / "masters", start_s=120) as masters, echo_server(folder / "echo.log") as echo:
            with MasterClient(masters.urls[0], 5.0) as master:
                native = master.status().native
            costs = measure(masters, echo, options.rounds, options.seconds, options.warm)
        if options.note:
            note_figures(
                options.figures, native, {case: median([c.ratio for c in each]) or 0 for case, each in costs.items()}
            )
        committed = committed_figures(options.figures, native)
        _say(report, costs, committed, native)
    except (CannotMeasure, NoDisk) as why:
        console.print(f"[red]{why}[/red]", highlight=False)
        report.failed("to measure", str(why).splitlines()[0][:300])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return report.end()


def _say(report: Report, costs: Mapping[str, Sequence[Cost]], committed: Mapping[str, float], native: bool) -> None:
    rows: list[list[Figure]] = []
    verdicts = {case: judge(each, committed[case]) for case, each in costs.items()}
    report.figure("cpu_us_per_tx", verdicts["c64"].us, 1)
    report.figure("allowed", verdicts["c64"].allowed_us, 1)
    report.figure("native", native)
    report.figure("margin", MARGIN)
    for case, verdict in verdicts.items():
        ratios = [cost.ratio for cost in costs[case]]
        report.figure(f"{case}_cpu_us_per_tx", verdict.us, 1)
        report.figure(f"{case}_allowed", verdict.allowed_us, 1)
        report.figure(f"{case}_committed_ratio", committed[case], 4)
        report.at_most(f"{case}_ratio", round(verdict.ratio, 4), round(verdict.allowed_ratio, 4))
        report.figure(f"{case}_ratio", verdict.ratio, 4)
        least, most = f"{min(ratios):.3f}", f"{max(ratios):.3f}"
        rows.append([case, verdict.us, f"{verdict.ratio:.3f}", least, most, f"{verdict.allowed_ratio:.3f}"])
    yardstick = median([cost.yardstick_us for each in costs.values() for cost in each])
    report.figure("yardstick_us", yardstick, 1)
    columns = ("load", "us a txn, all masters", "ratio to an answer", "least", "most", "allowed")
    show(table(f"processor for a transaction; a bare answer costs {yardstick or 0:.1f} us", columns, rows))


if __name__ == "__main__":
    sys.exit(main())
