"""What an entry of the log changes in an embedded store: computed on the store itself, operation by operation.

Each operation is computed from the state before it, then its :class:`ChangeSet` is applied, and not the text. So the
store holds what the change sets say, and a record that is written between the two tells how to take it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pyoxigraph as ox

from txlog.changesets.change_set import ChangeSet, combine
from txlog.model.entry import KIND_QUADS, KIND_UPDATE
from txlog.sparql.update_operations import (
    ClearOperation,
    CreateOperation,
    DataOperation,
    Operation,
    PatternOperation,
    TransferOperation,
    parse_operations,
)
from txlog.workers.adapter import StoreOperation
from txlog.workers.canonical_literals import canonical_lines

_DEFAULT: Final = ox.DefaultGraph()
Record = Callable[[ChangeSet], None]


class EntryRefused(Exception):
    """The store cannot execute an entry. Its state is that before the operation which failed."""


def apply_entry(store: ox.Store, entry: StoreOperation, record: Record = lambda _: None) -> ChangeSet:
    """Execute one entry and return its change set. ``record`` is called with the change of each of its operations that
    changes a quad, before the store changes. Raises :class:`EntryRefused`; operations before the one that failed are
    recorded and applied."""
    done: list[ChangeSet] = []
    try:
        for change in _changes(store, entry):
            record(change)
            apply_change(store, change)
            done.append(change)
    except (ValueError, SyntaxError, RuntimeError, OSError) as wrong:
        raise EntryRefused(str(wrong)[:500]) from wrong
    return done[0] if len(done) == 1 else combine(done)


def apply_change(store: ox.Store, change: ChangeSet) -> None:
    """Delete and add the quads of a change set. It may be repeated."""
    for quad in _parse_lines(change.deletes):
        store.remove(quad)
    if change.adds:
        store.extend(_parse_lines(change.adds))


def _changes(store: ox.Store, entry: StoreOperation) -> Iterator[ChangeSet]:
    """The change of each operation that changes a quad, each computed after the one before it was applied."""
    if entry.kind == KIND_QUADS:
        changes: Iterable[ChangeSet] = (_quads_change(store, entry.payload),)
    elif entry.kind == KIND_UPDATE:
        changes = (operation_change(store, each) for each in parse_operations(entry.payload.decode()))
    else:
        raise ValueError(f"kind {entry.kind} is not known here; a newer capture store may know it")
    return (change for change in changes if len(change))


def operation_change(store: ox.Store, operation: Operation) -> ChangeSet:
    """The change of one operation in the present state of the store, which stays as it is."""
    match operation:
        case DataOperation(adds=True, quads=quads):
            return _net_change(store, (), quads)
        case DataOperation(quads=quads):
            return _net_change(store, quads, ())
        case PatternOperation():
            return _modify_change(store, operation)
        case ClearOperation(target=target):
            return ChangeSet(tuple(sorted(_lines(_cleared(store, target)))))
        case TransferOperation():
            return _transfer_change(store, operation)
        case CreateOperation():
            return ChangeSet()


def _quads_change(store: ox.Store, payload: bytes) -> ChangeSet:
    """The change of an entry of data: which of its quads are there decides."""
    deletes: dict[bytes, None] = {}
    adds: dict[bytes, None] = {}
    for line in canonical_lines(payload).split(b"\n"):
        if line:
            (adds if line[:1] == b"A" else deletes)[line[2:]] = None
    there = [line for line, quad in _pairs(deletes) if line not in adds and quad in store]
    missing = [line for line, quad in _pairs(adds) if quad not in store]
    return ChangeSet(tuple(sorted(there)), tuple(sorted(missing)))


def _modify_change(store: ox.Store, operation: PatternOperation) -> ChangeSet:
    graph = operation.default_graph
    found = store.query(operation.query, default_graph=[ox.NamedNode(graph)] if graph else None)
    rows: Iterable[Any]
    if isinstance(found, ox.QueryBoolean):
        rows = [()] if found else []
    else:
        assert isinstance(found, ox.QuerySolutions)
        rows = found
    deletes: set[ox.Quad] = set()
    adds: set[ox.Quad] = set()
    for row in rows:
        deletes.update(operation.delete.fill(row))
        adds.update(operation.insert.fill(row))
    return _net_change(store, deletes, adds)


def _net_change(store: ox.Store, deletes: Iterable[ox.Quad], adds: Iterable[ox.Quad]) -> ChangeSet:
    """All deletions come before all insertions, so a quad in both is there afterwards."""
    there = set(_lines(quad for quad in deletes if quad in store))
    if there:
        adds = list(adds)
        there.difference_update(_lines(adds))
    missing = set(_lines(quad for quad in adds if quad not in store))
    return ChangeSet(tuple(sorted(there)), tuple(sorted(missing)))


def _cleared(store: ox.Store, target: str) -> Iterator[ox.Quad]:
    if target == "DEFAULT":
        return store.quads_for_pattern(None, None, None, _DEFAULT)
    if target == "ALL":
        return iter(store)
    if target == "NAMED":
        return (quad for quad in store if not isinstance(quad.graph_name, ox.DefaultGraph))
    return store.quads_for_pattern(None, None, None, ox.NamedNode(target))


def _transfer_change(store: ox.Store, operation: TransferOperation) -> ChangeSet:
    if operation.source == operation.target:
        return ChangeSet()
    source, target = _graph(operation.source), _graph(operation.target)
    quads = list(store.quads_for_pattern(None, None, None, source))
    copies = [ox.Quad(quad.subject, quad.predicate, quad.object, target) for quad in quads]
    gone: list[ox.Quad] = []
    if operation.word != "ADD":
        kept = set(copies)
        gone = [quad for quad in store.quads_for_pattern(None, None, None, target) if quad not in kept]
    if operation.word == "MOVE":
        gone += quads
    missing = [quad for quad in copies if quad not in store]
    return ChangeSet(tuple(sorted(_lines(gone))), tuple(sorted(_lines(missing))))


def _graph(iri: str) -> ox.NamedNode | ox.DefaultGraph:
    return ox.NamedNode(iri) if iri else _DEFAULT


def _lines(quads: Iterable[ox.Quad]) -> list[bytes]:
    """The lines of the quads, in the form in which the store returns them."""
    text = " .\n".join(map(str, quads))
    return canonical_lines(f"{text} .".encode()).split(b"\n") if text else []


def _pairs(lines: Iterable[bytes]) -> Iterator[tuple[bytes, ox.Quad]]:
    lines = list(lines)
    return zip(lines, _parse_lines(lines), strict=True)


def _parse_lines(lines: Iterable[bytes]) -> Iterator[ox.Quad]:
    return iter(ox.parse(b"\n".join(lines), ox.RdfFormat.N_QUADS, lenient=True))
