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
from txlog.sites.link_errors import KeysDiffer, OtherLink
from txlog.sites.link_record import (
    RECORD_VERSION,
    TRANSFER_VERSION,
    LaterRecord,
    LinkRecord,
    RecordedKey,
    RecordHead,
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
CLUSTER = "c2"


class Store:
    """A store that executes a log, and the book of its site."""

    def __init__(self) -> None:
        self.quads, self.index = ox.Store(), 0
        self.book = SiteBook("lon", "nyc", KeyKind.PROPERTY, CLUSTER)

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
    source = "nyc", CLUSTER, KeyKind.PROPERTY
    record = LinkRecord(RECORD_VERSION, *source, number, step, book.cursor, to, 0, book.index, 9, 0, 0, 0, keys)
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
    change = store.execute(build_update(entry(StepKind.BEGIN, 2, store.book, 0), "b2"))
    assert store.book.cursor == 7
    assert find_record(change.adds, "nyc").names == (b"2.b2",)
    store.execute(build_update(entry(StepKind.BATCH, 2, store.book, 9), "c3"))
    assert store.book.cursor == 9


def begun() -> Store:
    """A store whose link has begun and imported once."""
    store = Store()
    store.execute(build_update(entry(StepKind.BEGIN, 1, store.book, 0), "b0"))
    store.execute(build_update(entry(StepKind.BATCH, 1, store.book, 7, adds=[NEW]), "c1"))
    return store


def changed(made: LinkEntry, **changes: object) -> LinkEntry:
    """An entry whose record is another one."""
    return made._replace(record=msgspec.structs.replace(made.record, **changes))


TWICE = [KEYS[0], KEYS[0]]
FORGED: list[dict[str, object]] = [
    {"number": 3},
    {"begin": 6},
    {"to": 7},
    {"decided": 0},
    {"decided": 1 << 62},
    {"site": "par"},
    {"cluster": "c9"},
    {"key": "quad"},
    {"clock": 1 << 63},
    {"seen": -1},
    {"version": 0},
    {"keys": TWICE},
    {"keys": [RecordedKey(b"<urn:s>", 5, "nyc", 4, "nyc", 7)]},
    {"keys": [RecordedKey(b"<urn:s> <urn:p> <urn:txlog:sites>", 5, "nyc", 4, "nyc", 7)]},
    {"keys": [RecordedKey(b"<urn:s> <urn:p>", 5, "par", 4, "nyc", 7)]},
    {"keys": [RecordedKey(b"<urn:s> <urn:p>", -5, "nyc", 4, "nyc", 7)]},
]


@pytest.mark.parametrize("changes", FORGED)
def test_a_record_that_is_not_the_next_one_is_a_write_of_a_client(changes: dict[str, object]) -> None:
    store = begun()
    wrong = changed(entry(StepKind.BATCH, 2, store.book, 9), **changes)
    store.execute(build_update(wrong, "c2").replace("site:from:par>", "site:from:nyc>"))
    assert (store.book.record, store.book.cursor, store.book.number, store.book.ignored) == (None, 7, 1, 1)
    store.execute("DROP GRAPH <urn:txlog:sites>")
    assert store.book.ignored == 1, "what only deletes writes no record"
    store.execute(build_update(entry(StepKind.BEGIN, 2, store.book, 0), "b3"))
    store.execute(build_update(entry(StepKind.BATCH, 2, store.book, 9, adds=[HERE]), "c3"))
    assert (store.book.record, store.book.cursor, store.book.number) == (b"2.c3", 9, 2)


def test_what_a_client_writes_with_a_record_is_its_own_change() -> None:
    store = begun()
    line = b"<urn:z> <urn:p> <urn:b> ."
    other = entry(StepKind.BATCH, 2, store.book, 9, adds=[line])
    store.execute(build_update(other, "c2"))
    assert (store.book.record, store.book.cursor, store.book.ignored) == (None, 7, 1)
    last = store.book.last_change(key_of(line, KeyKind.PROPERTY))
    assert last is not None
    assert (last.is_local, last.version.site, last.version.at) == (True, "lon", store.index)


@pytest.mark.parametrize(
    "quads",
    [
        '<urn:txlog:site:from:nyc> <urn:txlog:site:record> "2.x" ; <urn:txlog:site:contents> "AAAA"',
        '<urn:txlog:site:from:nyc> <urn:txlog:site:record> "2.x"',
        '<urn:txlog:site:from:nyc> <urn:txlog:site:contents> "AAAA"',
        '<urn:txlog:site:from:nyc> <urn:txlog:site:record> "2.x" , "2.y" ; <urn:txlog:site:contents> "AAAA"',
    ],
)
def test_two_quads_of_a_client_stop_no_book(quads: str) -> None:
    store = begun()
    store.execute(f"INSERT DATA {{ GRAPH <urn:txlog:sites> {{ {quads} }} }}")
    assert (store.book.record, store.book.ignored, store.book.touched) == (None, 1, store.index)


def test_a_record_whose_name_is_another_one_does_not_count() -> None:
    store = begun()
    text = build_update(entry(StepKind.BATCH, 2, store.book, 9), "c2").replace('"2.c2"', '"2.c3"')
    store.execute(text)
    assert (store.book.record, store.book.cursor, store.book.ignored) == (None, 7, 1)


def test_a_link_that_began_from_another_cluster_or_with_other_keys_is_not_continued() -> None:
    for changes, error in (({"cluster": "c9"}, OtherLink), ({"key": "quad"}, KeysDiffer)):
        store = Store()
        with pytest.raises(error, match="entry 1 of lon"):
            store.execute(build_update(changed(entry(StepKind.BEGIN, 1, store.book, 0), **changes), "b0"))
        assert (store.book.index, store.book.record, store.book.clock) == (0, None, 0)


def test_a_record_of_a_later_version_stops_the_link() -> None:
    store = begun()
    later = changed(entry(StepKind.BATCH, 2, store.book, 9), version=TRANSFER_VERSION + 1)
    with pytest.raises(LaterRecord, match="version 3"):
        store.execute(build_update(later, "c2"))
    other = begun()
    foreign = changed(entry(StepKind.BATCH, 2, other.book, 9), version=TRANSFER_VERSION + 1, cluster="c9")
    other.execute(build_update(foreign, "c2"))
    assert (other.book.record, other.book.ignored) == (None, 1)


def test_a_change_that_was_too_large_to_be_kept_needs_a_copy() -> None:
    book = SiteBook("lon", "nyc", KeyKind.PROPERTY)
    with pytest.raises(NeedsState, match="entry 1 of lon"):
        book.apply(SiteEntry(1, bytes(16), 1, ChangeSet(graphs=("",))))


def test_a_record_is_read_back_and_what_is_none_is_refused() -> None:
    record = entry(StepKind.BATCH, 1, SiteBook("lon", "nyc", KeyKind.PROPERTY), 7, adds=[NEW]).record
    text = encode_record(record, "ab")
    assert text.name == b"1.ab"
    assert decode_contents(text.contents) == msgspec.structs.replace(record, nonce="ab")
    newer = encode_record(msgspec.structs.replace(record, version=TRANSFER_VERSION + 1), "ab")
    assert decode_contents(newer.contents) == RecordHead(TRANSFER_VERSION + 1, "nyc", CLUSTER, "property", 1)
    for damaged in (b"", b"!!", text.contents[:-8], b"AAAA"):
        with pytest.raises(RecordNotRead, match="damaged"):
            decode_contents(damaged)
    line = b'<urn:txlog:site:from:lon> <urn:txlog:site:record> "1" <urn:txlog:sites> .'
    assert find_record((line,), "nyc") == ((), ())
    assert find_record((line,), "lon") == ((b"1",), ())


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
