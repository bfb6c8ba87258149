"""The change sets of entries: case by case, and random ones against a store that executes the same text."""

from __future__ import annotations

import random

import pyoxigraph as ox
import pytest
from random_entries import execute_as_worker, held, random_entries, wrong_entries

from txlog.changesets import ChangeSet, EntryRefused, apply_change, apply_entry, combine, decode_change_set, operations
from txlog.model.entry import KIND_QUADS, KIND_SKIP, KIND_UPDATE
from txlog.model.quads import encode_quads
from txlog.sparql import DataFingerprint, build_effect
from txlog.workers.adapter import StoreOperation

DATA = """INSERT DATA { <x:a> <x:p> 1 , 2 . <x:b> <x:p> "two"@en .
  GRAPH <x:g> { <x:a> <x:q> 1.5 } GRAPH <x:h> { <x:a> <x:q> 1.5 . <x:c> <x:q> <<( <x:a> <x:p> 1 )>> } }"""
INTEGER = b'"^^<http://www.w3.org/2001/XMLSchema#integer>'
DECIMAL = b'"^^<http://www.w3.org/2001/XMLSchema#decimal>'


def _update(text: str) -> StoreOperation:
    return StoreOperation(KIND_UPDATE, text.encode())


def _change(*texts: str) -> ChangeSet:
    """The change set of the last text; the store is as a worker that executed them all."""
    store, worker = ox.Store(), ox.Store()
    change = ChangeSet()
    for text in (DATA, *texts):
        before = held(worker)
        change = apply_entry(store, _update(text))
        execute_as_worker(worker, _update(text))
        assert held(store) == held(worker), text
        assert (set(change.deletes), set(change.adds)) == (before - held(worker), held(worker) - before), text
    return change


