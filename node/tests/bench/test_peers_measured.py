"""`make bench-peers` says what it found: medians, ratios, and a miss where another system is ahead."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bench.competitors import run
from bench.competitors.comparison import CASES, CaseRun, CompetitorCase, GeneratorResult, report_runs
from bench.competitors.programs import GO_VERSION_MIN, find_go
from bench.competitors.systems import ETCD, GALERA, TXLOG, System
from e2e.lib.report import BenchReport, CannotMeasure

C1, C64 = CASES[0], CASES[1]


def turn(system: System, case: CompetitorCase, per_s: float, p50_ms: float) -> CaseRun:
    return CaseRun(system, case, GeneratorResult(per_s, p50_ms, 2 * p50_ms, 0, 10.0, 5.0), 100.0)


def said(done: list[CaseRun], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, object]]:
    report = BenchReport("peers")
    report_runs(report, done, [3000.0], 3)
    code = report.end()
    return code, json.loads(capsys.readouterr().out.splitlines()[-1])


def test_figures_are_medians_of_the_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    rounds = [turn(TXLOG, C64, per_s, 1.0) for per_s in (100.0, 9000.0, 8000.0)]
    code, found = said(rounds, capsys)
    assert code == 0
    assert found["txlog"] == {"durable": TXLOG.durable, "ordered": TXLOG.ordered, "c64_per_s": 8000.0}
    assert (found["fsync_per_s"], found["rounds"]) == (3000.0, 3)


@pytest.mark.parametrize(("galera", "code"), [(7_000.0, 0), (9_000.0, 1)])
def test_another_system_ahead_is_a_miss(galera: float, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    ended, found = said([turn(TXLOG, C64, 8_000.0, 1.0), turn(GALERA, C64, galera, 1.0)], capsys)
    assert ended == code
    assert found["c64_over_galera"] == round(8_000 / galera, 2)


def test_a_round_in_which_nothing_was_acknowledged_is_a_miss(capsys: pytest.CaptureFixture[str]) -> None:
    turns = [turn(GALERA, C64, per_s, 1.0) for per_s in (3_000.0, 3_000.0, 0.0)]
    report = BenchReport("peers")
    report_runs(report, [turn(TXLOG, C64, 8_000.0, 1.0), *turns], [3000.0], 3)
    assert report.end() == 1
    assert "galera c64: writes are acknowledged: none in its time" in capsys.readouterr().err


def test_a_disk_without_room_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(run, "DISK_BYTES_PER_ROUND", 1 << 60)
    assert run.main(["--rounds", "1"]) == 1
    assert "make room" in capsys.readouterr().err


@pytest.mark.parametrize(("ours", "code"), [(1.5, 0), (1.6, 1)])
def test_latency_may_be_half_as_much_again_as_etcds(ours: float, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    ended, found = said([turn(ETCD, C1, 900.0, 1.0), turn(TXLOG, C1, 500.0, ours)], capsys)
    assert ended == code
    assert found["c1_p50_over_etcd"] == ours


def test_an_unknown_system_or_case_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, name in ((["--systems", "oracle"], "oracle"), (["--cases", "c7"], "c7")):
        with pytest.raises(SystemExit) as refused:
            run.main(arguments)
        assert refused.value.code == 2
        assert f"is called {name}; there are" in capsys.readouterr().err


def go_of(folder: Path, version: str) -> None:
    program = folder / "go"
    program.write_text(f"#!/bin/sh\necho go version go{version} linux/amd64\n")
    program.chmod(0o755)


def test_an_old_go_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr("sys.executable", str(tmp_path / "none" / "python"))
    go_of(tmp_path, "1.19.8")
    with pytest.raises(CannotMeasure, match=r"no Go 1\.26"):
        find_go()
    go_of(tmp_path, "{}.{}.1".format(*GO_VERSION_MIN))
    assert find_go() == str(tmp_path / "go")
