"""``make bench-peers``: TxLog, etcd (gRPC and its HTTP/JSON gateway), MariaDB Galera and NATS JetStream, interleaved.

All run at once, three nodes each, and take turns: a case, then the same case at the next system, round after round,
so that what the machine does in the meantime meets all of them. One load generator, written in Go, speaks to all;
what it uses of the processor stands beside each figure. Figures are medians over the rounds; what counts are ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from bench.competitors.comparison import CASES, CaseRun, CompetitorCase, GeneratorResult, report_runs, run_to_json
from bench.competitors.programs import build_go_programs, unpack_debian_programs
from bench.competitors.systems import (
    ETCD,
    ETCD_HTTP,
    GALERA,
    NATS,
    SYSTEMS,
    RunningSystem,
    System,
    start_etcd,
    start_galera,
    start_nats,
    start_txlog,
)
from e2e.lib.host_metrics import CpuMeter, NotOnDisk, disk_of, fsync_rate
from e2e.lib.report import BenchReport, CannotMeasure, console

CACHE: Final = Path("build/peers")
DISK_BYTES_PER_ROUND: Final = 3 << 30
"""Bytes that all systems write in a round, and some more: a full disk ends as zeros of the system that met it first."""
Chosen = TypeVar("Chosen")


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    report = BenchReport("make bench-peers")
    scratch = Path.cwd() / ".txlog-bench"  # on a disk; the system's folder for temporary files may be in memory
    scratch.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="peers-", dir=scratch))
    try:
        report.figure("file_system", disk_of(folder))
        _measure(options, folder, report)
    except (CannotMeasure, NotOnDisk) as refused:
        console.print(f"[red]{refused}[/red]", highlight=False)
        report.failed("the systems beside each other", str(refused)[:300])
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    if len(options.systems) == len(SYSTEMS) and len(options.cases) == len(CASES):
        report.save(Path("build/figures/bench-peers.json"))
    return report.end()


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.competitors.run", description="see the module's head")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="measured in each turn")
    parser.add_argument("--warm", type=float, default=1.0, help="seconds before each")
    names = ",".join(system.name for system in SYSTEMS)
    parser.add_argument("--systems", default=names, help=f"with commas: {names}")
    cases = ",".join(case.name for case in CASES)
    parser.add_argument("--cases", default=cases, help=f"with commas: {cases}")
    parser.add_argument("--json", type=Path, help="a file for every round's figures")
    parser.add_argument("--keep", action="store_true", help="leave data and logs where they are")
    found = parser.parse_args(arguments)
    found.systems = _parse_choice(parser, "system", found.systems, {system.name: system for system in SYSTEMS})
    found.cases = _parse_choice(parser, "case", found.cases, {case.name: case for case in CASES})
    return found


def _parse_choice(parser: argparse.ArgumentParser, what: str, said: str, known: dict[str, Chosen]) -> list[Chosen]:
    names = [name.strip() for name in said.split(",") if name.strip()]
    for name in names:
        if name not in known:
            parser.error(f"no {what} is called {name}; there are {', '.join(known)}")
    return [known[name] for name in names]


def _measure(options: argparse.Namespace, folder: Path, report: BenchReport) -> None:
    free = shutil.disk_usage(folder).free
    if free < DISK_BYTES_PER_ROUND * options.rounds:
        wanted = f"{DISK_BYTES_PER_ROUND * options.rounds >> 30} GiB"
        raise CannotMeasure(f"{folder} has {free >> 30} GiB free; {options.rounds} rounds want {wanted}: make room")
    programs = build_go_programs(CACHE / "bin")
    done: list[CaseRun] = []
    syncs: list[float] = []
    with contextlib.ExitStack() as stack:
        running: dict[str, RunningSystem] = {}
        for system in options.systems:
            console.print(f"starting {system.name} ...")
            running[system.name] = _start_system(stack, system, programs, folder, running)
        number = 0
        for turn in range(options.rounds):
            syncs.append(fsync_rate(folder))
            for case in options.cases:
                for system in options.systems:
                    made = _run_case(options, programs, system, case, running[system.name], number)
                    number += 1_000_000_000
                    done.append(made)
                    if made.result.wrong:
                        said = f"{made.result.wrong} refused: {made.result.first_wrong[:200]}"
                        report.require(f"{system.name} {case.name}: every write is acknowledged", False, said)
                    console.print(
                        f"round {turn + 1} of {options.rounds}: {case.name} {system.name} "
                        f"{made.result.per_s:,.0f}/s, p50 {made.result.p50_ms:.2f} ms",
                        highlight=False,
                    )
    if options.json:
        options.json.write_text(json.dumps([run_to_json(turn) for turn in done], indent=1))
    report_runs(report, done, syncs, options.rounds)


def _start_system(
    stack: contextlib.ExitStack, system: System, programs: Path, folder: Path, running: dict[str, RunningSystem]
) -> RunningSystem:
    if system in (ETCD, ETCD_HTTP):
        for name in (ETCD.name, ETCD_HTTP.name):  # one set of servers has both doors
            if name in running:
                return running[name]
        return stack.enter_context(start_etcd(programs.resolve(), folder / "etcd"))
    if system == NATS:
        return stack.enter_context(start_nats(programs.resolve(), folder / "nats"))
    if system == GALERA:
        unpacked = unpack_debian_programs(CACHE / "debian").resolve()
        return stack.enter_context(start_galera(unpacked, programs.resolve(), folder / "galera"))
    return stack.enter_context(start_txlog(folder / "txlog"))


def _run_case(
    options: argparse.Namespace,
    programs: Path,
    system: System,
    case: CompetitorCase,
    running: RunningSystem,
    number: int,
) -> CaseRun:
    meter = CpuMeter(running.pids)
    meter.begin()
    ended = subprocess.run(
        [
            str(programs.resolve() / "load"),
            *("-system", system.name, "-nodes", ",".join(running.addresses)),
            *("-clients", str(case.clients), "-batch", str(case.batch), "-first", str(number)),
            *("-warm", f"{options.warm}s", "-measure", f"{options.seconds}s"),
        ],
        capture_output=True,
        check=False,
    )
    shares = meter.shares()
    if ended.returncode:
        raise CannotMeasure(f"{system.name} {case.name}: {ended.stderr.decode(errors='replace').strip()[-300:]}")
    found = msgspec.json.decode(ended.stdout, type=GeneratorResult)
    return CaseRun(system, case, found, sum(shares.get(name) or 0.0 for name in running.pids))


if __name__ == "__main__":
    sys.exit(main())
