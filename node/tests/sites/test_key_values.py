"""Values of keys at any position that the change log keeps, while the store is at its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from txlog.changesets import CapturedEntry, CaptureStore, ChangeLogReader, ChangesGone, LogStep, combine
from txlog.model.entry import KIND_QUADS, KIND_UPDATE, Position
from txlog.model.errors import BadInput, LogAhead, LogDiverged, TooLarge, Unavailable
from txlog.sites import key_values
from txlog.sites.key_values import KEYS_MAX, ValuesRequest, decode_values_request, read_values
from txlog.sites.keys import KeyKind, KeyPattern, key_of, pattern_of
from txlog.sites.site_book import NeedsState

START = Position(0, 0, b"h" * 16)
ENTRIES = (
    (
        KIND_QUADS,
        b'A <x:a> <x:p> "1" .\nA <x:a> <x:p> "2" .\n'
        b'A <x:a> <x:q> "1.50"^^<http://www.w3.org/2001/XMLSchema#decimal> .\n',
    ),
    (KIND_QUADS, b'D <x:a> <x:p> "1" .\nA <x:a> <x:p> "3" <x:g> .\n'),
    (KIND_UPDATE, b'DELETE { ?s ?p ?o } INSERT { ?o2 <x:r> ?s . ?s ?p "4" } WHERE { ?s ?p ?o BIND(<x:b> AS ?o2) }'),
    (KIND_QUADS, b'A <x:a> <x:p> "1" .\nD <x:a> <x:p> "4" .\n'),
    (KIND_UPDATE, b"CLEAR ALL"),
    (KIND_QUADS, b'A <x:a> <x:p> "9" .\n'),
)


def hash_of(index: int) -> bytes:
    return index.to_bytes(16, "big") if index else START.hash


def made(folder: Path, quads_max: int = 1000) -> tuple[CaptureStore, ChangeLogReader]:
    store = CaptureStore(folder, START, clock_ms=lambda: 0, quads_max=quads_max)
    for index, (kind, payload) in enumerate(ENTRIES, 1):
        store.apply([LogStep(CapturedEntry(index, hash_of(index), f"m.1.{index}", 0, kind), payload)])
    return store, ChangeLogReader(folder / "changes")


@pytest.mark.parametrize("kind", list(KeyKind))
def test_a_value_is_what_the_key_had_at_the_position(tmp_path: Path, kind: KeyKind) -> None:
    store, reader = made(tmp_path)
    changes = [record.change_set for record in store.entries(0)]
    keys = sorted({key_of(line, kind) for each in changes for line in (*each.deletes, *each.adds)})
    for index in range(len(ENTRIES) + 1):
        there = combine(changes[:index]).adds
        request = ValuesRequest(index, kind, [key.decode() for key in keys], hash_of(index).hex())
        found = read_values(store, reader, request).values
        assert found == [sorted(line.decode() for line in there if key_of(line, kind) == key) for key in keys], index
    store.close()
    with pytest.raises(Unavailable):
        read_values(store, reader, request)


def test_a_position_that_is_not_there_is_refused(tmp_path: Path) -> None:
    store, reader = made(tmp_path)
    with pytest.raises(LogAhead):
        read_values(store, reader, ValuesRequest(9, KeyKind.SUBJECT, ["<x:a>"]))
    with pytest.raises(LogDiverged):
        read_values(store, reader, ValuesRequest(3, KeyKind.SUBJECT, ["<x:a>"], hash_of(2).hex()))
    store.abandon()
    late = CaptureStore(tmp_path / "late", Position(0, 4, hash_of(4)))
    with pytest.raises(ChangesGone):
        read_values(late, ChangeLogReader(tmp_path / "late" / "changes"), ValuesRequest(3, KeyKind.SUBJECT, ["<x:a>"]))
    late.abandon()


def test_no_value_is_given_from_before_a_change_that_was_not_kept(tmp_path: Path) -> None:
    store, reader = made(tmp_path, quads_max=2)
    with pytest.raises(NeedsState, match="changed more quads"):
        read_values(store, reader, ValuesRequest(0, KeyKind.SUBJECT, ["<x:a>"]))
    assert read_values(store, reader, ValuesRequest(6, KeyKind.SUBJECT, ["<x:a>"])).values == [['<x:a> <x:p> "9" .']]
    store.abandon()


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"{", BadInput),
        (b'{"index": 1, "kind": "graph", "keys": []}', BadInput),
        (b'{"index": -1, "kind": "quad", "keys": []}', BadInput),
        (b'{"index": 1, "kind": "property", "keys": ["<x:a>"]}', BadInput),
        (b'{"index": 1, "kind": "subject", "keys": [], "hash": "no"}', BadInput),
        (b'{"index": 1, "kind": "subject", "keys": [%s]}' % b",".join([b'"<x:a>"'] * (KEYS_MAX + 1)), TooLarge),
    ],
)
def test_a_bad_request_is_refused(body: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        decode_values_request(body)


def test_only_what_changed_of_the_keys_that_were_asked_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, reader = made(tmp_path)
    monkeypatch.setattr(key_values, "CHANGE_BYTES_MAX", 10)
    assert read_values(store, reader, ValuesRequest(0, KeyKind.SUBJECT, ["<x:other>"])).values == [[]]
    with pytest.raises(TooLarge, match="of these keys have changed"):
        read_values(store, reader, ValuesRequest(0, KeyKind.SUBJECT, ["<x:a>"]))
    store.abandon()


def test_values_are_not_read_beyond_the_bound_of_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, reader = made(tmp_path)
    seen: list[int] = []

    def counted(key: bytes, kind: KeyKind) -> KeyPattern:
        seen.append(1)
        return pattern_of(key, kind)

    monkeypatch.setattr(key_values, "pattern_of", counted)
    monkeypatch.setattr(key_values, "ANSWER_BYTES_MAX", 10)
    with pytest.raises(TooLarge, match="more than 10 bytes"):
        read_values(store, reader, ValuesRequest(6, KeyKind.SUBJECT, ["<x:a>", *["<x:b>"] * 50]))
    assert len(seen) == 1
    store.abandon()
