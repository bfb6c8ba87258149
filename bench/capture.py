"""What change sets cost: an embedded store that executes entries as a worker does, and one that captures them.

Both are pyoxigraph on disk, with the same data. Processor time of this process counts, so load of others does not.
Syncs of the change log are in neither: they cost time, and nearly no processor.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pyoxigraph as ox

from e2e.lib.report import BenchReport, Figure, build_table, print_table
from txlog.changesets import CapturedEntry, CaptureStore, LogStep
from txlog.model.entry import KIND_QUADS, KIND_UPDATE, Position
from txlog.workers.adapter import StoreOperation
from txlog.workers.update_batches import OPERATION_SEPARATOR, update_texts

QUADS: Final = 200_000
GRAPHS: Final = 20
SUBJECT_QUADS: Final = 10
GRAPH_SUBJECTS: Final = QUADS // GRAPHS // SUBJECT_QUADS
START: Final = Position(0, 0, bytes(16))
QUADS_MIN: Final = 30_000.0
TEXT_MIN: Final = 2_500.0
UNDO_MIN: Final = 25_000.0
UNDONE: Final = 20_000
"""Entries of the branch that is taken back."""


class CaptureCase(NamedTuple):
    """``entries``: the n-th entry; ``number``: how many. ``batch``: how many in a request; ``quads``: each changes."""

    name: str
    entries: Callable[[int], StoreOperation]
    number: int
    batch: int
    quads: int = 1


def _quad(number: int) -> bytes:
    subject, predicate = divmod(number, SUBJECT_QUADS)
    graph = subject // GRAPH_SUBJECTS
    return b'<urn:s:%d> <urn:p:%d> "value %d" <urn:g:%d> .' % (subject, predicate, number, graph)


def _new_quad(at: int) -> StoreOperation:
    return StoreOperation(KIND_QUADS, b'A <urn:new:%d> <urn:p:1> "value %d" <urn:g:1> .\n' % (at, at))


def _text(text: str) -> StoreOperation:
    return StoreOperation(KIND_UPDATE, text.encode())


def _one_value(at: int) -> StoreOperation:
    subject = at * 7 % (GRAPHS * GRAPH_SUBJECTS)
    graph, triple = subject // GRAPH_SUBJECTS, f"<urn:s:{subject}> <urn:p:3>"
    pattern = f"GRAPH <urn:g:{graph}> {{ {triple} ?old }}"
    return _text(
        f'DELETE {{ {pattern} }} INSERT {{ GRAPH <urn:g:{graph}> {{ {triple} "new {at}" }} }} WHERE {{ {pattern} }}'
    )


def _whole_subject(at: int) -> StoreOperation:
    return _text(f"DELETE WHERE {{ GRAPH <urn:g:{at // GRAPH_SUBJECTS}> {{ <urn:s:{at}> ?p ?o }} }}")


def _scan(at: int) -> StoreOperation:
    pattern = f"GRAPH <urn:g:{5 + at % 9}> {{ ?s <urn:p:4> ?o }}"
    return _text(f"DELETE {{ {pattern} }} WHERE {{ {pattern} FILTER(?o = 'no such value') }}")


def _managed(word: str) -> Callable[[int], StoreOperation]:
    return lambda at: _text(f"{word} SILENT GRAPH <urn:g:{10 + at}> TO GRAPH <urn:{word.lower()}:{at}>")


def _clear(at: int) -> StoreOperation:
    return _text(f"CLEAR SILENT GRAPH <urn:g:{16 + at}>")


CASES: Final = (
    CaptureCase("quads, 100 in a request", _new_quad, 10_000, 100),
    CaptureCase("quads, 20 in a request", lambda at: _new_quad(10_000 + at), 4_000, 20),
    CaptureCase("one value of one subject", _one_value, 2_000, 1),
    CaptureCase("DELETE WHERE of a subject", _whole_subject, 500, 1),
    CaptureCase("scan of a graph, nothing changed", _scan, 20, 1),
    CaptureCase("COPY of a graph, each quad", _managed("COPY"), 2, 1, QUADS // GRAPHS),
    CaptureCase("ADD of a graph, each quad", _managed("ADD"), 2, 1, QUADS // GRAPHS),
    CaptureCase("MOVE of a graph, each quad", _managed("MOVE"), 2, 1, QUADS // GRAPHS),
    CaptureCase("CLEAR of a graph, each quad", _clear, 2, 1, QUADS // GRAPHS),
)


def measure_capture(folder: Path, report: BenchReport) -> None:
    """The table of :data:`CASES`, and how fast entries are taken back."""
    data = list(ox.parse(b"\n".join(map(_quad, range(QUADS))), ox.RdfFormat.N_QUADS))
    folder.mkdir(parents=True, exist_ok=True)
    plain = ox.Store(str(folder / "plain"))
    plain.bulk_extend(data)
    captured = CaptureStore(folder / "captured", START, data)
    del data
    rows: list[list[Figure]] = []
    found: dict[str, dict[str, float]] = {}
    try:
        for case in CASES:
            entries = [case.entries(at) for at in range(case.number)]
            batches = [entries[at : at + case.batch] for at in range(0, case.number, case.batch)]
            each = case.number * case.quads
            plain_us = _measure(lambda batch: plain.update(_merged(batch)), batches) / each
            captured_us = _measure(lambda batch: captured.apply(_steps(captured, batch)), batches) / each
            rows.append([case.name, plain_us, captured_us, captured_us / plain_us])
            found[case.name] = {"plain_us": round(plain_us, 1), "captured_us": round(captured_us, 1)}
        report.require("both stores hold the same", _same(plain, captured.quads))
        undo_us = _measure_undo(captured)
    finally:
        captured.close()
        shutil.rmtree(folder, ignore_errors=True)
    columns = ("entry", "plain us", "captured us", "x")
    print_table(build_table(f"processor of an entry, {QUADS:,} quads in {GRAPHS} graphs", columns, rows))
    report.nested({"capture": found})
    report.at_least("quads_per_s", 1e6 / found[CASES[0].name]["captured_us"], QUADS_MIN)
    report.at_least("text_per_s", 1e6 / found[CASES[2].name]["captured_us"], TEXT_MIN)
    report.at_least("undo_entries_per_s", 1e6 / undo_us, UNDO_MIN)


def _merged(batch: Sequence[StoreOperation]) -> str:
    return OPERATION_SEPARATOR.join(update_texts(batch))


def _steps(store: CaptureStore, batch: Sequence[StoreOperation]) -> list[LogStep]:
    first = store.end.index + 1
    return [LogStep(CapturedEntry(at, bytes(16), kind=each.kind), each.payload) for at, each in enumerate(batch, first)]


def _measure(
    execute: Callable[[Sequence[StoreOperation]], object], batches: Sequence[Sequence[StoreOperation]]
) -> float:
    """Microseconds of processor for all batches."""
    began = time.process_time()
    for batch in batches:
        execute(batch)
    return (time.process_time() - began) * 1e6


def _measure_undo(store: CaptureStore) -> float:
    """Microseconds of processor to take an entry of two quads back."""
    before = store.end.index
    for at in range(0, UNDONE, 100):
        pairs = [(number, number) for number in range(at, at + 100)]
        lines = [b"D <urn:u:%d> <urn:p> <urn:o> .\nA <urn:u:%d> <urn:p> <urn:n> .\n" % pair for pair in pairs]
        store.apply(_steps(store, [StoreOperation(KIND_QUADS, line.replace(b"D ", b"A ")) for line in lines]))
    began = time.process_time()
    undone = len(store.undo_to(before))
    return (time.process_time() - began) * 1e6 / undone


def _same(plain: ox.Store, captured: ox.Store) -> bool:
    return set(plain) == set(captured)
