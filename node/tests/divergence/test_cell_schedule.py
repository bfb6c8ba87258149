"""Which cells are read next, by a clock that the test moves."""

from __future__ import annotations

import itertools

import pytest

from txlog.divergence import cell_schedule
from txlog.divergence.cell_schedule import (
    CELLS_PER_READ,
    MISSES_MAX,
    QUADS_PER_READ,
    RELIST_S,
    REREAD_S,
    SUSPECT_QUADS,
    SUSPECT_REREAD_S,
    TOUCH_WAIT_S,
    CellRead,
    CellSchedule,
)
from txlog.model.store_cell import StoreCell

FOUND_S = 60.0
"""What an entry touched is read within that time, where the share allows it."""


def cell(number: int, graph: str = "urn:g") -> StoreCell:
    return StoreCell(graph, f"urn:p{number}")


def written(*cells: StoreCell) -> list[tuple[bytes, bytes | None]]:
    return [
        (f"<{one.graph}>".encode() if one.graph else b"", one.predicate and f"<{one.predicate}>".encode())  # type: ignore[misc]
        for one in cells
    ]


def schedule(*cells: StoreCell, quads: int = 1000) -> CellSchedule:
    made = CellSchedule(0.0)
    made.add_listed(dict.fromkeys(cells, quads))
    made.end_listing()
    return made


def done(made: CellSchedule, read: CellRead, now: float, *, compared: bool = True, suspect: bool = False) -> None:
    made.on_begin(read)
    for one in read.cells:
        made.on_read(one, now, 1000, is_compared=compared, is_suspect=suspect)


def finish_pass(made: CellSchedule, now: float) -> None:
    while (read := made.next_in_pass()) is not None:
        done(made, read, now)
    assert made.end_pass(now)
    made.end_listing()


def test_a_pass_reads_each_cell_once_by_queries_of_a_bounded_size() -> None:
    cells = [cell(n) for n in range(200)]
    made = schedule(*cells, quads=5000)
    seen = list[StoreCell]()
    while (read := made.next_in_pass()) is not None:
        assert len(read.cells) <= CELLS_PER_READ
        assert len(read.cells) * 5000 <= QUADS_PER_READ
        done(made, read, 1.0)
        seen += read.cells
    assert sorted(seen) == sorted(cells)
    assert made.end_pass(7.0)
    assert (made.pass_s, made.pass_count) == (7.0, 1)
    assert made.next_in_pass() is None, "the next one lists the cells first"
    assert not made.end_pass(8.0)


def test_a_cell_larger_than_a_query_is_read_alone() -> None:
    made = schedule(cell(1), cell(2), quads=10 * QUADS_PER_READ)
    assert made.next_in_pass() == CellRead([cell(1)], is_aligned=False, is_urgent=False)


def test_what_is_written_is_read_within_a_minute_and_writes_of_some_seconds_together() -> None:
    made = schedule(cell(1), cell(2))
    finish_pass(made, 1.0)
    made.touch(written(cell(1)), 100.0)
    made.touch(written(cell(1)), 110.0)
    assert made.next_due(100.0 + TOUCH_WAIT_S - 1) is None
    read = made.next_due(100.0 + TOUCH_WAIT_S)
    assert read == CellRead([cell(1)], is_aligned=False, is_urgent=True)
    assert not made.is_settled
    done(made, read, 116.0)
    assert made.is_settled
    assert made.next_due(10_000.0) is None


def test_a_cell_that_is_written_all_the_time_is_read_once_in_a_while_and_in_time() -> None:
    made = schedule(cell(1))
    finish_pass(made, 0.0)
    reads, now = list[float](), 0.0
    while now < 600:
        now += 1.0
        made.touch(written(cell(1)), now)
        if (read := made.next_due(now)) is not None:
            done(made, read, now)
            reads.append(now)
    gaps = [later - before for before, later in itertools.pairwise(reads)]
    assert min(gaps) >= REREAD_S
    assert max(gaps) <= FOUND_S


def test_what_is_written_while_a_cell_is_read_is_another_touch() -> None:
    made = schedule(cell(1))
    finish_pass(made, 0.0)
    made.touch(written(cell(1)), 100.0)
    read = made.next_due(200.0)
    assert read is not None
    made.on_begin(read)
    made.touch(written(cell(1)), 201.0)
    made.on_read(cell(1), 202.0, 1, is_compared=True, is_suspect=False)
    assert not made.is_settled
    assert made.next_due(202.0 + REREAD_S) == read


def test_what_the_last_reading_has_already_is_no_touch() -> None:
    made = schedule(cell(1), cell(2))
    finish_pass(made, 0.0)
    made.touch(written(cell(1), cell(2)), 1.0, lambda one: one == cell(1))
    read = made.next_due(1.0 + REREAD_S)
    assert read is not None
    assert read.cells == [cell(2)]


def test_a_cell_that_nothing_was_known_of_is_read_when_an_entry_writes_it() -> None:
    made = schedule()
    made.touch(written(cell(1), StoreCell("", "urn:p")), 0.0)
    read = made.next_due(TOUCH_WAIT_S)
    assert read is not None
    assert read.cells == [cell(1), StoreCell("", "urn:p")]


def test_a_write_of_any_predicate_touches_all_cells_of_the_graph() -> None:
    made = schedule(cell(1), cell(2), cell(1, "urn:h"))
    finish_pass(made, 0.0)
    made.touch([(b"<urn:g>", None)], 10.0)
    read = made.next_due(100.0)
    assert read is not None
    assert read.cells == [cell(1), cell(2)]
    made.touch([(None, b"<urn:p1>"), (None, None)], 20.0)
    assert made.pop_unlisted(1000.0) == [], "nothing says that it added a predicate"
    made.add_listed({cell(7): 1})
    made.touch_unread([cell(1), cell(7)], 60.0)
    read = made.next_due(1000.0)
    assert read is not None
    assert set(read.cells) == {cell(1), cell(2), cell(1, "urn:h"), cell(7)}


