"""What ``make e2e`` says and how it ends, without its clusters."""

from __future__ import annotations

import json
import os
from collections import Counter

import pytest

from e2e.cluster import prerequisites
from e2e.cluster.layout import ClusterUnavailable
from e2e.kubernetes import run
from e2e.kubernetes.measurements import Measurements

GOOD = Measurements(ready_s=40.0, forbidden=0, operator_rss_mb=70.0, operator_cpu_percent=0.4, took_s={"a kill": 3.0})


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that could run clusters, and has all that is built."""
    monkeypatch.setattr(prerequisites, "check_prerequisites", lambda: None)
    monkeypatch.setattr(run, "build_all", lambda: None)
    monkeypatch.setattr(run, "MEASUREMENTS", GOOD)
    monkeypatch.setenv("TXLOG_E2E", "")


def ending(monkeypatch: pytest.MonkeyPatch, code: int, **ends: int) -> None:
    monkeypatch.setattr(run, "run_tier", lambda tier: run.TierResult(tier.name, Counter(ends), 1.0, code))


def said(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    told: dict[str, object] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return told


@pytest.mark.usefixtures("machine")
def test_the_last_line_has_all_figures(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    ending(monkeypatch, 0, passed=5)
    assert run.main([]) == 0
    told = said(capsys)
    wanted = {"tests": 15, "passed": 15, "failed": 0, "skipped": 0, "ready_s": 40.0, "forbidden_requests": 0}
    assert wanted.items() <= told.items()
    assert told["operator_rss_mb"] == 70.0
    assert told["took_s"] == {"a kill": 3.0}


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("code", "ends"), [(1, {"failed": 1}), (0, {"passed": 3, "skipped": 1}), (4, {}), (0, {"failed": 1})]
)
def test_a_failure_a_skip_and_nothing_collected_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int, ends: dict[str, int]
) -> None:
    ending(monkeypatch, code, **ends)
    assert run.main([]) == 1
    assert said(capsys)["failed"] == 3 * ends.get("failed", 0)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    "figures",
    [
        Measurements(None, 0, 70.0, 0.4),
        Measurements(181.0, 0, 70.0, 0.4),
        Measurements(40.0, 1, 70.0, 0.4),
        Measurements(40.0, 0, 151.0, 0.4),
        Measurements(40.0, 0, 70.0, 1.1),
    ],
)
def test_a_figure_that_is_missed_or_was_not_measured_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], figures: Measurements
) -> None:
    ending(monkeypatch, 0, passed=1)
    monkeypatch.setattr(run, "MEASUREMENTS", figures)
    assert run.main([]) == 1
    assert said(capsys)["failed"] == 0


@pytest.mark.usefixtures("machine")
def test_a_chosen_part_misses_no_figure_that_it_does_not_measure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ending(monkeypatch, 0, passed=1)
    monkeypatch.setattr(run, "MEASUREMENTS", Measurements(forbidden=0))
    assert run.main(["e2e/kubernetes/test_faults.py"]) == 0
    assert said(capsys)["ready_s"] is None


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("argument", "part"),
    [
        ("synchronous", "e2e/kubernetes/test_synchronous.py"),
        ("nothing_of_that_name", "nothing_of_that_name"),
        ("e2e/kubernetes/test_faults.py", "e2e/kubernetes/test_faults.py"),
    ],
)
def test_a_word_chooses_a_file(monkeypatch: pytest.MonkeyPatch, argument: str, part: str) -> None:
    ran: list[tuple[str, ...]] = []

    def run_tier(tier: run.TestTier) -> run.TierResult:
        ran.append(tier.arguments)
        return run.TierResult(tier.name, Counter(passed=1), 1.0, 0)

    monkeypatch.setattr(run, "run_tier", run_tier)
    run.main([argument])
    assert ran == [(part,)]


@pytest.mark.usefixtures("machine")
def test_what_is_not_built_fails_and_the_rest_is_not_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise ClusterUnavailable("no compiler")

    ending(monkeypatch, 0, passed=1)
    monkeypatch.setattr(run, "build_all", broken)
    assert run.main([]) == 1
    assert said(capsys)["tests"] == 1, "the tier that waits for nothing"


def test_a_machine_that_cannot_is_told_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert run.main([]) == 1
    told = capsys.readouterr()
    assert "need root" in told.err
    assert not told.out
