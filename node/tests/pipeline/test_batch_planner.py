"""Who gets a batch, and who is left to the stream."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from one_store_site import OneStoreSite
from store_process import COUNT_ONE

from txlog.client import FailoverClient, MasterClient, WorkerReport
from txlog.model.entry import KIND_UPDATE, Position
from txlog.model.quads import encode_quads
from txlog.pipeline.batch import batch_scheduler
from txlog.pipeline.batch.batch_scheduler import BatchScheduler
from txlog.pipeline.batch.catch_up import bucket_count
from txlog.pipeline.batch.cost_model import LogEstimate, decide_batch, estimate_log
from txlog.pipeline.batch.task_runner import InProcessRunner
from txlog.pipeline.worker_lanes import WorkerMutex, mutex_path
from txlog.workers import ADAPTERS
from txlog.workers.adapter import EMPTY_MARKER, LoadMarker
from txlog.workers.http_transport import HttpTransport
from txlog.workers.marker_names import loading_name


def quad(number: int) -> bytes:
    return b"<urn:s%d> <urn:p> <urn:o> ." % number


@pytest.mark.parametrize(
    ("guessed", "batch"),
    [
        (LogEstimate(1_000_000, 1.0, 0.0), True),
        (LogEstimate(100_000, 1.0, 0.0), False),
        (LogEstimate(100_000, 7.0, 0.0), True),
        (LogEstimate(1_000_000, 1.0, 0.001), False),  # an update after each thousand
        (LogEstimate(1_000_000, 1.0, 0.000_001), True),
        (LogEstimate(0, 0.0, 0.0), False),
        (LogEstimate(5_000_000, 0.0, 1.0), False),  # nothing but updates
    ],
)
def test_stream_or_batch(guessed: LogEstimate, batch: bool) -> None:
    assert decide_batch(guessed, 500_000).batch is batch


@pytest.mark.parametrize(
    ("guessed", "tasks", "buckets"),
    [
        (LogEstimate(10, 1.0, 0.0, 200.0), 2, 2),  # each task has something to do
        (LogEstimate(1_000_000, 1.0, 0.0, 200.0), 2, 6),
        (LogEstimate(2_900_000, 7.0, 0.0, 400.0), 2, 102),
        (LogEstimate(1_000, 1.0, 0.0, 16e6), 2, 382),  # few, but large ones
        (LogEstimate(10_000_000_000, 1.0, 0.0, 200.0), 3, 2001),
    ],
)
def test_a_bucket_fits_into_the_memory_of_a_task(guessed: LogEstimate, tasks: int, buckets: int) -> None:
    assert bucket_count(guessed, guessed.entries, tasks) == buckets


class Site(OneStoreSite):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder, batch_from=100)
        self.planner = BatchScheduler(self.config, InProcessRunner, threading.Event())

    def report(self, state: str = "Working") -> None:
        with MasterClient(self.feed.url) as master:
            master.report_worker("w1", WorkerReport(None, state))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()


def test_samples_tell_what_is_in_the_log(site: Site) -> None:
    site.log.append(*[encode_quads([quad(n)], [quad(n + 1), quad(n + 2)]) for n in range(900)])
    site.log.append(*[COUNT_ONE] * 100, kind=KIND_UPDATE)
    made = estimate_log(FailoverClient([site.feed.url]), 0, 1000)
    assert made.entries == 1000
    assert made.total == pytest.approx(2700, rel=0.3)
    assert made.updates == pytest.approx(0.1, rel=0.5)
    assert made.size == pytest.approx(
        sum(len(e.payload) for e in site.log.entries if e.kind != KIND_UPDATE) / 1000, 0.3
    )
    assert estimate_log(FailoverClient([site.feed.url]), 1000, 1000).total == 0


def test_it_waits_for_the_first_report_and_for_a_reason(site: Site) -> None:
    last = site.log.append(*[encode_quads([], [quad(n)]) for n in range(90)])
    assert site.planner.schedule_batches() == []  # nobody has looked at the worker yet
    site.report()
    assert site.planner.schedule_batches() == []  # too few
    last = site.log.append(*[encode_quads([], [quad(n)]) for n in range(90, 300)])
    for state in ("Unreachable", "Blocked", "Refused", "Diverged", "NeedsRestore"):
        site.report(state)
        assert site.planner.schedule_batches() == []
    site.report()
    site.feed.hold("w1", 5)
    assert site.planner.schedule_batches() == []
    site.feed.hold("w1", None)
    ((name, ended),) = site.planner.schedule_batches()
    assert (name, ended.error, ended.entries) == ("w1", None, last)
    assert len(site.store.select("SELECT ?s { ?s ?p ?o }")) == last
    assert site.feed.state("w1") == "Working"
    assert site.feed.position("w1") == last
    assert site.planner.schedule_batches() == []


def test_after_a_load_that_broke_off_the_stream_has_time_for_the_updates(site: Site) -> None:
    first = site.log.append(*[encode_quads([], [quad(n)]) for n in range(300)])
    site.log.append(COUNT_ONE, kind=KIND_UPDATE)
    last = site.log.append(*[encode_quads([], [quad(n)]) for n in range(300, 600)])
    end = site.log.entries[last - 1]
    load = LoadMarker(Position(1, last, end.hash), 5, EMPTY_MARKER)
    site.store.update(f"CREATE GRAPH <{loading_name(load)}>")
    site.report("Loading")
    ((_, ended),) = site.planner.schedule_batches()
    assert (ended.left_updates, ended.entries) == (True, first)
    assert site.feed.state("w1") == "Working"
    assert site.planner.schedule_batches() == []


def test_a_lane_gives_way_and_a_failed_batch_is_not_repeated_at_once(site: Site) -> None:
    site.log.append(*[encode_quads([], [quad(n)]) for n in range(300)])
    site.report()
    turn = WorkerMutex(mutex_path(site.config, "w1"))
    assert turn.try_acquire()
    asked = threading.Event()

    def lane() -> None:
        while not turn.is_reserved():
            pass
        asked.set()
        turn.release()

    thread = threading.Thread(target=lane)
    thread.start()
    site.store.kill()
    ((_, ended),) = site.planner.schedule_batches()
    thread.join(10)
    assert asked.is_set()
    assert ended.state == "Unreachable"
    assert not turn.is_reserved()
    site.store.start()
    site.report()
    assert site.planner.schedule_batches() == []


def test_no_batch_beside_a_lane_that_keeps_its_worker(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request of the lane may still be executed: it keeps the worker until its connection shows the end."""
    monkeypatch.setattr(batch_scheduler, "MUTEX_TIMEOUT_S", 0.2)
    last = site.log.append(*[encode_quads([], [quad(n)]) for n in range(300)])
    site.report()
    lane = WorkerMutex(mutex_path(site.config, "w1"))
    assert lane.try_acquire()
    assert site.planner.schedule_batches() == []
    with HttpTransport(site.store.url) as transport:
        adapter = ADAPTERS["oxigraph"]
        assert adapter.parse_is_empty(transport.send(adapter.is_empty()))
    assert not lane.is_reserved()
    lane.release()
    later = BatchScheduler(site.config, InProcessRunner, threading.Event())
    ((_, ended),) = later.schedule_batches()
    assert (ended.error, ended.entries) == (None, last)


def test_a_worker_that_was_added_while_the_application_runs(site: Site) -> None:
    last = site.log.append(*[encode_quads([], [quad(n)]) for n in range(300)])
    nowhere = site.config.model_copy(update={"workers": []})
    planner = BatchScheduler(nowhere, InProcessRunner, threading.Event())
    site.report()
    assert planner.schedule_batches() == []  # nobody says where it is
    site.feed.workers["w1"]["url"] = site.store.url
    ((_, ended),) = planner.schedule_batches()
    assert (ended.error, ended.entries) == (None, last)