def test_workers_are_paused_for_a_cell_after_three_readings_with_a_write_between() -> None:
    made = schedule(cell(1), cell(2))
    finish_pass(made, 0.0)
    now = 100.0
    for misses in range(MISSES_MAX + 1):
        made.touch(written(cell(1), cell(2)), now)
        now += 100.0
        read = made.next_due(now)
        assert read is not None
        assert read.is_aligned is (misses == MISSES_MAX)
        assert read.cells == ([cell(1)] if read.is_aligned else [cell(1), cell(2)])
        made.on_begin(read)
        for one in read.cells:
            made.on_read(one, now, 1, is_compared=one == cell(2) or read.is_aligned, is_suspect=False)
    made.touch(written(cell(1)), now)
    read = made.next_due(now + 100)
    assert read is not None
    assert not read.is_aligned, "it was compared"


def test_a_cell_that_differs_is_read_again_until_it_does_not() -> None:
    made = schedule(cell(1))
    read = made.next_in_pass()
    assert read is not None
    done(made, read, 1.0, suspect=True)
    assert made.next_due(1.0 + SUSPECT_REREAD_S - 1) is None
    assert made.is_up_to_date is False, "no pass has ended"
    assert made.end_pass(2.0)
    assert made.is_up_to_date
    assert not made.is_settled
    read = made.next_due(1.0 + SUSPECT_REREAD_S)
    assert read is not None
    done(made, read, 50.0)
    assert made.is_settled
    made.touch(written(cell(1)), 60.0)
    assert not made.is_up_to_date
    assert made.next_due(60.0 + TOUCH_WAIT_S) is None, "it does not differ any more"
    assert made.next_due(50.0 + REREAD_S) is not None


def test_a_large_cell_that_differs_is_read_as_seldom_as_a_written_one() -> None:
    made = schedule(cell(1))
    read = made.next_in_pass()
    assert read is not None
    made.on_begin(read)
    made.on_read(cell(1), 1.0, SUSPECT_QUADS + 1, is_compared=True, is_suspect=True)
    assert made.next_due(1.0 + REREAD_S - 1) is None
    assert made.next_due(1.0 + REREAD_S) is not None


def test_a_cell_that_no_worker_has_is_forgotten() -> None:
    made = schedule(cell(1))
    read = made.next_in_pass()
    assert read is not None
    made.on_begin(read)
    assert made.on_read(cell(1), 1.0, 0, is_compared=True, is_suspect=False) is False
    assert made.progress(1.0).cells == 0


def test_a_pass_does_not_end_before_what_could_not_be_read_was_read() -> None:
    made = schedule(cell(1))
    read = made.next_in_pass()
    assert read is not None
    made.on_begin(read)
    made.on_failed(read, 1.0)
    assert not made.end_pass(2.0)
    again = made.next_due(1.0 + TOUCH_WAIT_S)
    assert again is not None
    done(made, again, 20.0)
    assert made.end_pass(20.0)


def test_a_rebuilt_worker_is_read_whole_before_all_is_compared() -> None:
    made = schedule(cell(1))
    finish_pass(made, 1.0)
    assert made.is_settled
    made.restart(2.0)
    assert not made.is_settled


def test_too_many_cells_become_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_schedule, "CELLS_MAX", 4)
    made = schedule(*(cell(n) for n in range(4)))
    finish_pass(made, 1.0)
    made.touch(written(cell(1)), 2.0)
    made.touch(written(cell(1, "urn:h")), 3.0)
    whole = {StoreCell("urn:g", None), StoreCell("urn:h", None)}
    read = made.next_due(100.0)
    assert read is not None
    assert set(read.cells) == whole
    done(made, read, 100.0)
    listed = schedule()
    listed.add_listed({cell(n, f"urn:g{n % 2}"): 10 for n in range(6)})
    listed.end_listing()
    progress = listed.progress(5.0)
    assert (progress.cells, progress.quads, progress.quads_left) == (2, 60, 60)


def test_the_progress_names_the_oldest_cell_and_what_is_left() -> None:
    made = schedule(cell(1), cell(2))
    assert made.progress(3.0).oldest_cell_s == 3.0, "never read, and known since the pass began"
    read = CellRead([cell(1)], is_aligned=False, is_urgent=True)
    done(made, read, 4.0)
    done(made, CellRead([cell(2)], is_aligned=False, is_urgent=True), 6.0)
    progress = made.progress(10.0)
    assert (progress.oldest_cell_s, progress.quads_left, progress.elapsed_s, progress.touched) == (6.0, 0, 10.0, 0)


def test_graphs_that_may_have_new_predicates_are_listed_and_all_of_them_rarely() -> None:
    made = schedule(cell(1))
    finish_pass(made, 0.0)
    made.extend({b"<urn:g>"}, 10.0)
    assert not made.is_settled
    assert made.pop_unlisted(10.0) == []
    assert made.pop_unlisted(10.0 + TOUCH_WAIT_S) == ["urn:g"]
    assert made.is_settled
    made.extend({None}, 100.0)
    assert made.pop_unlisted(100.0 + TOUCH_WAIT_S) == [None]
    made.extend({None, b""}, 200.0)
    assert made.pop_unlisted(300.0) == [""]
    assert made.pop_unlisted(100.0 + TOUCH_WAIT_S + RELIST_S) == [None]
