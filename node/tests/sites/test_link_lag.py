"""The lag of a link: it grows while nothing is imported, and never because the clocks of two sites differ."""

from __future__ import annotations

from table_steps import link_entry, local_entry

from txlog.changesets.change_set import ChangeSet
from txlog.sites.keys import KeyKind
from txlog.sites.link_lag import LagMeter, LinkLag, SourceState
from txlog.sites.link_record import RecordedKey, StepKind
from txlog.sites.site_book import LocalEntries, SiteBook

IDLE = SourceState(0, None, 0, is_answering=True)


def test_the_oldest_change_that_waits_is_measured() -> None:
    meter = LagMeter(0)
    assert meter.measure(IDLE, 5000) == LinkLag(0, 0)
    waiting = SourceState(3, 4000, 0, is_answering=True)
    assert meter.measure(waiting, 6000) == LinkLag(3, 2)
    assert meter.measure(waiting, 9000) == LinkLag(3, 5)
    assert meter.measure(waiting._replace(oldest_ms=99_000), 9000) == LinkLag(3, 0), "the other clock is ahead"


def test_what_is_not_read_waits_since_all_was_read_last() -> None:
    meter = LagMeter(0)
    meter.measure(IDLE, 5000)
    assert meter.measure(IDLE._replace(unread=7), 8000) == LinkLag(7, 3)
    assert meter.measure(SourceState(1, 6000, 7, is_answering=True), 9000) == LinkLag(8, 4)
    assert meter.measure(IDLE, 9000) == LinkLag(0, 0)


def test_a_site_that_does_not_answer_may_have_changes() -> None:
    meter = LagMeter(1000)
    silent = IDLE._replace(is_answering=False)
    assert meter.measure(silent, 3000) == LinkLag(0, 2), "since the link began"
    meter.measure(IDLE, 5000)
    lags = [meter.measure(silent, now).seconds for now in (5000, 6000, 60_000)]
    assert lags == [0, 1, 55]


def test_entries_of_clients_are_counted_and_imports_are_not() -> None:
    book = SiteBook("nyc", "lon", KeyKind.PROPERTY)
    assert book.local_entries(0) == LocalEntries(0, None)
    book.apply(link_entry(book, StepKind.BEGIN))
    keys = [RecordedKey(b"<urn:s> <urn:p>", 1, "lon", 1, "lon", 1)]
    for stamp, text in ((500, b"1"), (700, b"2")):
        book.apply(link_entry(book, StepKind.BATCH, to=book.cursor + 1, keys=keys, clock=stamp - 100))
        book.apply(local_entry(book, ChangeSet((), (b'<urn:s> <urn:p> "%s" .' % text,)), stamp))
    book.apply(local_entry(book, ChangeSet(), 900))  # it changed nothing
    assert book.local_entries(0) == LocalEntries(2, 500)
    assert book.local_entries(3) == LocalEntries(1, 700)
    assert book.local_entries(5) == LocalEntries(0, None)
    book.apply(link_entry(book, StepKind.BATCH, to=book.cursor + 1, seen=3))
    assert book.local_entries(3) == LocalEntries(1, 700), "what is forgotten is not counted"
