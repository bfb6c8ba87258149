"""Batches of a book, and what a site plans to take of them."""

from __future__ import annotations

from table_steps import link_entry, local_entry

from txlog.changesets.change_set import ChangeSet
from txlog.sites.batches import Batch, Offer, cut_batch
from txlog.sites.decisions import plan_import, plan_step
from txlog.sites.keys import KeyKind
from txlog.sites.link_record import RecordedKey, StepKind, Version
from txlog.sites.site_book import SiteBook

ONE, TWO, FOREIGN = (b'<urn:s> <urn:p> "%d" .' % at for at in (1, 2, 3))
KEY = b"<urn:s> <urn:p>"


def book(name: str = "lon", other: str = "nyc") -> SiteBook:
    """A book whose link has begun."""
    made = SiteBook(name, other, KeyKind.PROPERTY)
    made.apply(link_entry(made, StepKind.BEGIN))
    return made


def write(into: SiteBook, deletes: tuple[bytes, ...], adds: tuple[bytes, ...], stamp: int = 0) -> None:
    into.apply(local_entry(into, ChangeSet(deletes, adds), stamp))


def test_a_batch_is_the_net_change_of_each_key() -> None:
    source = book()
    write(source, (), (ONE,))
    write(source, (ONE,), (TWO,))
    batch = cut_batch(source, 0)
    assert batch is not None
    assert batch.offers == [Offer(KEY, Version(3, "lon", 3), ChangeSet((), (TWO,)))]
    assert (batch.begin, batch.to, batch.seen) == (0, 3, 0)
    assert cut_batch(source, 3) is None


def test_a_batch_of_few_keys_ends_behind_a_whole_entry() -> None:
    source = book()
    write(source, (), (ONE, b"<urn:t> <urn:p> <urn:o> ."))
    write(source, (ONE,), ())
    batch = cut_batch(source, 0, keys_max=1)
    assert batch is not None
    assert (batch.to, len(batch.offers)) == (2, 2)


def test_a_key_that_was_imported_in_between_is_sent_whole() -> None:
    source = book()
    keys = [RecordedKey(KEY, 1, "nyc", 1, "nyc", 1)]
    source.apply(link_entry(source, StepKind.BATCH, to=1, keys=keys, change=ChangeSet((), (FOREIGN,))))
    write(source, (FOREIGN,), (ONE,))
    batch = cut_batch(source, 0)
    assert batch is not None
    assert batch.offers == [Offer(KEY, Version(3, "lon", 3), None)]
    assert batch.seen == 1


def test_what_was_only_imported_is_not_sent_back_and_is_acknowledged_once() -> None:
    source = book()
    keys = [RecordedKey(KEY, 1, "nyc", 1, "nyc", 1)]
    source.apply(link_entry(source, StepKind.BATCH, to=1, keys=keys, change=ChangeSet((), (FOREIGN,))))
    batch = cut_batch(source, 0)
    assert batch is not None
    assert (batch.offers, batch.seen) == ([], 1)
    source.apply(link_entry(source, StepKind.BATCH, to=2))
    assert cut_batch(source, batch.to) is None, "an import without keys is no reason for another one"


def test_no_batch_begins_where_changes_are_forgotten() -> None:
    source = book()
    write(source, (), (ONE,))
    source.apply(link_entry(source, StepKind.BATCH, to=1, seen=2))
    write(source, (ONE,), (TWO,))
    assert cut_batch(source, 1) is None
    assert cut_batch(source, 2) is not None


def test_a_write_after_an_import_has_the_greater_version_whatever_clocks_say() -> None:
    target = book()
    target.apply(link_entry(target, StepKind.BATCH, to=9, clock=500))
    write(target, (), (ONE,), stamp=3)
    assert target.version(KEY) > Version(500, "nyc", 9)


def test_corrections_and_batches_take_turns() -> None:
    source, target = book("nyc", "lon"), book()
    write(source, (), (FOREIGN,))
    write(target, (), (ONE,))
    keys = [RecordedKey(KEY, 9, "nyc", 1, "nyc", 1)]
    target.apply(link_entry(target, StepKind.BATCH, to=1, keys=keys, decided=1))
    batch = cut_batch(source, 1)
    assert batch is not None
    plan = plan_step(target, batch)
    assert plan is not None
    assert plan.record.step is StepKind.CORRECTION
    target.apply(link_entry(target, StepKind.CORRECTION))
    turn = plan_step(target, batch)
    assert turn is not None
    assert turn.record.step is StepKind.BATCH


def test_an_older_write_does_not_beat_a_value_that_waits() -> None:
    target = book()
    write(target, (), (ONE,))
    keys = [RecordedKey(KEY, 9, "nyc", 1, "nyc", 1)]
    target.apply(link_entry(target, StepKind.BATCH, to=1, keys=keys, decided=1))
    assert target.needs[KEY].version == Version(9, "nyc", 1)
    for stamp, taken in ((5, 0), (10, 1)):
        offer = Offer(KEY, Version(stamp, "nyc", 2), ChangeSet((), (FOREIGN,)))
        plan = plan_import(target, Batch("nyc", 1, 2, 0, 20, [offer]))
        assert len(plan.record.keys) == taken
        assert not plan.changes, "what waits is written whole"
