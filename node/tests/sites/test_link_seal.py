"""A link that was taken offline: when nothing that it has written can take effect any more."""

from __future__ import annotations

from table_steps import NO_CHANGE, link_entry, local_entry

from txlog.changesets.change_set import ChangeSet
from txlog.sites.batches import cut_batch
from txlog.sites.decisions import plan_seal
from txlog.sites.keys import KeyKind
from txlog.sites.link_record import RecordedKey, StepKind
from txlog.sites.link_seal import LinkSeal
from txlog.sites.site_book import SiteBook
from txlog.sites.transfer_steps import is_torn

KEYS = [RecordedKey(b"<urn:s> <urn:p>", 1, "nyc", 1, "nyc", 1)]


def test_a_seal_closes_the_link_that_was_read_up_to_where_it_was_taken_offline() -> None:
    book = SiteBook("lon", "nyc", KeyKind.PROPERTY)
    book.apply(link_entry(book, StepKind.BEGIN))
    seal = LinkSeal(2)
    book.apply(link_entry(book, StepKind.SEAL))
    assert not seal.is_closed(book), "a seal of an earlier time offline"
    book.apply(link_entry(book, StepKind.BATCH, to=1, keys=KEYS))
    assert not seal.is_closed(book)
    book.apply(link_entry(book, StepKind.SEAL))
    assert seal.is_closed(book)
    book.apply(local_entry(book, NO_CHANGE))
    assert seal.is_closed(book), "clients write on"


def test_without_a_record_nothing_can_take_effect_where_the_log_was_read() -> None:
    book = SiteBook("lon", "nyc", KeyKind.PROPERTY)
    assert plan_seal(book) is None
    assert LinkSeal(0).is_closed(book)
    assert not LinkSeal(1).is_closed(book), "the record may be in what was not read"


def test_a_seal_imports_nothing_and_moves_no_cursor() -> None:
    book = SiteBook("lon", "nyc", KeyKind.PROPERTY)
    book.apply(link_entry(book, StepKind.BEGIN))
    book.apply(link_entry(book, StepKind.BATCH, to=7))
    plan = plan_seal(book)
    assert plan is not None
    assert (plan.expected, plan.record.step, plan.record.keys) == (book.record, StepKind.SEAL, [])
    before = book.cursor, book.acknowledged, book.number
    book.apply(link_entry(book, StepKind.SEAL))
    assert (book.cursor, book.acknowledged, book.number) == (*before[:2], before[2] + 1)
    book.apply(link_entry(book, StepKind.SEAL, keys=KEYS))
    assert (book.record, book.ignored) == (None, 1), "a seal with keys is none"


def test_a_page_counts_in_a_transfer_only() -> None:
    for step in (StepKind.PAGE, StepKind.END):
        book = SiteBook("lon", "nyc", KeyKind.PROPERTY)
        book.apply(link_entry(book, StepKind.BEGIN))
        book.apply(link_entry(book, step, to=7))
        assert (book.record, book.ignored, book.cursor) == (None, 1, 0)
        book.apply(link_entry(book, StepKind.TAKE))
        assert (book.is_taking, book.anchor) == (True, 3)
        book.apply(link_entry(book, step, to=7))
        assert (book.ignored, book.is_taking) == (0, step is StepKind.PAGE)


def test_a_book_that_waits_for_an_anchor_is_not_closed_and_begins_there_as_any_other() -> None:
    book, late = (SiteBook("lon", "nyc", KeyKind.PROPERTY) for _ in range(2))
    late.await_anchor(1)
    assert not LinkSeal(0).is_closed(late), "what it wrote before may take effect"
    first = link_entry(book, StepKind.BEGIN)
    book.apply(first)
    for step in (StepKind.SEAL, StepKind.RESET, StepKind.SEAL):
        entry = link_entry(book, step, to=9)
        book.apply(entry)
        late.apply(entry)
    assert {**vars(book), "_dirty": None} == {**vars(late), "_dirty": None}
    assert (book.anchor, book.cursor, book.acknowledged) == (3, 9, 3)


def test_no_batch_ends_within_a_transfer() -> None:
    book = SiteBook("nyc", "lon", KeyKind.PROPERTY)
    book.apply(link_entry(book, StepKind.TAKE))
    for number in (1, 2):
        book.apply(local_entry(book, ChangeSet((), (b'<urn:s%d> <urn:p> "1" .' % number,))))
    assert cut_batch(book, 1, 1) is None
    book.apply(link_entry(book, StepKind.END, to=7))
    batch = cut_batch(book, 1, 1)
    assert batch is not None
    assert (batch.to, batch.seen) == (4, 7)
    assert all(offer.change is None for offer in batch.offers), "whole values"


def test_a_reset_after_the_copy_is_named() -> None:
    taker, other = SiteBook("nyc", "lon", KeyKind.PROPERTY), SiteBook("lon", "nyc", KeyKind.PROPERTY)
    taker.apply(link_entry(taker, StepKind.TAKE))
    other.apply(link_entry(other, StepKind.RESET, to=1))
    taker.apply(link_entry(taker, StepKind.END, to=1))
    assert not is_torn(taker, other)
    other.apply(link_entry(other, StepKind.RESET, to=1))
    assert is_torn(taker, other)
    assert is_torn(other, taker)
