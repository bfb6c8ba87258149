"""When readings of a cell are comparable, and what they prove. Real contents: a store in memory for each worker."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyoxigraph as ox
import pytest

from txlog.divergence import written_cells
from txlog.divergence.cell_list import GRAPHS_PER_QUERY, LIST_QUADS, CellListing, ListedPart
from txlog.divergence.cells import CellReading, CellReadings
from txlog.divergence.written_cells import WrittenCells
from txlog.model.entry import KIND_QUADS, KIND_SKIP, KIND_UPDATE, LogEntry, Position
from txlog.model.entry_effects import NOOP_SKIP
from txlog.model.errors import LogAhead, LogDiverged, LogNeedsRestore, TxLogError
from txlog.model.hashes import NO_HASH
from txlog.model.ids import Origin, Txid
from txlog.model.quad_pattern import EVERY_QUAD, QuadPattern
from txlog.model.quads import decode_quads, encode_quads
from txlog.model.store_cell import StoreCell
from txlog.pipeline.written_log import BEHIND_MAX, WrittenLog, find_entry_writes
from txlog.workers.digest import sum_lines

G, H = StoreCell("urn:g", "urn:p"), StoreCell("urn:h", "urn:q")
START = Position(1, 0, NO_HASH)


def name(text: str) -> bytes:
    return f"<{text}>".encode()


def digest(index: int) -> bytes:
    return index.to_bytes(16, "big")


def reading(index: int, total: int = 1, fence: int = 0) -> CellReading:
    return CellReading(index, digest(index), fence, 1, total)


def written(*patterns: QuadPattern | None) -> WrittenCells:
    """Entries that write to one pattern each; None: nothing."""
    made = WrittenCells(START)
    for index, pattern in enumerate(patterns, 1):
        made.add(index, digest(index), [] if pattern is None else [pattern])
    return made


TO_G = QuadPattern(name("urn:g"), name("urn:s"), name("urn:p"))


@pytest.mark.parametrize(
    ("pattern", "meets_g", "meets_h", "meets_graph_h"),
    [
        (TO_G, True, False, False),
        (QuadPattern(name("urn:g")), True, False, False),
        (QuadPattern(predicate=name("urn:q")), False, True, True),
        (QuadPattern(name("urn:h"), None, name("urn:other")), False, False, True),
        (QuadPattern(b"", None, name("urn:p")), False, False, False),
        (EVERY_QUAD, True, True, True),
    ],
)
def test_a_reading_counts_until_an_entry_may_have_written_to_its_cell(
    pattern: QuadPattern, meets_g: bool, meets_h: bool, meets_graph_h: bool
) -> None:
    log = written(None, pattern, None)
    for cell, is_met in ((G, meets_g), (H, meets_h), (StoreCell("urn:h", None), meets_graph_h)):
        assert log.counts_at(cell, 1, 3) is not is_met
        assert log.counts_at(cell, 2, 3), "it was taken behind the write"
    assert log.pop_touched() == {(pattern.graph, pattern.predicate)}
    assert log.pop_touched() == set()


def test_what_came_before_the_followed_log_never_counts() -> None:
    log = WrittenCells(Position(1, 5, digest(5)))
    log.add(6, digest(6), [])
    assert log.counts_at(G, 5, 6)
    assert not log.counts_at(G, 4, 6)
    assert (log.hash_at(6), log.hash_at(4), log.hash_at(7)) == (digest(6), None, None)
    log.restart(Position(1, 9, digest(9)))
    assert not log.counts_at(G, 6, 9)
    assert log.restarts == 1


def test_what_is_tracked_is_bounded_and_never_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written_cells, "KEYS_MAX", 3)
    log = WrittenCells(START)
    for index in range(1, 30):
        graph, predicate = f"urn:g{index % 7}", f"urn:p{index}"
        log.add(index, digest(index), [QuadPattern(name(graph), None, name(predicate))])
        assert log.last_write(StoreCell(graph, predicate)) == index
        assert log.last_write(StoreCell(graph, None)) == index
    assert log.last_write(StoreCell("urn:g1", "urn:p1")) >= 1
    assert log.pop_touched() == {(None, None)} or len(log.pop_touched()) <= 4


def test_readings_of_different_positions_are_compared_where_nothing_wrote_between() -> None:
    held = CellReadings(written(TO_G, None, None))
    verdict = held.judge(G, {"a": reading(1), "b": reading(3)})
    assert (verdict.is_compared, verdict.differs) == (True, False)
    verdict = held.judge(G, {"a": reading(1), "b": reading(3, total=2)})
    assert (verdict.is_compared, verdict.differs) == (True, True)
    assert {each.reading.log_index for each in verdict.evidence if each.worker == "a"} == {3}, "as of one position"


def test_readings_with_a_write_between_are_not_compared() -> None:
    held = CellReadings(written(None, TO_G, None))
    verdict = held.judge(G, {"a": reading(1), "b": reading(3, total=2)})
    assert (verdict.is_compared, verdict.differs) == (False, False)
    verdict = held.judge(H, {"a": reading(1), "b": reading(3, total=2)})
    assert (verdict.is_compared, verdict.differs) == (True, True)


def test_a_worker_that_changed_without_a_write_is_the_wrong_one() -> None:
    log = written(None, None)
    held = CellReadings(log)
    assert not held.judge(G, {"a": reading(1)}).differs
    verdict = held.judge(G, {"a": reading(2, total=2)})
    assert verdict.differs
    assert [(each.reading.log_index, each.reading.total) for each in verdict.evidence] == [(2, 1), (2, 2), (2, 2)]
    log.add(3, digest(3), [TO_G])
    assert not held.judge(G, {"a": reading(3, total=9)}).differs, "an entry wrote it"
    assert not held.judge(G, {"a": reading(3, total=7, fence=1)}).differs, "a repair changed it"


def test_a_cell_that_the_listing_before_did_not_show_was_empty() -> None:
    held = CellReadings(written(None, None))
    held.on_listed({"a": CellReading(1, digest(1), 0, 0, 0)}, [G])
    assert not held.judge(G, {"a": reading(2)}).differs, "the first listing shows it"
    held.on_listed({"a": CellReading(2, digest(2), 0, 0, 0)}, [G, H])
    assert held.judge(H, {"a": reading(2)}).differs


def test_a_listing_that_showed_a_cell_does_not_say_that_it_was_empty() -> None:
    """A worker did not answer when the cell was read; or cells have become graphs since."""
    held = CellReadings(written(None, None))
    for index in (1, 2):
        held.on_listed({"a": CellReading(index, digest(index), 0, 0, 0)}, [G])
    assert not held.judge(G, {"a": reading(2)}).differs
    assert not held.judge(StoreCell("urn:g", None), {"a": reading(2)}).differs
    assert held.judge(StoreCell("urn:h", None), {"a": reading(2)}).differs


def test_no_graph_counts_twice_in_sums() -> None:
    held = CellReadings(written(None))
    held.judge(G, {"a": reading(1, total=5)})
    held.forget_predicates()
    held.judge(StoreCell("urn:g", None), {"a": reading(1, total=5)})
    assert held.sums_at(1, "a") == {"urn:g": (1, 5)}


def test_a_reading_that_is_not_on_the_followed_log_proves_nothing() -> None:
    held = CellReadings(written(None, None))
    other = CellReading(2, b"another branch..", 0, 1, 9)
    assert held.judge(G, {"a": reading(1), "b": other}).differs is False
    assert held.judge(G, {"b": other}).is_compared is False


def test_a_store_that_has_executed_nothing_is_on_every_log() -> None:
    log = WrittenCells(Position(1, 0, digest(77)))
    empty = CellReading(0, NO_HASH, 0, 1, 1)
    assert CellReadings(log).judge(G, {"a": empty, "b": empty}).is_compared
    assert not CellReadings(log).judge(G, {"a": empty._replace(hash=digest(5))}).is_compared


def test_sums_are_given_only_where_all_readings_count() -> None:
    held = CellReadings(written(None, TO_G, None))
    held.judge(G, {"a": reading(2, total=5)})
    held.judge(StoreCell("urn:g", "urn:q"), {"a": reading(1, total=(1 << 128) - 1)})
    held.judge(H, {"a": reading(3, total=7)})
    assert held.sums_at(3, "a") == {"urn:g": (2, 4), "urn:h": (1, 7)}
    assert held.sums_at(2, "a") is None
    assert held.sums_at(3, "b") is None
    held.judge(G, {"a": reading(1, total=5)})
    assert held.sums_at(3, "a") is None
    assert not held.is_current(G, ["a"])
    assert held.is_current(H, ["a"])
    assert not held.is_current(H, ["a", "b"])


def test_readings_from_before_a_repair_are_forgotten() -> None:
    held = CellReadings(written(None))
    held.judge(G, {"a": reading(1), "b": reading(1)})
    held.keep_fences({"a": 1, "b": 0})
    assert set(held.of(G)) == {"b"}


def entry(index: int, kind: int, payload: bytes, noop: str = "") -> LogEntry:
    return LogEntry(index, digest(index), Txid(Origin("uk-1", 1), index), index, kind, payload, noop)


def random_entry(rng: random.Random, index: int) -> LogEntry:
    graph, other = (f"<urn:{rng.choice('gh')}>" for _ in range(2))
    predicate, value = f"<urn:{rng.choice('pqr')}>", rng.randrange(4)
    line = f"<urn:s{rng.randrange(3)}> {predicate} <urn:v{value}> {graph} .".encode()
    if rng.random() < 0.7:
        delete = rng.random() < 0.4
        return entry(index, KIND_QUADS, encode_quads([line], []) if delete else encode_quads([], [line]))
    text = rng.choice(
        (
            f"DELETE {{ GRAPH {graph} {{ ?s {predicate} ?o }} }} WHERE {{ GRAPH {graph} {{ ?s {predicate} ?o }} }}",
            f"INSERT {{ GRAPH {graph} {{ ?s {predicate} <urn:new> }} }} WHERE {{ GRAPH {other} {{ ?s ?p ?o }} }}",
            f"DELETE {{ GRAPH ?g {{ ?s {predicate} ?o }} }} WHERE {{ GRAPH ?g {{ ?s {predicate} ?o }} }}",
            f"INSERT {{ GRAPH {graph} {{ ?s ?p ?o }} }} WHERE {{ GRAPH {other} {{ ?s ?p ?o }} }}",
            f"CLEAR SILENT GRAPH {graph}",
        )
    )
    return entry(index, KIND_UPDATE, text.encode())


def execute(store: ox.Store, done: LogEntry) -> None:
    if done.kind == KIND_UPDATE:
        store.update(done.payload.decode())
        return
    for is_add, line in decode_quads(done.payload):
        (quad,) = ox.parse(line, ox.RdfFormat.N_QUADS)
        (store.add if is_add else store.remove)(quad)


def read(store: ox.Store, cell: StoreCell, index: int) -> CellReading:
    named = None if cell.predicate is None else ox.NamedNode(cell.predicate)
    found = store.quads_for_pattern(None, named, None, ox.NamedNode(cell.graph))
    quads, total = sum_lines([str(quad).encode() for quad in found])
    return CellReading(index, digest(index), 0, quads, total % (1 << 128))


CELLS = [StoreCell(f"urn:{graph}", predicate) for graph in "gh" for predicate in ("urn:p", "urn:q", "urn:r", None)]


@pytest.mark.parametrize("seed", range(30))
def test_workers_that_executed_the_same_log_never_differ(seed: int) -> None:
    """Random entries, texts among them; each worker is read at a position of its own."""
    rng = random.Random(seed)
    entries = [random_entry(rng, index) for index in range(1, 60)]
    log = WrittenCells(START)
    stores, at, held, compared = {"a": ox.Store(), "b": ox.Store()}, {"a": 0, "b": 0}, CellReadings(log), 0
    while min(at.values()) < len(entries):
        for worker, store in stores.items():
            for each in entries[at[worker] : at[worker] + rng.randrange(6)]:
                execute(store, each)
                at[worker] = each.index
        for each in entries[log.head.index : max(at.values())]:
            log.add(each.index, each.hash, find_entry_writes(each))
        cell = rng.choice(CELLS)
        verdict = held.judge(cell, {worker: read(store, cell, at[worker]) for worker, store in stores.items()})
        assert not verdict.differs, cell
        compared += verdict.is_compared
    assert compared
    cell = G
    before = {worker: read(store, cell, at[worker]) for worker, store in stores.items()}
    held.judge(cell, before)
    stores["b"].update(
        "DELETE DATA { GRAPH <urn:g> { <urn:s0> <urn:p> <urn:v0> } } ;"
        "INSERT DATA { GRAPH <urn:g> { <urn:s0> <urn:p> <urn:exchanged> } }"
    )
    verdict = held.judge(cell, {worker: read(store, cell, at[worker]) for worker, store in stores.items()})
    assert verdict.differs, "one quad is exchanged"


def test_a_skipped_transaction_may_have_been_executed() -> None:
    assert list(find_entry_writes(entry(1, KIND_QUADS, b"", NOOP_SKIP))) == [EVERY_QUAD]
    assert list(find_entry_writes(entry(1, KIND_SKIP, b"why"))) == []
    assert list(find_entry_writes(entry(1, KIND_UPDATE, b"LOAD <urn:x>"))) == [EVERY_QUAD]
    assert list(find_entry_writes(entry(1, KIND_UPDATE, b"#w1 <urn:g> * <urn:p> *\nLOAD <urn:x>"))) == [
        QuadPattern(name("urn:g"), None, name("urn:p"))
    ]


@pytest.mark.parametrize(
    ("text", "graphs"),
    [
        ("DELETE { GRAPH ?g { ?s <urn:p> ?o } } WHERE { GRAPH ?g { ?s <urn:p> ?o } }", set()),
        ("INSERT { GRAPH ?g { ?s <urn:p> 1 } } WHERE { GRAPH ?g { ?s <urn:p> ?o } }", {None}),
        ("INSERT { GRAPH <urn:g> { ?s ?p 1 } } WHERE { GRAPH <urn:g> { ?s ?p ?o } }", {name("urn:g")}),
        ("DELETE { ?s ?p ?o } INSERT { ?s <urn:p> 1 } WHERE { ?s ?p ?o }", set()),
        ("COPY <urn:g> TO <urn:h>", {name("urn:h")}),
        ("CLEAR GRAPH <urn:g>", set()),
        ("#w1 <urn:g> * * *\nLOAD <urn:x>", {None}),
    ],
)
def test_what_may_add_new_predicates_is_known(text: str, graphs: set[bytes | None]) -> None:
    source = ListedLog([entry(1, KIND_UPDATE, text.encode())])
    log = WrittenLog(source, lambda: START)
    log._stable = lambda: Position(1, 1, digest(1))
    log.follow()
    assert log.written.pop_extended() == graphs
    assert log.written.pop_extended() == set()


class ListedLog:
    """``refusal``: what it answers with, once."""

    def __init__(self, entries: list[LogEntry], refusal: Exception | None = None) -> None:
        self.entries, self.refusal = entries, refusal

    def page(
        self, after: Position | None, upto: int, max_bytes: int, unordered: Sequence[tuple[int, bytes]] = ()
    ) -> list[LogEntry]:
        if self.refusal is not None:
            refusal, self.refusal = self.refusal, None
            raise refusal
        return self.entries[0 if after is None else after.index : upto][:2]


def test_the_log_is_followed_to_its_end_or_as_far_as_a_reading_is() -> None:
    entries = [entry(index, KIND_QUADS, b"") for index in range(1, 8)]
    end = START
    log = WrittenLog(ListedLog(entries), lambda: end)
    log.follow()
    assert log.written.head == START
    end = Position(1, 7, digest(7))
    log.follow(3)
    assert log.written.head.index == 3
    log.follow()
    assert log.written.hash_at(7) == digest(7)
    end = Position(1, 5, digest(5))
    log.follow()
    assert (log.written.head.index, log.written.restarts) == (7, 0), "that master is behind"


@pytest.mark.parametrize(
    ("refusal", "restarts"),
    [(LogDiverged("another branch"), 1), (LogNeedsRestore("trimmed"), 1), (LogAhead("behind"), 0)],
)
def test_a_log_that_does_not_go_on_is_followed_from_its_end(refusal: TxLogError, restarts: int) -> None:
    end = START
    log = WrittenLog(ListedLog([entry(1, KIND_QUADS, b"")], refusal), lambda: end)
    end = Position(1, 9, digest(9))
    log.follow()
    assert log.written.restarts == restarts
    assert log.written.floor == (9 if restarts else 0)


def test_a_log_that_grows_too_fast_is_passed_over() -> None:
    end = START
    log = WrittenLog(ListedLog([]), lambda: end)
    end = Position(1, BEHIND_MAX + 1, digest(9))
    log.follow()
    assert (log.written.floor, log.written.restarts) == (BEHIND_MAX + 1, 1)


def test_a_listing_asks_for_large_graphs_alone_and_in_parts() -> None:
    graphs = ["", *(f"urn:{n}" for n in range(GRAPHS_PER_QUERY + 1)), "not <an> IRI"]
    listing = CellListing(graphs)
    part = listing.next_part
    assert part == ListedPart(tuple(graphs[:GRAPHS_PER_QUERY]), 0)
    listing.add({StoreCell("", "urn:p"): LIST_QUADS})
    asked = []
    while (part := listing.next_part) is not None:
        asked.append(part)
        large = "" in part.graphs and part.first < 2 * LIST_QUADS
        listing.add({StoreCell("" if large else part.graphs[-1], "urn:p"): LIST_QUADS if large else 5})
    assert [part.first for part in asked if part.graphs == ("",)] == [0, LIST_QUADS, 2 * LIST_QUADS]
    assert listing.cells[StoreCell("", "urn:p")] == 2 * LIST_QUADS + 5
    assert {graph for part in asked for graph in part.graphs} == set(graphs) - {"not <an> IRI"}
