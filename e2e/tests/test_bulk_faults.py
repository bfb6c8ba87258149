"""Bulk loads under faults, in short: ``make bulk-faults`` makes each fault at each step."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.lib.cluster.stopped_loads import STEPS, UNDECIDED_STEPS, LoadCommand
from e2e.lib.report import BenchReport, CannotMeasure
from e2e.scenarios.bulk_faults import QUADS, run_faults

CASES = ("landing: store killed",)


@pytest.mark.cluster
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_load_is_in_everywhere_or_nowhere(tmp_path: Path) -> None:
    report = BenchReport("bulk loads under faults")
    run_faults(tmp_path / "faults", QUADS, 1, CASES, report)
    assert report.end() == 0
    assert report.figures["cases"] == len(CASES)
    assert report.figures["kills"] == len(CASES)


def test_a_command_that_ends_before_its_step_is_named(tmp_path: Path) -> None:
    command = LoadCommand(tmp_path / "none.nq", tmp_path / "state", "written")
    with pytest.raises(CannotMeasure, match=r"before it was written: .*no such file"):
        command.wait_stopped()


def test_each_step_names_a_function() -> None:
    assert all(callable(getattr(point.owner, point.function)) for point in STEPS.values())
    assert set(UNDECIDED_STEPS) == set(STEPS) - {"decided", "appended", "noted"}
