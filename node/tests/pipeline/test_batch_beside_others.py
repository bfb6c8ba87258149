"""What happens beside a batch: a rejoin that moves its log, and an applier that may still wait. Real stores."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from feed_stub import FeedStub, StubLog
from one_store_site import OneStoreSite
from store_process import COUNT_ONE

from e2e.lib.ports import free_port
from txlog.apply import EXECUTION_S, ApplyOutcome, MasterLog, WorkerState, apply_up_to
from txlog.client import MasterClient, WorkerReport
from txlog.model.entry import KIND_UPDATE, Position
from txlog.model.hashes import NO_HASH
from txlog.model.quads import encode_quads
from txlog.pipeline.batch import catch_up, log_range_reader
from txlog.pipeline.batch.catch_up import CatchUp, CatchUpResult, ReportCallback
from txlog.pipeline.batch.log_range_reader import read_ranges
from txlog.pipeline.batch.task_messages import BucketResult, LoadJob, LogRange, TaskFault
from txlog.pipeline.batch.task_runner import InProcessRunner, TaskRunner
from txlog.wire.log_page import encode_page, make_page
from txlog.workers import ADAPTERS
from txlog.workers.adapter import EMPTY_MARKER, LoadMarker
from txlog.workers.http_transport import HttpTransport

ADAPTER = ADAPTERS["oxigraph"]
IN_ORDER_MAX = 3
WAIT_S = 2.0


class Site(OneStoreSite):
    def batch(self, runner: TaskRunner, report: ReportCallback = lambda _: None) -> CatchUpResult:
        return CatchUp(
            self.config,
            "w1",
            runner,
            report,
            takeover_s=0.0,
            wait_s=WAIT_S,
            in_order_max=IN_ORDER_MAX,
        ).run()

    def stream(self) -> ApplyOutcome:
        with MasterClient(self.feed.url) as master, HttpTransport(self.store.url) as transport:
            return apply_up_to(ADAPTER, transport, MasterLog(master), self.feed.log.stable.index, budget_s=60.0)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path, execution_s=EXECUTION_S + 1)
    yield site
    site.close()


def add(log: StubLog, *names: str) -> int:
    return log.append(*[encode_quads([], [b"<urn:%s> <urn:p> <urn:o> <urn:g> ." % name.encode()]) for name in names])


class RejoinAfterwards(InProcessRunner):
    """The masters take another log as their own as soon as the tasks have loaded what they read."""

    def __init__(self, site: Site, merged: StubLog) -> None:
        super().__init__()
        self._site, self._merged = site, merged

    def run(self, job: LoadJob, ranges: Sequence[LogRange]) -> list[BucketResult]:
        done = super().run(job, ranges)
        self._site.feed.log = self._merged
        return done


def test_what_was_loaded_is_not_taken_for_another_log(site: Site) -> None:
    """The batch leaves a stretch of updates to the stream, at the position before it. By then the masters have another
    entry there."""
    merged = StubLog()
    for log, own in ((site.log, "abandoned"), (merged, "kept")):
        add(log, "common1", "common2")
        add(log, own, "later")
        log.append(*[COUNT_ONE] * (2 * IN_ORDER_MAX), kind=KIND_UPDATE)
    ended = site.batch(RejoinAfterwards(site, merged))
    found = site.stream()
    there = site.store.select("SELECT ?s { GRAPH <urn:g> { ?s ?p ?o } }")
    assert "urn:abandoned" in there, "it was loaded before the rejoin; otherwise this test shows nothing"
    assert found.state is WorkerState.DIVERGED, (ended, there)
    assert site.store.count() == 0


def test_the_lock_of_an_applier_that_may_still_wait_for_an_answer_is_left_to_it(site: Site) -> None:
    """The next entry may take a second longer than usual here, so nothing proves that its owner is dead before."""
    add(site.log, "a", "b")
    with HttpTransport(site.store.url) as transport:
        assert transport.send(ADAPTER.claim(7)).ok
    began = time.monotonic()
    ended = site.batch(InProcessRunner())
    assert (ended.state, ended.error) == (WorkerState.WORKING, None)
    assert time.monotonic() - began >= 1.0


def test_a_master_that_lags_makes_no_worker_diverged(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for an index without a hash, above its end, it answers without a hash, as real masters do."""
    monkeypatch.setattr(catch_up, "RANGE_ENTRIES_MIN", 2)
    last = add(site.log, *(f"s{n}" for n in range(10)))
    page, lags = site.feed.page, 2

    def answer(after: int, hash_hex: str | None, upto: int, bytes_max: int) -> bytes | str:
        nonlocal lags
        if hash_hex is None and after == upto and lags:
            lags -= 1
            return encode_page(make_page(Position(1, after, NO_HASH), [], site.log.at(1), site.log.cluster))
        return page(after, hash_hex, upto, bytes_max)

    monkeypatch.setattr(site.feed, "page", answer)
    ended = site.batch(InProcessRunner())
    assert (ended.state, ended.error, ended.entries) == (WorkerState.WORKING, None, last)
    assert lags == 0


@pytest.mark.parametrize("fails", ["store", "masters"])
def test_no_master_takes_a_worker_for_readable_whose_load_broke_off(
    site: Site, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds what no log has: a part of the net effect."""
    add(site.log, "a", "b")
    site.log.append(*[COUNT_ONE] * IN_ORDER_MAX, kind=KIND_UPDATE)
    reports: list[WorkerReport] = []

    class Breaking(InProcessRunner):
        def run(self, job: LoadJob, ranges: Sequence[LogRange]) -> list[BucketResult]:
            done = super().run(job, ranges)
            if fails == "store":
                return [each._replace(fault=TaskFault(WorkerState.UNREACHABLE, "no answer")) for each in done]
            monkeypatch.setattr(site.feed, "page", lambda *_: "Ahead")
            return done

    ended = site.batch(Breaking(), report=reports.append)
    assert (ended.marker, ended.state is WorkerState.LOADING) == (None, False)
    assert {each.state for each in reports} == {WorkerState.LOADING}
    assert ended.error is not None
    assert ended.error in (reports[-1].error or ""), "what broke off is named"


def fault_of(masters: Sequence[str], log: StubLog) -> str | None:
    """The state of the worker after a task has read the whole log from these masters; None without a fault."""
    loading = LoadMarker(log.stable, 1, EMPTY_MARKER)
    job = LoadJob(tuple(masters), "w1", "http://unused", "oxigraph", loading, 1, worker_was_empty=True)
    middle = log.at(1)
    ranges = [LogRange(log.start, middle), LogRange(middle, log.stable)]
    return next((found.state for _, found in read_ranges(job, ranges) if isinstance(found, TaskFault)), None)


def test_a_master_of_another_branch_makes_no_worker_diverged(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks begin at different masters. After a split, those of one data centre may be on both sides."""
    monkeypatch.setattr(log_range_reader, "NO_PAGE_TIMEOUT_S", 0.5)
    other = StubLog()
    add(site.log, "common", "mine", "mine2")
    add(other, "common", "other", "other2")
    there = FeedStub(other, ["w1"])
    try:
        here, gone = site.feed.url, f"http://127.0.0.1:{free_port()}"
        assert fault_of([there.url, here], site.log) is None
        assert fault_of([here, there.url], site.log) is None
        assert fault_of([gone, there.url, here], site.log) is None
        assert fault_of([there.url], site.log) == WorkerState.DIVERGED
        assert fault_of([there.url, gone], site.log) == WorkerState.LOADING, "it may have the position"
    finally:
        there.stop()
