"""A worker that is set on the log as it is, and what is no source of anything any more."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from log_in_memory import MemoryLog
from oxigraph_process import ADAPTER, OxigraphProcess
from pen import apply, back_up, filled_log, folder_target, source

from txlog.apply import WorkerState, apply_up_to
from txlog.backup.backup_errors import WorkerMoved, WorkerUnordered
from txlog.backup.dataset_load import RestoreTarget
from txlog.backup.duty import is_on_chain
from txlog.backup.marker_change import mark_unordered
from txlog.backup.pinned_snapshot import choose_most_advanced, read_marker
from txlog.client import JsonMarker, WorkerStatus
from txlog.model.entry import LogEntry, Position
from txlog.workers.adapter import MarkerPosition


class Known(MemoryLog):
    """A log that knows what was executed on another one: as the pages of a master do."""

    def __init__(self, executed: set[int]) -> None:
        super().__init__()
        self.executed = executed
        self.told: list[object] = []

    def page(self, after: Position | None, upto: int, max_bytes: int, unordered: object = ()) -> list[LogEntry]:
        self.told.append(unordered)
        found = super().page(after, upto, max_bytes)
        return [
            msgspec.structs.replace(e, noop="executed") if unordered and e.index in self.executed else e for e in found
        ]


def test_a_worker_is_set_on_the_log_and_passes_over_what_it_executed(worker: OxigraphProcess) -> None:
    old = filled_log(5)
    apply(worker, old)
    was = read_marker(source(worker))
    new = Known({2, 4})
    for entry in filled_log(2).entries[:1]:
        new.add(entry.payload.decode())
    for n in range(3):
        new.add(f"<urn:new:{n}> <urn:p> <urn:o> .")
    before = worker.quads()
    moved = mark_unordered(source(worker), was, Position(2, 1, new.hashes[1]))
    assert moved == MarkerPosition(Position(2, 1, new.hashes[1]), was.fence + 1, ((5, old.hashes[5]),))
    assert (worker.quads(), worker.system().markers) == (before, (moved,))
    assert worker.system().claims == frozenset()
    outcome = apply_up_to(ADAPTER, worker.transport, new, 4, epoch=2)
    assert outcome.state is WorkerState.WORKING
    assert outcome.position is not None
    assert (outcome.position.position.index, outcome.position.unordered) == (4, ((5, old.hashes[5]),))
    assert new.told
    assert all(told == ((5, old.hashes[5]),) for told in new.told)
    added = [quad for quad in worker.quads() if "urn:new" in quad]
    assert len(added) == 1, "3 was new; 2 and 4 were executed before"
    assert set(before) <= set(worker.quads())

    with pytest.raises(WorkerMoved):
        mark_unordered(source(worker), was, Position(2, 1, new.hashes[1]))
    again = mark_unordered(source(worker), outcome.position, Position(3, 0, bytes(16)))
    assert again.unordered == ((5, old.hashes[5]), (4, new.hashes[4]))


def test_an_unordered_worker_is_not_on_the_log_for_who_asks_to_have_it_made_anew(worker: OxigraphProcess) -> None:
    log = filled_log(3)
    apply(worker, log)
    into = RestoreTarget("uk-worker-1", ADAPTER, worker.transport)
    assert is_on_chain(into, lambda position: None)
    mark_unordered(source(worker), read_marker(source(worker)), Position(2, 1, log.hashes[1]))
    assert not is_on_chain(into, lambda position: None)


def test_an_unordered_worker_is_backed_up_and_copied_by_nobody(worker: OxigraphProcess, tmp_path: Path) -> None:
    apply(worker, filled_log(3))
    was = read_marker(source(worker))
    mark_unordered(source(worker), was, Position(2, 1, bytes(16)))
    with pytest.raises(WorkerUnordered, match="rebuild it"):
        back_up(worker, folder_target(tmp_path / "backups"))
    place = JsonMarker(1, 9, "00" * 16)
    ordered = WorkerStatus("uk-worker-1", "http://a", "oxigraph", place, "Working")
    other = WorkerStatus(
        "uk-worker-2", "http://b", "oxigraph", JsonMarker(1, 10, "00" * 16, 0, ["3:" + "00" * 16]), "Working"
    )
    assert choose_most_advanced([other, ordered]) == ordered
    assert choose_most_advanced([other]) is None
