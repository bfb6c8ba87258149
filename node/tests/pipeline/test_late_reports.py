"""Reports to a master that was away: an old one must not pass for the newest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from feed_stub import FeedStub, StubLog
from store_process import until

from txlog.client import MasterClient, MasterUnreachable, WorkerReport
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


def test_a_pause_of_a_master_that_is_gone_ends(feed: FeedStub, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was killed in the middle of a comparison, for which it held the workers for a moment."""
    monkeypatch.setattr(progress_reporter, "RETRY_S", (0.01, 0.01))
    reporter, report = ProgressReporter([feed.url]), WorkerReport(None, "Working")
    feed.hold("w1", 3)
    reporter.send("w1", report)
    assert reporter.pause_index("w1") == 3

    def fail(*_: object) -> None:
        raise MasterUnreachable(feed.url, "gone", sent=False)

    with monkeypatch.context() as gone:
        gone.setattr(MasterClient, "report_worker", fail)
        reporter.send("w1", report)
        assert reporter.pause_index("w1") == 3, "it may be back at once, and pauses the worker still"
        gone.setattr(progress_reporter, "PAUSE_KEPT_S", 0.0)
        assert reporter.pause_index("w1") is None
    until(lambda: reporter.pause_index("w1") == 3)
