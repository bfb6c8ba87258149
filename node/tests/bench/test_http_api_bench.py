"""What ``make bench-door`` rests on, on a small scale: it measures what it says, and a wrong answer ends it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.http_api import (
    N_QUADS,
    QUADS_IN_BODY,
    NumberedBodies,
    insert_cost,
    measure_stream,
    query_overhead_ms,
    ten_triple_bodies,
    upload_bodies,
)
from bench.http_api import upload_rate as rate_of
from e2e.lib.cluster.harness import MasterHarness, StoreKind, start_master_harness
from e2e.lib.cluster.masters import BenchMasters, three_masters
from e2e.lib.load.closed_loop import RequestTemplate
from e2e.lib.report import BenchReport, CannotMeasure
from txlog.model.errors import BadInput

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MasterHarness]:
    with start_master_harness(tmp_path_factory.mktemp("door"), {"worker": StoreKind.DISK}, ("worker",)) as made:
        yield made


def test_every_way_of_writing_gives_ten_quads_and_no_two_requests_are_the_same(at: MasterHarness) -> None:
    for media, body in ten_triple_bodies().values():
        at.update("DROP ALL")
        for number in (1, 2):
            filled = body.replace("%012d", f"{number:012d}")
            at.write("POST", "/statements", filled.encode(), media)
        assert len(at.stores["worker"].sorted_quads()) == 20
        requests: RequestTemplate = NumberedBodies(media, body, "accepted")
        first, second = requests.next_request(), requests.next_request()
        assert first != second
        head, _, rest = first.partition(b"\r\n\r\n")
        assert b"Content-Length: %d" % len(rest) in head


def test_a_query_is_asked_at_both_and_a_large_result_comes_whole(at: MasterHarness) -> None:
    straight, through = query_overhead_ms(at, 20)
    assert 0 < straight < 1000
    assert 0 < through < 1000
    grown, took, got = measure_stream(at, at.pid, 3_000_000)
    assert got >= 3_000_000
    assert took > 0
    assert grown < 50


def test_uploads_are_quads_without_blank_nodes_and_wrong_answers_are_no_figures(tmp_path: Path) -> None:
    [body] = upload_bodies(1)
    assert body.count(b"\n") == len(set(body.splitlines())) == QUADS_IN_BODY
    assert b"_:" not in body
    with three_masters(tmp_path / "one", nodes=(("uk-1", "uk"),)) as masters:
        small = body[: body.index(b"\n", 20_000) + 1]
        assert rate_of(masters.urls[0], [small, small], "synced") > 0
        assert _cost(masters, "<urn:a> <urn:b> <urn:%012d> .\n") > 0
        with pytest.raises(CannotMeasure, match="400"):
            _cost(masters, "<urn:a> <urn:b> <urn:%012d .\n")
        with pytest.raises(BadInput, match="MALFORMED"):
            rate_of(masters.urls[0], [b"no quad"], "accepted")


def _cost(masters: BenchMasters, body: str) -> float:
    cost = insert_cost(masters, N_QUADS, body, 0.2, clients=2)
    return cost.per_s


def test_a_missed_must_is_an_exit_code() -> None:
    report = BenchReport("door")
    report.at_most("insert10_cpu_us", 151.0, 150)
    assert report.end() == 1
