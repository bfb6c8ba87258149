"""What is printed about workers that differ, and about their comparison."""

from __future__ import annotations

import pytest

from txlog.cli.divergence_view import print_comparison, print_divergence
from txlog.client import WorkerStatus
from txlog.model.store_cell import StoreCell
from txlog.wire.comparison_report import ComparisonReport
from txlog.wire.divergence_report import DivergenceFinding


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")


def test_a_comparison_is_shown_with_its_estimate(capsys: pytest.CaptureFixture[str]) -> None:
    report = ComparisonReport(
        cells=60, quads=100_000_000, waiting=2, oldest_cell_s=119.0, pass_s=6120.0, estimate_s=54_000.0
    )
    begun = ComparisonReport(cells=7)
    workers = [
        WorkerStatus("w-1", comparison=report), WorkerStatus("w-2", comparison=begun), WorkerStatus("w-3")
    ]  # fmt: skip
    print_comparison({"uk": workers})
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("100,000,000", "119 s", "102 min", "15.0 h", "not known"))
    assert "w-3" not in shown
    print_comparison({"uk": [WorkerStatus("w-3")]})
    assert capsys.readouterr().out == ""


def test_a_difference_is_shown_by_cell_or_else_by_graph(capsys: pytest.CaptureFixture[str]) -> None:
    def shown(*cells: StoreCell) -> str:
        found = DivergenceFinding("cells", True, "why", ["urn:g"], 1, cells=list(cells))
        print_divergence({"uk": [WorkerStatus("w-1", divergence=found)]})
        return capsys.readouterr().out

    assert "<urn:p> in <urn:g>, the default graph" in shown(StoreCell("urn:g", "urn:p"), StoreCell("", None))
    assert "urn:p" not in shown(*(StoreCell("urn:g", f"urn:p{n}") for n in range(4)))
