"""What happens beside a batch: a rejoin that moves its log, and an applier that may still wait. Real stores."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from feed_stub import StubLog
from one_store_site import OneStoreSite
from store_process import COUNT_ONE

from txlog.apply import EXECUTION_S, ApplyOutcome, MasterLog, WorkerState, apply_up_to
from txlog.client import MasterClient
from txlog.model.entry import KIND_UPDATE
from txlog.model.quads import encode_quads
from txlog.pipeline.batch.catch_up import CatchUp, CatchUpResult
from txlog.pipeline.batch.task_messages import BucketResult, LoadJob, LogRange
from txlog.pipeline.batch.task_runner import InProcessRunner, TaskRunner
from txlog.workers import ADAPTERS
from txlog.workers.http_transport import HttpTransport

ADAPTER = ADAPTERS["oxigraph"]
IN_ORDER_MAX = 3
WAIT_S = 2.0


class Site(OneStoreSite):
    def batch(self, runner: TaskRunner, *, takeover_s: float = 0.0) -> CatchUpResult:
        return CatchUp(
            self.config,
            "w1",
            runner,
            lambda _: None,
            takeover_s=takeover_s,
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
