"""Where a batch becomes sooner there than the stream."""

from __future__ import annotations

import pytest

from bench.breakeven import find_crossing


@pytest.mark.parametrize(
    ("found", "at"),
    [
        ([(100, 1.0, 3.0), (200, 2.0, 3.0), (400, 4.0, 3.0)], 300.0),
        ([(100, 2.0, 1.0), (200, 4.0, 2.0)], 100.0),  # always
        ([(100, 1.0, 2.0), (200, 2.0, 4.0)], None),  # never
        ([(100, 2.0, 1.0), (200, 2.0, 3.0), (300, 5.0, 3.0)], 233.3),  # for good only behind 200
        ([], None),
    ],
)
def test_where_lines_cross(found: list[tuple[int, float, float]], at: float | None) -> None:
    assert find_crossing(found) == pytest.approx(at, abs=0.1)
