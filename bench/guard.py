"""``python -m bench.guard``: does a transaction cost the masters more processor than it did?

Three real masters are given two loads in turn, again and again, and between them a server that only answers is given
its own. The processor time that all masters together use for a transaction, divided by what that server uses for an
answer in the same seconds, is a ratio that a slow hour, or other work on the machine, changes much less than any
time: both are slowed alike. The median of each load's ratios is compared with the figure in ``guard.json``; more than
``MARGIN_FACTOR`` times that is a miss.

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

from bench.echo import EchoServer, echo_server
from e2e.lib.cluster.masters import REPOSITORY, BenchMasters, three_masters
from e2e.lib.host_metrics import NotOnDisk, cpu_seconds, disk_of
from e2e.lib.load.closed_loop import ClosedLoad, RequestTemplate
from e2e.lib.report import BenchReport, CannotMeasure, Figure, build_table, console, median, print_table
from txlog.client import MasterClient

COMMITTED_FILE: Final = Path(__file__).with_name("guard.json")
MARGIN_FACTOR: Final = 1.5


class GuardLoad(NamedTuple):
    """A load: clients, transactions in a request, and the share of a round's seconds that it gets."""

    case: str
    clients: int
    batch: int
    share: float


GUARD_LOADS: Final = (GuardLoad("c64", 64, 1, 0.6), GuardLoad("b100", 8, 100, 0.4))
BASELINE_SHARE: Final = 0.25
NUMBER_OFFSET: Final = 10_000_000
"""More than a round that was given up can have sent: no transaction is sent twice."""


class CpuCost(NamedTuple):
    """Of one load in one round, in microseconds of processor: all masters for a transaction, and the yardstick for an
    answer."""

    us: float
    baseline_us: float

    @property
    def ratio(self) -> float:
        return self.us / self.baseline_us


class CostVerdict(NamedTuple):
    """``us`` and ``ratio``: medians of a load's rounds. ``allowed_us``: at the speed that the machine had meanwhile."""

    us: float
    ratio: float
    allowed_us: float
    allowed_ratio: float

    @property
    def is_met(self) -> bool:
        return self.ratio <= self.allowed_ratio


def judge(costs: Sequence[CpuCost], committed: float, margin: float = MARGIN_FACTOR) -> CostVerdict:
    """One load's rounds against the committed ratio."""
    ratio = median([cost.ratio for cost in costs])
    us = median([cost.us for cost in costs])
    yardstick = median([cost.baseline_us for cost in costs])
    if ratio is None or us is None or yardstick is None:
        raise CannotMeasure("no round was measured")
    return CostVerdict(us, ratio, margin * committed * yardstick, margin * committed)


def committed_figures(file: Path, native: bool) -> dict[str, float]:
    """The ratio of each load, for compiled or interpreted masters. :class:`CannotMeasure` when the file is not so."""
    kind = "native" if native else "interpreted"
    try:
        found = json.loads(file.read_text())[kind]
        figures = {shape.case: float(found[shape.case]) for shape in GUARD_LOADS}
    except (OSError, ValueError, KeyError, TypeError) as why:
        raise CannotMeasure(f"{file} has no figures for {kind} masters ({why!r}); --note writes them") from None
    if not all(0 < ratio < float("inf") for ratio in figures.values()):
        raise CannotMeasure(f"{file}: a ratio is a number above 0, found {figures}")
    return figures


def save_figures(file: Path, native: bool, ratios: Mapping[str, float]) -> None:
    """Keep this run's ratios; those of the other kind of masters stay as they are."""
    known = json.loads(file.read_text()) if file.exists() else {}
    known["native" if native else "interpreted"] = {case: round(ratio, 4) for case, ratio in ratios.items()}
    file.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def measure(
    masters: BenchMasters, echo: EchoServer, rounds: int, seconds: float, warm_s: float
) -> dict[str, list[CpuCost]]:
    """``seconds``: of one round, shared by all loads and the yardstick."""
    costs: dict[str, list[CpuCost]] = {shape.case: [] for shape in GUARD_LOADS}
    number, failed = 0, 0
    scale = seconds / (sum(shape.share for shape in GUARD_LOADS) + len(GUARD_LOADS) * BASELINE_SHARE)
    while len(costs[GUARD_LOADS[-1].case]) < rounds:
        try:
            found, number = _measure_round(masters, echo, number, scale, warm_s)
        except CannotMeasure as why:  # processes that were stopped for a while have not become dearer
            failed += 1
            if failed > rounds:
                raise
            console.print(f"this round is repeated: {why}", highlight=False)
            number += NUMBER_OFFSET
            continue
        for case, cost in found.items():
            costs[case].append(cost)
        said = ", ".join(f"{case} {cost.us:.1f} us, {cost.ratio:.3f}" for case, cost in found.items())
        console.print(f"round {len(costs[GUARD_LOADS[0].case])} of {rounds}: {said}", highlight=False)
    return costs