@pytest.mark.parametrize(
    ("text", "deletes", "adds"),
    [
        ("DELETE DATA { <x:a> <x:p> 1 , 7 }", 1, 0),
        ("DELETE DATA { GRAPH <x:g> { <x:a> <x:q> 1.50 } }", 1, 0),
        ("INSERT DATA { <x:a> <x:p> 01 , 3 }", 0, 1),
        ("DELETE { ?s <x:p> ?o } INSERT { ?s <x:p> ?o } WHERE { ?s <x:p> ?o }", 0, 0),
        ("DELETE { <x:a> <x:p> ?o } INSERT { <x:a> <x:p> ?n } WHERE { VALUES (?o ?n) { (1 2) (2 1) } }", 0, 0),
        ("DELETE { GRAPH <x:g> { <x:a> <x:q> 1.50 } } WHERE { ?s ?p ?o }", 1, 0),
        ("DELETE { ?s ?p ?o } WHERE { ?s ?p ?o FILTER(?o = 99) }", 0, 0),
        ("DELETE WHERE { <x:a> <x:p> ?o }", 2, 0),
        ("DELETE WHERE { GRAPH ?g { <x:a> ?p ?o } }", 2, 0),
        ("INSERT { ?o <x:p> ?s } WHERE { ?s <x:p> ?o }", 0, 0),
        ("INSERT { ?s <x:is> ?none } WHERE { ?s <x:p> ?o }", 0, 0),
        ("INSERT { GRAPH ?o { <x:s> <x:p> 1 } } WHERE { ?s <x:p> ?o }", 0, 0),
        ("INSERT { GRAPH ?s { <x:s> <x:p> 1 } <x:s> <x:p> 1 } WHERE { ?s <x:p> ?o }", 0, 3),
        ("INSERT { ?s <x:said> <<( ?s <x:p> ?o )>> } WHERE { ?s <x:p> ?o }", 0, 3),
        ("INSERT { <x:a> <x:said> <<( ?s <x:p> '''c''' )>> , 'c'@EN } WHERE { ?s <x:p> ?o }", 0, 3),
        ("INSERT { ?s <x:twice> ?d } WHERE { ?s <x:p> ?o BIND(?o * 1.50 AS ?d) }", 0, 2),
        ("WITH <x:g> DELETE { ?s ?p ?o } INSERT { ?s <x:new> ?o } WHERE { ?s ?p ?o }", 1, 1),
        ("WITH <x:g> INSERT { ?s <x:new> ?o } WHERE { GRAPH <x:h> { ?s ?p ?o } }", 0, 2),
        ("WITH <x:g> INSERT { ?s <x:new> ?o } USING <x:h> WHERE { ?s ?p ?o }", 0, 2),
        ("INSERT { ?s <x:new> ?o } USING <x:h> USING <x:g> WHERE { ?s ?p ?o }", 0, 2),
        ("INSERT { ?s <x:new> ?o } USING NAMED <x:h> WHERE { GRAPH ?g { ?s ?p ?o } }", 0, 2),
        (
            "DELETE { GRAPH <x:g> { ?s ?p ?o } . } INSERT { GRAPH <x:i> { ?s ?p ?o } ?s ?p ?o } "
            "WHERE { GRAPH <x:g> { ?s ?p ?o } }",
            1,
            2,
        ),
        ("CLEAR SILENT GRAPH <x:h>", 2, 0),
        ("DROP SILENT DEFAULT", 3, 0),
        ("CLEAR SILENT NAMED", 3, 0),
        ("DROP SILENT ALL", 6, 0),
        ("CREATE SILENT GRAPH <x:new>", 0, 0),
        ("COPY SILENT <x:g> TO <x:h>", 1, 0),
        ("MOVE SILENT GRAPH <x:h> TO GRAPH <x:g>", 2, 1),
        ("ADD SILENT DEFAULT TO <x:g>", 0, 3),
        ("COPY SILENT <x:missing> TO <x:g>", 1, 0),
        ("MOVE SILENT <x:g> TO <x:g>", 0, 0),
        ("INSERT DATA { <x:n> <x:p> 1 } ;\nDELETE DATA { <x:n> <x:p> 1 }", 0, 0),
        ("DELETE DATA { <x:a> <x:p> 1 } ;\nINSERT { ?s <x:r> ?o } WHERE { ?s <x:p> ?o }", 1, 2),
        (
            "INSERT DATA { <x:n> <x:p> 'a ; } b' } ;\nDELETE { ?s ?p ?o } WHERE { ?s ?p ?o FILTER(?o = 'a ; } b') }",
            0,
            0,
        ),
    ],
)
def test_what_an_operation_changes(text: str, deletes: int, adds: int) -> None:
    change = _change(text)
    assert (len(change.deletes), len(change.adds)) == (deletes, adds)


def test_an_entry_of_data_lists_what_was_there_and_what_was_not() -> None:
    store = ox.Store()
    apply_entry(store, _update(DATA))
    one, three = (b'<x:a> <x:p> "%d%s .' % (number, INTEGER) for number in (1, 3))
    sent = encode_quads(
        [one.replace(b'"1"', b'"01"'), b"<x:a> <x:p> <x:none> ."], [three, three.replace(b'"3"', b'"+3"')]
    )
    assert apply_entry(store, StoreOperation(KIND_QUADS, sent)) == ChangeSet((one,), (three,))
    assert apply_entry(store, StoreOperation(KIND_QUADS, b"")) == ChangeSet()


def test_a_quad_that_is_deleted_and_added_in_other_forms_is_no_change() -> None:
    store = ox.Store()
    apply_entry(store, StoreOperation(KIND_QUADS, b'A <x:a> <x:p> "1.5%s .\n' % DECIMAL))
    changed = b'D <x:a> <x:p> "1.50%s .\nA <x:a> <x:p> "1.500%s .\n' % (DECIMAL, DECIMAL)
    assert apply_entry(store, StoreOperation(KIND_QUADS, changed)) == ChangeSet()


