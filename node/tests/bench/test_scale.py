"""What the curves are made of: models, bodies, and one curve on real masters."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.curve_points import deviation_pct
from bench.scale import PART_BYTES, build_body, fit_masters_model, main
from bench.scale_workers import extrapolate

ROOT = Path(__file__).parents[3]


def test_the_model_of_masters_is_what_each_does_alone_and_for_each_other() -> None:
    def cost(count: int) -> float:
        return 33 * count + 14 * count * (count - 1)

    for count in (3, 5, 7, 9):
        assert fit_masters_model(cost(3), cost(5), count) == pytest.approx(cost(count))


def test_the_model_of_workers_is_a_line_through_one_and_four() -> None:
    for count in (1, 4, 8, 16):
        assert extrapolate(30 + 5, 30 + 5 * 4, count) == pytest.approx(30 + 5 * count)


def test_how_far_a_model_is_off() -> None:
    assert deviation_pct(90, 100) == pytest.approx(-10)


@pytest.mark.parametrize("size", [100, 1_000, 10_000, PART_BYTES])
def test_a_body_is_as_large_as_its_point_says_and_never_comes_twice(size: int) -> None:
    first, second = build_body(size, 0, size), build_body(size, 1, size)
    assert len(first) == len(second) == size
    assert not set(first.splitlines()) & set(second.splitlines())


@pytest.mark.parametrize("arguments", [["--only", "moons"], ["--seconds", "0"], ["--seconds", "21"]])
def test_what_cannot_be_measured_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2


@pytest.mark.cluster
@pytest.mark.timeout(240)
def test_the_curve_of_latency_shows_the_distance() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.scale", "--only", "latency", "--seconds", "1"],
        cwd=ROOT,
        env=dict(os.environ, TXLOG_NATIVE="0"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    points = {point["at"]: point for point in json.loads(done.stdout.splitlines()[-1])["points"]}
    assert list(points) == [0, 10, 50, 100, 200]
    for round_trip, point in points.items():
        assert point["p50_ms"] >= round_trip
        assert point["model_p50_ms"] == pytest.approx(points[0]["p50_ms"] + round_trip)