def _measure_round(
    masters: BenchMasters, echo: EchoServer, number: int, scale: float, warm_s: float
) -> tuple[dict[str, CpuCost], int]:
    """Each load once, between two looks at the yardstick; and the number of the next transaction."""
    found: dict[str, CpuCost] = {}
    before = echo.measure(BASELINE_SHARE * scale, warm_s)[1]
    for shape in GUARD_LOADS:
        us, number = _cpu_us_per_transaction(masters, shape, number, shape.share * scale, warm_s)
        after = echo.measure(BASELINE_SHARE * scale, warm_s)[1]
        found[shape.case] = CpuCost(us, (before + after) / 2)
        before = after
    return found, number


def _cpu_us_per_transaction(
    masters: BenchMasters, shape: GuardLoad, number: int, seconds: float, warm_s: float
) -> tuple[float, int]:
    """Microseconds of all masters' processor for a transaction."""
    requests = RequestTemplate(REPOSITORY, "synced", shape.batch, "guard", number)
    load = ClosedLoad(masters.urls, requests, shape.clients)
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
    parser.add_argument("--figures", type=Path, default=COMMITTED_FILE)
    parser.add_argument("--note", action="store_true", help="write the figures of this run instead of comparing")
    options = parser.parse_args(arguments)
    report = BenchReport("make bench-guard")
    scratch = Path.cwd() / ".txlog-bench"
    scratch.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="guard-", dir=scratch))
    try:
        with report.part("to measure", NotOnDisk):
            _run(options, report, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return report.end()


def _run(options: argparse.Namespace, report: BenchReport, folder: Path) -> None:
    disk_of(folder)
    with three_masters(folder / "masters", start_s=120) as masters, echo_server(folder / "echo.log") as echo:
        with MasterClient(masters.urls[0], 5.0) as master:
            native = master.status().native
        costs = measure(masters, echo, options.rounds, options.seconds, options.warm)
    if options.note:
        save_figures(
            options.figures, native, {case: median([c.ratio for c in each]) or 0 for case, each in costs.items()}
        )
    committed = committed_figures(options.figures, native)
    _report_costs(report, costs, committed, native)


def _report_costs(
    report: BenchReport, costs: Mapping[str, Sequence[CpuCost]], committed: Mapping[str, float], native: bool
) -> None:
    rows: list[list[Figure]] = []
    verdicts = {case: judge(each, committed[case]) for case, each in costs.items()}
    report.figure("cpu_us_per_tx", verdicts["c64"].us, 1)
    report.figure("allowed", verdicts["c64"].allowed_us, 1)
    report.figure("native", native)
    report.figure("margin", MARGIN_FACTOR)
    for case, verdict in verdicts.items():
        ratios = [cost.ratio for cost in costs[case]]
        report.figure(f"{case}_cpu_us_per_tx", verdict.us, 1)
        report.figure(f"{case}_allowed", verdict.allowed_us, 1)
        report.figure(f"{case}_committed_ratio", committed[case], 4)
        report.at_most(f"{case}_ratio", round(verdict.ratio, 4), round(verdict.allowed_ratio, 4))
        report.figure(f"{case}_ratio", verdict.ratio, 4)
        least, most = f"{min(ratios):.3f}", f"{max(ratios):.3f}"
        rows.append([case, verdict.us, f"{verdict.ratio:.3f}", least, most, f"{verdict.allowed_ratio:.3f}"])
    yardstick = median([cost.baseline_us for each in costs.values() for cost in each])
    report.figure("yardstick_us", yardstick, 1)
    columns = ("load", "us a txn, all masters", "ratio to an answer", "least", "most", "allowed")
    print_table(build_table(f"processor for a transaction; a bare answer costs {yardstick or 0:.1f} us", columns, rows))


if __name__ == "__main__":
    sys.exit(main())