def test_an_effect_behind_a_condition_that_fails_changes_nothing() -> None:
    effect = build_effect([b"<x:a> <x:p> <x:b> ."], [b"<x:a> <x:p> <x:c> ."], ["<x:p>"], DataFingerprint(17, 1, 1))
    store = ox.Store()
    apply_entry(store, _update(DATA))
    assert apply_entry(store, StoreOperation(effect.kind, effect.payload)) == ChangeSet()


def test_the_record_comes_before_the_change_and_takes_back_what_was_done() -> None:
    """A crash between any two operations: the records until then give the state before the entry."""
    store = ox.Store()
    apply_entry(store, _update(DATA))
    before = held(store)
    entry = _update("DELETE WHERE { <x:a> <x:p> ?o } ;\nADD SILENT <x:g> TO DEFAULT ;\nDROP SILENT ALL")
    for survives in range(3):
        recorded: list[ChangeSet] = []

        def record(change: ChangeSet, _: bool, limit: int = survives, recorded: list[ChangeSet] = recorded) -> None:
            recorded.append(change)
            if len(recorded) > limit:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            apply_entry(store, entry, record)
        assert len(recorded) == survives + 1
        for change in reversed(recorded):
            apply_change(store, change.inverse())
        assert held(store) == before


def test_an_entry_that_fails_is_refused() -> None:
    store = ox.Store()
    with pytest.raises(EntryRefused, match="no normalised operation"):
        apply_entry(store, _update("INSERT DATA { <x:a> <x:p> 1 } ;\nNONSENSE { }"))
    with pytest.raises(EntryRefused):
        apply_entry(store, _update("INSERT { ?s <x:p> 1 } WHERE { ?s ?p }"))
    assert not held(store)
    with pytest.raises(EntryRefused, match="kind 3"):
        apply_entry(store, StoreOperation(KIND_SKIP, b""))


def test_change_sets_are_kept_as_payloads_of_quads() -> None:
    change = ChangeSet((b"<x:a> <x:p> <x:o> .",), (b'<x:a> <x:p> "A <x:g> ." <x:g> .',))
    assert decode_change_set(change.encode()) == change
    assert change.inverse().inverse() == change
    assert combine([change, change.inverse()]) == ChangeSet()
    with pytest.raises(ValueError, match="no line of a change set"):
        decode_change_set(b"X <x:a> <x:p> <x:o> .\n")


def test_random_entries_give_the_change_sets_of_a_worker() -> None:
    assert wrong_entries(random.randrange(2**32), 300) == []


def test_two_stores_make_the_same_bytes() -> None:
    first, second = ox.Store(), ox.Store()
    for entry in random_entries(11, 150):
        assert apply_entry(first, entry).encode() == apply_entry(second, entry).encode()


def _literals_as_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "canonical_lines", lambda lines: lines)


def _no_presence(monkeypatch: pytest.MonkeyPatch) -> None:
    def listed(store: ox.Store, deletes: object, adds: object) -> ChangeSet:
        return ChangeSet(tuple(sorted(set(operations._lines(deletes)))), tuple(sorted(set(operations._lines(adds)))))  # type: ignore[arg-type]

    monkeypatch.setattr(operations, "_net_change", listed)


def _insertions_first(monkeypatch: pytest.MonkeyPatch) -> None:
    net = operations._net_change

    def swapped(store: ox.Store, deletes: object, adds: object) -> ChangeSet:
        made = net(store, deletes, ())  # type: ignore[arg-type]
        added = net(store, (), adds)  # type: ignore[arg-type]
        return ChangeSet(made.deletes, tuple(line for line in added.adds if line not in made.deletes))

    monkeypatch.setattr(operations, "_net_change", swapped)


def _whole_entry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All operations are computed from the state before the entry."""
    changes = operations._changes
    monkeypatch.setattr(operations, "_changes", lambda store, entry: iter(list(changes(store, entry))))


@pytest.mark.parametrize("mutate", [_literals_as_sent, _no_presence, _insertions_first, _whole_entry_at_once])
def test_each_rule_taken_away_shows(mutate: object, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(mutate)
    mutate(monkeypatch)
    assert wrong_entries(3, 400)
