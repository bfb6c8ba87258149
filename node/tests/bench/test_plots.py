"""Pictures of figures: what is drawn is what was found, without scripts and without anything from elsewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bench import plots

PEERS = {
    name: {"c1_synced_p50_ms": 1.0 + at, **dict.fromkeys(plots.CASE_TITLES, 1000.0 * (1 + at))}
    for at, name in enumerate(plots.SYSTEM_TITLES)
}
SCALE = {
    "points": [{"of": "latency", "at": at, "p50_ms": 2.5 + at, "model_p50_ms": 2.0 + at} for at in (0, 50, 100)]
    + [{"of": "queue", "at": 10**at, "p50_ms": 10.0**at} for at in range(1, 5)]
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(folder: Path, name: str, figures: dict[str, Any]) -> None:
    place = folder / plots.MEASURED_FOLDER
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{name}.json").write_text(json.dumps(figures))


def test_there_is_nothing_to_draw_without_figures(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plots.main() == 1
    assert "make bench-peers" in capsys.readouterr().err


def test_what_was_found_is_kept_and_drawn_alike_each_time(folder: Path) -> None:
    put(folder, "bench-peers", PEERS)
    put(folder, "bench-scale", SCALE)
    assert plots.main() == 0
    first = {path.name: path.read_text() for path in (folder / plots.COMMITTED_FOLDER).glob("*.svg")}
    assert sorted(first) == ["peers-many.svg", "peers-one.svg", "scale-latency.svg", "scale-queue.svg"]
    for svg in first.values():
        assert "<script" not in svg
        assert set(re.findall(r'https?://[^"<\s]+', svg)) <= {"http://www.w3.org/2000/svg"}
    assert all(said in first["peers-many.svg"] for said in (*plots.SYSTEM_TITLES.values(), *plots.CASE_TITLES.values()))
    assert "model" in first["scale-latency.svg"]
    assert "model" not in first["scale-queue.svg"]
    (folder / plots.MEASURED_FOLDER / "bench-peers.json").unlink()
    assert plots.main() == 0
    assert {path.name: path.read_text() for path in (folder / plots.COMMITTED_FOLDER).glob("*.svg")} == first


def test_a_system_that_was_not_measured_is_left_out() -> None:
    assert "NATS" not in plots.plot_competitors({"txlog": PEERS["txlog"]})["peers-many"]
