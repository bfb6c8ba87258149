"""Entries of a link as updates: executed on a store, they count once, in their order, whatever is repeated."""

from __future__ import annotations

import msgspec
import pyoxigraph as ox
import pytest

from txlog.changesets import apply_entry
from txlog.changesets.change_set import ChangeSet
from txlog.model.entry import KIND_UPDATE
from txlog.sites.decisions import LinkEntry
from txlog.sites.keys import KeyKind, key_of
from txlog.sites.link_record import (
    RECORD_VERSION,
    LinkRecord,
    RecordedKey,
    RecordNotRead,
    StepKind,
    decode_contents,
    encode_record,
    find_record,
)
from txlog.sites.link_update import build_update
from txlog.sites.site_book import NeedsState, SiteBook, SiteEntry
from txlog.sparql import prepare_update
from txlog.workers.adapter import StoreOperation

OLD, NEW, HERE = (
    b'<urn:a> <urn:p> "old" <urn:g> .',
    b'<urn:a> <urn:p> "new \\"1\\"" <urn:g> .',
    b"<urn:a> <urn:p> <urn:b> .",
)
KEYS = [
    RecordedKey(b"<urn:a> <urn:p> <urn:g>", 5, "nyc", 4, "nyc", 7),
    RecordedKey(b"<urn:a> <urn:p>", 5, "nyc", 4, "nyc", 7),
]


class Store:
    """A store that executes a log, and the book of its site."""

    def __init__(self) -> None:
        self.quads, self.index = ox.Store(), 0
        self.book = SiteBook("lon", "nyc", KeyKind.PROPERTY)

    def execute(self, text: str) -> ChangeSet:
        body = prepare_update(text, base=None, now="2026-01-01T00:00:00Z", draw=lambda: 0)
        change = apply_entry(self.quads, StoreOperation(body.kind, body.payload))
        self.index += 1
        self.book.apply(SiteEntry(self.index, bytes(16), self.index, change))
        return change

    def lines(self) -> set[bytes]:
        return {f"{quad} .".encode() for quad in self.quads if b"urn:txlog:" not in str(quad).encode()}


def entry(step: StepKind, number: int, book: SiteBook, to: int, **more: object) -> LinkEntry:
    expected = None if step is StepKind.BEGIN else book.record
    keys = KEYS if more else []
    record = LinkRecord(RECORD_VERSION, step, "nyc", number, book.cursor, to, 0, book.index, 9, 0, 0, 0, keys)
    return LinkEntry(expected, record, list(more.get("deletes", ())), list(more.get("adds", ())))  # type: ignore[call-overload]


def test_an_entry_counts_after_the_one_before_it_and_once() -> None:
    store = Store()
    store.execute('INSERT DATA { GRAPH <urn:g> { <urn:a> <urn:p> "old" } }')
    begin = build_update(entry(StepKind.BEGIN, 1, store.book, 0), "b0")
    batch = entry(StepKind.BATCH, 1, store.book, 7, deletes=[OLD], adds=[NEW, HERE])
    assert len(store.execute(build_update(batch._replace(expected=b"1.none"), "c0"))) == 0  # no record is there yet
    store.execute(begin)
    assert store.book.record == b"1.b0"
    batch = entry(StepKind.BATCH, 1, store.book, 7, deletes=[OLD], adds=[NEW, HERE])
    text = build_update(batch, "c1")
    assert prepare_update(text, base=None, now="", draw=lambda: 0).kind == KIND_UPDATE
    store.execute(text)
    assert store.lines() == {NEW, HERE}
    assert (store.book.cursor, store.book.number, store.book.record) == (7, 1, b"1.c1")
    store.execute("DELETE DATA { <urn:a> <urn:p> <urn:b> }")
    assert len(store.execute(text)) == 0
    assert store.lines() == {NEW}
    assert len(list(store.quads.quads_for_pattern(None, None, None, ox.NamedNode("urn:txlog:sites")))) == 2


