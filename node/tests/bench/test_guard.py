"""The guard over the processor time of a transaction: its judgement, its figures, and that it catches a slowed path."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from bench.echo import EchoServer
from bench.guard import (
    COMMITTED_FILE,
    GUARD_LOADS,
    MARGIN_FACTOR,
    CpuCost,
    GuardLoad,
    committed_figures,
    judge,
    measure,
    save_figures,
)
from e2e.lib.cluster.masters import BenchMasters
from e2e.lib.report import CannotMeasure

ROOT = Path(__file__).parents[3]

SLOWED = """
import sys, time
if "txlog.server" in sys.orig_argv:
    import txlog.journal.format as format

    encode = format.encode_record

    def slow(*arguments):
        until = time.thread_time() + 0.002
        while time.thread_time() < until:
            pass
        return encode(*arguments)

    format.encode_record = slow
"""
"""Two milliseconds of processor more for each record of the journal, whatever else the machine does."""


def guard(figures: Path, *arguments: str, path: Path | None = None) -> tuple[int, dict[str, float]]:
    env = dict(os.environ, TXLOG_NATIVE="0")
    if path is not None:
        env["PYTHONPATH"] = str(path)
    done = subprocess.run(
        [sys.executable, "-m", "bench.guard", "--rounds", "2", "--seconds", "3", "--figures", str(figures), *arguments],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    said: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    assert "c64_ratio" in said, done.stdout + done.stderr
    return done.returncode, said


@pytest.mark.cluster
@pytest.mark.long  # make bench-guard measures the same in each change
@pytest.mark.timeout(400)
def test_a_slowed_path_is_caught(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    code, noted = guard(figures, "--note")
    assert code == 0
    (tmp_path / "slowed").mkdir()
    (tmp_path / "slowed/sitecustomize.py").write_text(SLOWED)
    code, said = guard(figures, path=tmp_path / "slowed")
    assert code == 1
    assert said["c64_ratio"] > MARGIN_FACTOR * noted["c64_ratio"]
    assert said["cpu_us_per_tx"] > said["allowed"]


class Answers:
    """A yardstick that costs 60 us."""

    def measure(self, seconds: float, warm_s: float) -> tuple[float, float]:
        return 1000.0, 60.0


@pytest.mark.parametrize(("stopped", "measured"), [(0, True), (3, True), (4, False)])
def test_a_round_that_was_stopped_is_repeated_as_often_as_there_are_rounds(
    stopped: int, measured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []

    def cost(masters: object, shape: GuardLoad, number: int, *times: float) -> tuple[float, int]:
        begun.append(number)
        if len(begun) <= stopped:
            raise CannotMeasure("c64: nothing came for 30 s")
        return 120.0, number + 1

    monkeypatch.setattr("bench.guard._cpu_us_per_transaction", cost)

    def look() -> dict[str, list[CpuCost]]:
        return measure(cast(BenchMasters, None), cast(EchoServer, Answers()), 3, 1.0, 0.1)

    if measured:
        assert look() == {"c64": [CpuCost(120, 60)] * 3, "b100": [CpuCost(120, 60)] * 3}
    else:
        with pytest.raises(CannotMeasure, match="nothing came"):
            look()
    assert len(set(begun)) == len(begun), "no transaction is sent twice"


def test_up_to_the_margin_is_good_and_above_it_is_not() -> None:
    def costs(*ratios: float) -> list[CpuCost]:
        return [CpuCost(60 * ratio, 60) for ratio in ratios]

    assert judge(costs(2 * MARGIN_FACTOR), 2.0).is_met
    assert not judge(costs(2 * MARGIN_FACTOR + 0.001), 2.0).is_met
    assert judge(costs(2, 90, 1), 2.0).is_met, "the median counts, not one slow round"
    assert not judge(costs(1, 90, 80), 2.0).is_met


def test_a_machine_that_is_slower_altogether_is_allowed_more_time() -> None:
    quick, slow = judge([CpuCost(120, 60)], 2.0), judge([CpuCost(360, 180)], 2.0)
    assert (quick.allowed_us, slow.allowed_us) == (180, 540)
    assert quick.ratio == slow.ratio == 2.0


def test_without_a_round_there_is_no_judgement() -> None:
    with pytest.raises(CannotMeasure, match="no round"):
        judge([], 2.0)


@pytest.mark.parametrize("native", [True, False])
def test_the_committed_figures_are_there(native: bool) -> None:
    assert set(committed_figures(COMMITTED_FILE, native)) == {shape.case for shape in GUARD_LOADS}


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"native": {"c64": 1}}', '{"native": {"c64": 0, "b100": 1}}', '{"native": {"c64": "x"}}']
)
def test_figures_that_cannot_be_used_are_refused_by_the_files_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "figures.json"
    file.write_text(text)
    with pytest.raises(CannotMeasure, match=r"figures\.json"):
        committed_figures(file, native=True)


def test_noting_leaves_the_other_kind_alone(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    save_figures(file, True, {"c64": 3.5, "b100": 0.6})
    save_figures(file, False, {"c64": 5.0, "b100": 0.7})
    assert committed_figures(file, True) == {"c64": 3.5, "b100": 0.6}
    assert committed_figures(file, False) == {"c64": 5.0, "b100": 0.7}
