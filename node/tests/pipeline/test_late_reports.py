"""Reports to a master that was away: an old one must not pass for the newest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from feed_stub import FeedStub, StubLog
from store_process import until

from txlog.client import WorkerReport
from txlog.pipeline import progress_reporter
from txlog.pipeline.progress_reporter import ProgressReporter


@pytest.fixture
def feed() -> Iterator[FeedStub]:
    feed = FeedStub(StubLog(), ["w1", "w2"])
    yield feed
    feed.stop()


def test_a_report_of_long_ago_is_not_sent(feed: FeedStub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has reported the worker since: it was blocked then, and has executed the transaction now."""
    monkeypatch.setattr(progress_reporter, "RESEND_S", 0.0)
    monkeypatch.setattr(progress_reporter, "RETRY_S", (0.01, 0.01))
    earlier, later = ProgressReporter([feed.url]), ProgressReporter([feed.url])
    feed.stop()
    earlier.send("w1", WorkerReport(None, "Blocked", "refuses it", 400, "no", "uk-1.0000000000000007.1"))
    feed.start()
    later.send("w1", WorkerReport(None, "Working"))
    earlier.send("w2", WorkerReport(None, "Working"))  # in the same queue, behind whatever is still there
    until(lambda: feed.state("w2") == "Working")
    assert feed.state("w1") == "Working"
    assert [report["state"] for worker, report in feed.reports if worker == "w1"] == ["Working"]


def test_a_report_of_just_now_is_sent_once_the_master_is_back(feed: FeedStub) -> None:
    reporter = ProgressReporter([feed.url])
    feed.stop()
    reporter.send("w1", WorkerReport(None, "Working"))
    feed.start()
    until(lambda: feed.state("w1") == "Working")
