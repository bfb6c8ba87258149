"""What an entry of the log changes in an embedded store: computed on the store itself, operation by operation.

Each operation is computed from the state before it, then its :class:`ChangeSet` is applied, and not the text. So the
store holds what the change sets say, and a record that is written between the two tells how to take it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyoxigraph as ox

from txlog.changesets.change_set import ChangeSet, combine
from txlog.model.entry import KIND_QUADS, KIND_SKIP, KIND_UPDATE
from txlog.model.entry_effects import decode_effects
from txlog.model.errors import WorkerFault
from txlog.model.synchronous_entry import KIND_DECISION
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
Record = Callable[[ChangeSet, bool], None]
"""Called with the change of an operation, and whether the entry has no other operation."""


class EntryRefused(WorkerFault):
    """The store cannot execute an entry. Its state is that before the operation which failed."""


def apply_entry(store: ox.Store, entry: StoreOperation, record: Record = lambda _, __: None) -> ChangeSet:
    """Execute one entry and return its change set. ``record`` is called with the change of each of its operations that
    changes a quad, before the store changes. Raises :class:`EntryRefused`; operations before the one that failed are
    recorded and applied."""
    done: list[ChangeSet] = []
    try:
        for change, is_whole in _changes(store, entry):
            record(change, is_whole)
            apply_change(store, change)
            done.append(change)
    except (ValueError, SyntaxError, RuntimeError) as wrong:
        raise EntryRefused(str(wrong)[:500]) from wrong
    return done[0] if len(done) == 1 else combine(done)


class DataChanges(NamedTuple):
    """The change sets of consecutive entries of kind QUADS, and their quads by line."""

    changes: list[ChangeSet]
    quads: Mapping[bytes, ox.Quad]


def data_changes(store: ox.Store, payloads: Sequence[bytes]) -> DataChanges:
    """The change sets of consecutive entries of kind QUADS. The store stays as it is: the caller applies all of them
    together (:func:`~txlog.changesets.change_set.combine`)."""
    lines = canonical_lines(b"".join(payloads)).split(b"\n")
    quads = dict(_pairs(dict.fromkeys(line[2:] for line in lines if line)))
    there = {line: quad in store for line, quad in quads.items()}
    changes: list[ChangeSet] = []
    begin = 0
    for payload in payloads:
        end = begin + payload.count(b"\n")
        changes.append(_data_change(lines[begin:end], there))
        begin = end
    return DataChanges(changes, quads)


def _data_change(lines: Iterable[bytes], there: dict[bytes, bool]) -> ChangeSet:
    """The change of one entry. ``there``: which quads are there before it, and afterwards which are there then."""
    wanted = {line[2:]: line[:1] == b"A" for line in lines}
    deletes = sorted([line for line, is_added in wanted.items() if not is_added and there[line]])
    adds = sorted([line for line, is_added in wanted.items() if is_added and not there[line]])
    there.update(wanted)
    return ChangeSet(tuple(deletes), tuple(adds))


def apply_change(store: ox.Store, change: ChangeSet, quads: Mapping[bytes, ox.Quad] | None = None) -> None:
    """Delete and add the quads of a change set. It may be repeated. ``quads``: its quads by line, where the caller has
    them."""
    for quad in _parse_lines(change.deletes) if quads is None else map(quads.__getitem__, change.deletes):
        store.remove(quad)
    if change.adds:
        store.extend(_parse_lines(change.adds) if quads is None else [quads[line] for line in change.adds])


def changed_graphs(change: ChangeSet) -> set[str]:
    """The IRIs of the graphs of a change set; empty for the default graph."""
    names = (quad.graph_name for quad in _parse_lines((*change.deletes, *change.adds)))
    return {name.value if isinstance(name, ox.NamedNode) else "" for name in names}


def _changes(store: ox.Store, entry: StoreOperation) -> Iterator[tuple[ChangeSet, bool]]:
    """The change of each operation that changes a quad, each computed after the one before it was applied, and whether
    the entry has no other operation."""
    if entry.kind == KIND_QUADS:
        changes: Iterable[tuple[ChangeSet, bool]] = ((data_changes(store, [entry.payload]).changes[0], True),)
    elif entry.kind == KIND_UPDATE:
        operations = list(parse_operations(entry.payload.decode()))
        changes = ((operation_change(store, each), len(operations) == 1) for each in operations)
    elif entry.kind == KIND_DECISION:
        changes = (
            (change, False)
            for effect in decode_effects(entry.payload)
            if effect.kind != KIND_SKIP
            for change, _ in _changes(store, StoreOperation(effect.kind, effect.payload))
        )
    else:
        raise ValueError(f"kind {entry.kind} is not known here; a newer capture store may know it")
    return (change for change in changes if len(change[0]))


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
