"""Who gets a batch, and who is left to the stream."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from feed_stub import FeedStub, StubLog
from store_process import COUNT_ONE, Store

from txlog.client import MasterClient, Masters, WorkerReport
from txlog.config.process import PipelineConfig
from txlog.model.entry import KIND_UPDATE
from txlog.model.quads import encode_quads
from txlog.pipeline.batch.catching_up import buckets_of
from txlog.pipeline.batch.engine import Here
from txlog.pipeline.batch.planner import Planner
from txlog.pipeline.batch.planning import Estimate, estimate, plan
from txlog.pipeline.lanes import Turn


def quad(number: int) -> bytes:
    return b"<urn:s%d> <urn:p> <urn:o> ." % number


@pytest.mark.parametrize(
    ("guessed", "batch"),
    [
        (Estimate(1_000_000, 1.0, 0.0), True),
        (Estimate(100_000, 1.0, 0.0), False),
        (Estimate(100_000, 7.0, 0.0), True),
        (Estimate(1_000_000, 1.0, 0.001), False),  # an update after each thousand
        (Estimate(1_000_000, 1.0, 0.000_001), True),
        (Estimate(0, 0.0, 0.0), False),
        (Estimate(5_000_000, 0.0, 1.0), False),  # nothing but updates
    ],
)
def test_stream_or_batch(guessed: Estimate, batch: bool) -> None:
    assert plan(guessed, 500_000).batch is batch


@pytest.mark.parametrize(
    ("guessed", "tasks", "buckets"),
    [
        (Estimate(10, 1.0, 0.0, 200.0), 2, 2),  # each task has something to do
        (Estimate(1_000_000, 1.0, 0.0, 200.0), 2, 6),
        (Estimate(2_900_000, 7.0, 0.0, 400.0), 2, 102),
        (Estimate(1_000, 1.0, 0.0, 16e6), 2, 382),  # few, but large ones
        (Estimate(10_000_000_000, 1.0, 0.0, 200.0), 3, 2001),
    ],
)
def test_a_bucket_fits_into_the_memory_of_a_task(guessed: Estimate, tasks: int, buckets: int) -> None:
    assert buckets_of(guessed, guessed.entries, tasks) == buckets


class Site:
    def __init__(self, folder: Path) -> None:
        self.log = StubLog()
        self.feed = FeedStub(self.log, ["w1"])
        self.store = Store(folder / "w1")
        self.config = PipelineConfig.model_validate(
            {
                "data_center": "uk",
                "masters": [self.feed.url],
                "workers": [{"name": "w1", "url": self.store.url}],
                "scratch_folder": folder / "scratch",
                "batch_from": 100,
            }
        )
        self.planner = Planner(self.config, Here, threading.Event())

    def report(self, state: str = "Working") -> None:
        with MasterClient(self.feed.url) as master:
            master.report_worker("w1", WorkerReport(None, state))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.feed.stop()
    site.store.kill()


def test_samples_tell_what_is_in_the_log(site: Site) -> None:
    site.log.append(*[encode_quads([quad(n)], [quad(n + 1), quad(n + 2)]) for n in range(900)])
    site.log.append(*[COUNT_ONE] * 100, kind=KIND_UPDATE)
    made = estimate(Masters([site.feed.url]), 0, 1000)
    assert made.entries == 1000
    assert made.total == pytest.approx(2700, rel=0.3)
    assert made.updates == pytest.approx(0.1, rel=0.5)
    assert made.size == pytest.approx(
        sum(len(e.payload) for e in site.log.entries if e.kind != KIND_UPDATE) / 1000, 0.3
    )
    assert estimate(Masters([site.feed.url]), 1000, 1000).total == 0


def test_it_waits_for_the_first_report_and_for_a_reason(site: Site) -> None:
    last = site.log.append(*[encode_quads([], [quad(n)]) for n in range(90)])
    assert site.planner.look() == []  # nobody has looked at the worker yet
    site.report()
    assert site.planner.look() == []  # too few
    last = site.log.append(*[encode_quads([], [quad(n)]) for n in range(90, 300)])
    for state in ("Unreachable", "Blocked", "Refused", "Diverged", "NeedsRestore"):
        site.report(state)
        assert site.planner.look() == []
    site.report()
    site.feed.hold("w1", 5)
    assert site.planner.look() == []
    site.feed.hold("w1", None)
    ((name, ended),) = site.planner.look()
    assert (name, ended.error, ended.entries) == ("w1", None, last)
    assert len(site.store.select("SELECT ?s { ?s ?p ?o }")) == last
    assert site.feed.state("w1") == "Working"
    assert site.feed.position("w1") == last
    assert site.planner.look() == []


def test_a_lane_gives_way_and_a_failed_batch_is_not_repeated_at_once(site: Site) -> None:
    site.log.append(*[encode_quads([], [quad(n)]) for n in range(300)])
    site.report()
    turn = Turn(site.config.scratch_folder / "turns" / "w1")
    assert turn.take()
    asked = threading.Event()

    def lane() -> None:
        while not turn.is_asked_for():
            pass
        asked.set()
        turn.give_back()

    thread = threading.Thread(target=lane)
    thread.start()
    site.store.kill()
    ((_, ended),) = site.planner.look()
    thread.join(10)
    assert asked.is_set()
    assert ended.state == "Unreachable"
    assert not turn.is_asked_for()
    site.store.start()
    site.report()
    assert site.planner.look() == []


def test_a_worker_that_was_added_while_the_application_runs(site: Site) -> None:
    last = site.log.append(*[encode_quads([], [quad(n)]) for n in range(300)])
    nowhere = site.config.model_copy(update={"workers": []})
    planner = Planner(nowhere, Here, threading.Event())
    site.report()
    assert planner.look() == []  # nobody says where it is
    site.feed.workers["w1"]["url"] = site.store.url
    ((_, ended),) = planner.look()
    assert (ended.error, ended.entries) == (None, last)
