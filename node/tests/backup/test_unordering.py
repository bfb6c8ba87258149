"""A worker that is set on the log as it is, and what is no source of anything any more."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from log_in_memory import MemoryLog
from oxigraph_process import ADAPTER, OxigraphProcess
from pen import apply, back_up, filled_log, folder_target, source

from txlog.apply import State, apply_up_to
from txlog.backup.duty import is_on
from txlog.backup.faults import WorkerMoved, WorkerUnordered
from txlog.backup.loading import Into
from txlog.backup.standing import choose, marker_of
from txlog.backup.unordering import unorder
from txlog.client import Worker, WorkerPlace
from txlog.model.entry import LogEntry, Position
from txlog.workers.base import MarkerPosition


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
    was = marker_of(source(worker))
    new = Known({2, 4})
    for entry in filled_log(2).entries[:1]:
        new.add(entry.payload.decode())
    for n in range(3):
        new.add(f"<urn:new:{n}> <urn:p> <urn:o> .")
    before = worker.quads()
    moved = unorder(source(worker), was, Position(2, 1, new.hashes[1]))
    assert moved == MarkerPosition(Position(2, 1, new.hashes[1]), was.fence + 1, ((5, old.hashes[5]),))
    assert (worker.quads(), worker.system().markers) == (before, (moved,))
    assert worker.system().claims == frozenset()
    outcome = apply_up_to(ADAPTER, worker.transport, new, 4, epoch=2)
    assert outcome.state is State.WORKING
    assert outcome.position is not None
    assert (outcome.position.position.index, outcome.position.unordered) == (4, ((5, old.hashes[5]),))
    assert new.told
    assert all(told == ((5, old.hashes[5]),) for told in new.told)
    added = [quad for quad in worker.quads() if "urn:new" in quad]
    assert len(added) == 1, "3 was new; 2 and 4 were executed before"
    assert set(before) <= set(worker.quads())

    with pytest.raises(WorkerMoved):
        unorder(source(worker), was, Position(2, 1, new.hashes[1]))
    again = unorder(source(worker), outcome.position, Position(3, 0, bytes(16)))
    assert again.unordered == ((5, old.hashes[5]), (4, new.hashes[4]))


def test_an_unordered_worker_is_not_on_the_log_for_who_asks_to_have_it_made_anew(worker: OxigraphProcess) -> None:
    log = filled_log(3)
    apply(worker, log)
    into = Into("uk-worker-1", ADAPTER, worker.transport)
    assert is_on(into, lambda position: None)
    unorder(source(worker), marker_of(source(worker)), Position(2, 1, log.hashes[1]))
    assert not is_on(into, lambda position: None)


def test_an_unordered_worker_is_backed_up_and_copied_by_nobody(worker: OxigraphProcess, tmp_path: Path) -> None:
    apply(worker, filled_log(3))
    was = marker_of(source(worker))
    unorder(source(worker), was, Position(2, 1, bytes(16)))
    with pytest.raises(WorkerUnordered, match="rebuild it"):
        back_up(worker, folder_target(tmp_path / "backups"))
    place = WorkerPlace(1, 9, "00" * 16)
    ordered = Worker("uk-worker-1", "http://a", "oxigraph", place, "Working")
    other = Worker(
        "uk-worker-2", "http://b", "oxigraph", WorkerPlace(1, 10, "00" * 16, 0, ["3:" + "00" * 16]), "Working"
    )
    assert choose([other, ordered]) == ordered
    assert choose([other]) is None
