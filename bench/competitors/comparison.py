"""What `make bench-peers` found: medians over the rounds, ratios of one system to another, and which must is met."""

from __future__ import annotations

import os
from typing import Final, NamedTuple

import msgspec

from bench.competitors.systems import ETCD, ETCD_HTTP, GALERA, TXLOG, System
from e2e.lib.report import BenchReport, Figure, build_table, median, print_table


class CompetitorCase(NamedTuple):
    name: str
    clients: int
    batch: int


CASES: Final = (
    CompetitorCase("c1", 1, 1),
    CompetitorCase("c64", 64, 1),
    CompetitorCase("c1024", 1024, 1),
    CompetitorCase("b100x1", 1, 100),
    CompetitorCase("b100x64", 64, 100),
)


class GeneratorResult(msgspec.Struct, forbid_unknown_fields=False):
    """What the load generator printed; its head says what each means."""

    per_s: float
    p50_ms: float
    p99_ms: float
    wrong: int
    cpu_us: float
    cpu_pct: float
    first_wrong: str = ""


class CaseRun(NamedTuple):
    system: System
    case: CompetitorCase
    result: GeneratorResult
    nodes_pct: float
    """Percent of a core that the system's three nodes used."""


def run_to_json(turn: CaseRun) -> dict[str, object]:
    return {
        "system": turn.system.name,
        "case": turn.case.name,
        "nodes_cpu_pct": round(turn.nodes_pct, 1),
        **msgspec.to_builtins(turn.result),
    }


def report_runs(report: BenchReport, done: list[CaseRun], syncs: list[float], rounds: int) -> None:
    """Tables for people, figures and musts for the report. ``done`` holds each round's turns, in order."""
    cases = list(dict.fromkeys(turn.case for turn in done))
    systems = list(dict.fromkeys(turn.system for turn in done))

    def of(system: System, case: CompetitorCase) -> list[CaseRun]:
        return [turn for turn in done if turn.system == system and turn.case == case]

    rows: list[list[Figure]] = []
    for case in cases:
        for system in systems:
            turns = of(system, case)
            ours = of(TXLOG, case)
            pairs = [
                mine.result.per_s / theirs.result.per_s
                for mine, theirs in zip(ours, turns, strict=False)
                if theirs.result.per_s
            ]
            rows.append(
                [
                    case.name,
                    system.name,
                    median([turn.result.per_s for turn in turns]),
                    median([turn.result.p50_ms for turn in turns]),
                    median([turn.result.p99_ms for turn in turns]),
                    median(pairs) if system != TXLOG else None,
                    median([turn.nodes_pct for turn in turns]),
                    median([turn.result.cpu_pct for turn in turns]),
                ]
            )
    columns = ("case", "system", "txn/s", "p50 ms", "p99 ms", "TxLog is x times", "nodes cpu %", "generator %")
    said = f"three nodes each, 200 bytes, {rounds} rounds; the disk syncs {median(syncs) or 0:,.0f}/s"
    print_table(build_table(said, columns, rows))
    print_table(
        build_table(
            "what an acknowledgement means",
            ("system", "durable", "ordered"),
            [[system.name, system.durable, system.ordered] for system in systems],
        )
    )
    for turn in done:
        if not turn.result.per_s:
            report.require(f"{turn.system.name} {turn.case.name}: writes are acknowledged", False, "none in its time")
    _report_figures(report, cases, systems, rows)
    report.figure("fsync_per_s", median(syncs), 0)
    report.figure("rounds", rounds)
    report.figure("cores", os.cpu_count())


def _report_figures(
    report: BenchReport, cases: list[CompetitorCase], systems: list[System], rows: list[list[Figure]]
) -> None:
    found = {(str(row[0]), str(row[1])): row for row in rows}
    figures: dict[str, object] = {}
    for system in systems:
        mine: dict[str, Figure] = {"durable": system.durable, "ordered": system.ordered}
        for case in cases:
            row = found[case.name, system.name]
            mine[f"{case.name}_per_s"] = _rounded(row[2], 0)
            if case.name == "c1":
                mine["c1_synced_p50_ms"] = _rounded(row[3], 3)
        figures[system.name] = mine
    report.nested(figures)

    def ratio(case: str, other: System, column: int = 2) -> float | None:
        ours, theirs = found.get((case, TXLOG.name)), found.get((case, other.name))
        if ours is None or theirs is None:
            return None
        top, below = ours[column], theirs[column]
        return top / below if isinstance(top, float) and isinstance(below, float) and below else None

    for name, value, limit, at_most in (
        ("c1_p50_over_etcd", ratio("c1", ETCD, 3), 1.5, True),
        ("c64_over_etcd_http", ratio("c64", ETCD_HTTP), 1.0, False),
        ("c64_over_galera", ratio("c64", GALERA), 1.0, False),
        ("b100x64_over_galera", ratio("b100x64", GALERA), 1.2, False),
        ("b100x64_over_etcd", ratio("b100x64", ETCD), 1.5, False),
    ):
        if value is not None and at_most:
            report.at_most(name, value, limit)
        elif value is not None:
            report.at_least(name, value, limit)


def _rounded(value: Figure, digits: int) -> Figure:
    return round(value, digits) if isinstance(value, float) else value