def test_a_record_that_a_client_takes_away_is_begun_again() -> None:
    store = Store()
    store.execute(build_update(entry(StepKind.BEGIN, 1, store.book, 0), "b0"))
    store.execute(build_update(entry(StepKind.BATCH, 1, store.book, 7, adds=[NEW]), "c1"))
    store.execute("CLEAR ALL")
    assert store.book.record is None
    foreign = 'GRAPH <urn:txlog:sites> { <urn:txlog:site:from:nyc> <urn:txlog:site:record> "7.x" }'
    store.execute(f"INSERT DATA {{ {foreign} }}")
    assert store.book.record is None
    assert len(store.execute(build_update(entry(StepKind.BEGIN, 2, store.book, 0), "b1"))) == 0
    store.execute(f"DELETE DATA {{ {foreign} }}")
    store.execute(build_update(entry(StepKind.BEGIN, 2, store.book, 0), "b2"))
    assert (store.book.record, store.book.cursor) == (b"2.b2", 7)
    store.execute(build_update(entry(StepKind.BATCH, 2, store.book, 9), "c3"))
    assert store.book.cursor == 9


def test_a_record_that_is_not_the_next_one_is_refused() -> None:
    store = Store()
    store.execute(build_update(entry(StepKind.BEGIN, 1, store.book, 0), "b0"))
    wrong = entry(StepKind.BATCH, 3, store.book, 7)
    with pytest.raises(RecordNotRead, match="not the next one"):
        store.execute(build_update(wrong, "c1"))


def test_a_change_of_a_key_without_a_version_is_refused() -> None:
    store = Store()
    store.execute(build_update(entry(StepKind.BEGIN, 1, store.book, 0), "b0"))
    other = entry(StepKind.BATCH, 1, store.book, 7, adds=[b"<urn:z> <urn:p> <urn:b> ."])
    with pytest.raises(RecordNotRead, match="does not name"):
        store.execute(build_update(other, "c1"))


def test_a_change_that_was_too_large_to_be_kept_needs_a_copy() -> None:
    book = SiteBook("lon", "nyc", KeyKind.PROPERTY)
    with pytest.raises(NeedsState, match="entry 1 of lon"):
        book.apply(SiteEntry(1, bytes(16), 1, ChangeSet(graphs=("",))))


def test_a_record_is_read_back_and_what_is_none_is_refused() -> None:
    record = entry(StepKind.BATCH, 1, SiteBook("lon", "nyc", KeyKind.PROPERTY), 7, adds=[NEW]).record
    text = encode_record(record, "ab")
    assert text.name == b"1.ab"
    assert decode_contents(text.contents) == msgspec.structs.replace(record, nonce="ab")
    newer = encode_record(msgspec.structs.replace(record, version=2), "ab")
    with pytest.raises(RecordNotRead, match="version 2"):
        decode_contents(newer.contents)
    for damaged in (b"", b"!!", text.contents[:-8], b"AAAA"):
        with pytest.raises(RecordNotRead, match="damaged"):
            decode_contents(damaged)
    assert find_record((b'<urn:txlog:site:from:lon> <urn:txlog:site:record> "1" <urn:txlog:sites> .',), "nyc") == (
        None,
        None,
    )


def test_an_entry_deletes_from_its_own_graph_alone() -> None:
    store = Store()
    store.execute("INSERT DATA { <urn:a> <urn:p> <urn:b> . GRAPH <urn:g> { <urn:a> <urn:p> <urn:b> } }")
    store.execute(build_update(entry(StepKind.BEGIN, 1, store.book, 0), "b0"))
    store.execute(build_update(entry(StepKind.BATCH, 1, store.book, 7, deletes=[HERE]), "c1"))
    assert store.lines() == {b"<urn:a> <urn:p> <urn:b> <urn:g> ."}


def test_an_entry_with_many_graphs_and_quads_counts_as_one() -> None:
    store = Store()
    store.execute(build_update(entry(StepKind.BEGIN, 1, store.book, 0), "b0"))
    adds = [b"<urn:a> <urn:p> <urn:o%d> <urn:g%d> ." % (at, at) for at in range(700)]
    adds += [b"<urn:a> <urn:p> <urn:o%d> ." % at for at in range(5000)]
    keys = [
        RecordedKey(key, 5, "nyc", 4, "nyc", 7) for key in sorted({key_of(line, KeyKind.PROPERTY) for line in adds})
    ]
    batch = entry(StepKind.BATCH, 1, store.book, 7, adds=adds)
    text = build_update(batch._replace(record=msgspec.structs.replace(batch.record, keys=keys)), "c1")
    change = store.execute(text)
    assert set(adds) == store.lines()
    assert len(change) == len(adds) + 4
    assert store.book.cursor == 7
    assert len(store.execute(text)) == 0
