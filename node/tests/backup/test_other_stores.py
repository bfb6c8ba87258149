"""A store that is not of this cluster: nothing empties it by itself, and a person may let the log follow on it."""

from __future__ import annotations

from typing import Any

import pytest
from killed_at_a_step import ADOPTING, TAKEOVER_S, Victims
from log_in_memory import MemoryLog
from oxigraph_process import ADAPTER, OxigraphProcess
from pen import CLUSTER, apply, back_up, chain_of, filled_log, folder_target, into, source

from txlog.apply import ApplyOutcome, WorkerState, apply_up_to
from txlog.backup import rebuild_from_worker, restore_backup, worker_lock
from txlog.backup.backup_errors import (
    LogIncomplete,
    OtherCluster,
    StoreRefused,
    WorkerLoading,
    WorkerMoved,
    WorkerNotEmpty,
)
from txlog.backup.marker_change import adopt_store
from txlog.backup.pinned_snapshot import read_marker
from txlog.backup.restoration import AdoptingLog
from txlog.backup.store_ownership import refuse_incomplete_log, refuse_other_store
from txlog.backup.worker_rebuild import rebuild_empty, rebuild_from_backup
from txlog.client import JsonMarker, WorkerStatus
from txlog.model.entry import Position
from txlog.model.errors import LogNeedsRestore
from txlog.model.hashes import chain_start, content_base
from txlog.workers.adapter import LoadMarker, MarkerPosition

OURS = bytes.fromhex(CLUSTER)
OTHER = b"\x0e" * 16


class FirstPages:
    """A master as far as it says where its log begins."""

    def __init__(self, log: MemoryLog, cluster: bytes = OURS) -> None:
        self.log, self.cluster = log, cluster

    def log_page(self, after: int, at_hash: bytes | None, upto: int) -> Any:
        if after < self.log.kept_from:
            raise LogNeedsRestore(f"index {after} is below {self.log.kept_from}")
        return type("Page", (), {"after": Position(1, after, self.log.hashes[after])})

    def pause_worker(self, worker: str, index: int, *, why: str = "") -> None: ...

    def resume_worker(self, worker: str, *, why: str = "") -> None: ...

    def report_worker(self, worker: str, report: object) -> None: ...


def follow(worker: OxigraphProcess, log: MemoryLog, cluster: bytes) -> ApplyOutcome:
    return apply_up_to(ADAPTER, worker.transport, log, log.end, epoch=1, budget_s=60, cluster=lambda: cluster)


def following(worker: OxigraphProcess, log: MemoryLog, cluster: bytes) -> MarkerPosition:
    done = follow(worker, log, cluster)
    assert (done.state, done.error) == (WorkerState.WORKING, None)
    assert done.position is not None
    return done.position


def new_log(*names: str) -> MemoryLog:
    """The log of :data:`OURS`, with a quad for each name."""
    log = MemoryLog(OURS)
    for name in names:
        log.add(f"<urn:new:{name}> <urn:p> <urn:o> .")
    return log


def test_the_marker_carries_the_cluster_from_the_first_apply_on(worker: OxigraphProcess) -> None:
    log = filled_log(3)
    apply(worker, log, 2)
    assert read_marker(source(worker)).cluster == b"", "as earlier versions wrote it"
    marker = following(worker, log, OURS)
    assert (marker.cluster, marker.position.index) == (OURS, 3)
    assert worker.system().markers == (marker,)
    again = following(worker, log, b"")
    assert again == marker, "a master of an earlier version does not name its cluster"


@pytest.mark.parametrize("adopted", [False, True], ids=["in its log", "before its log"])
def test_a_store_of_another_cluster_is_neither_written_nor_emptied(worker: OxigraphProcess, adopted: bool) -> None:
    """Also where its content was adopted, and its position is 0."""
    marker = following(worker, filled_log(5), OTHER)
    if adopted:
        third = b"\x0d" * 16
        marker = adopt_store(source(worker), marker, third, Position(1, 0, chain_start(third)))
    before = worker.quads()
    assert follow(worker, new_log(*"abcdefgh"), OURS).state is WorkerState.DIVERGED
    assert (worker.quads(), worker.system().markers) == (before, (marker,))
    with pytest.raises(StoreRefused, match="OtherCluster"):
        refuse_other_store(into(worker), CLUSTER, lambda position: None)


def test_the_cluster_in_the_marker_counts_and_not_the_hash_alone(worker: OxigraphProcess) -> None:
    log = filled_log(5)
    marker = following(worker, log, OTHER)
    log.add("<urn:x> <urn:p> <urn:o> .")
    before = worker.quads()
    done = follow(worker, log, OURS)
    assert done.state is WorkerState.REFUSED
    assert done.error is not None
    assert done.error.startswith("OtherCluster")
    assert (worker.quads(), worker.system().markers) == (before, (marker,))


def test_a_marker_without_a_cluster_has_to_be_on_the_log(worker: OxigraphProcess) -> None:
    log = filled_log(4)
    apply(worker, log)
    refuse_other_store(into(worker), CLUSTER, chain_of(log))
    with pytest.raises(StoreRefused, match="UnknownPosition"):
        refuse_other_store(into(worker), CLUSTER, chain_of(new_log("a")))


def test_a_store_without_a_position_is_refused_and_an_empty_one_is_not(worker: OxigraphProcess) -> None:
    refuse_other_store(into(worker), CLUSTER, chain_of(new_log()))
    worker.update("INSERT DATA { <urn:s> <urn:p> <urn:o> }")
    with pytest.raises(StoreRefused, match="ForeignStore"):
        refuse_other_store(into(worker), CLUSTER, chain_of(new_log()))


def test_an_adopted_store_keeps_its_quads_and_the_log_follows_on_them(worker: OxigraphProcess) -> None:
    old = filled_log(5)
    was = following(worker, old, OTHER)
    before = worker.quads()
    log = new_log("a", "b")
    new = adopt_store(source(worker), was, OURS, Position(1, 0, log.hashes[0]))
    base = content_base(OTHER, b"", 5, old.hashes[5])
    assert new == MarkerPosition(Position(1, 0, log.hashes[0]), was.fence + 1, (), OURS, base)
    assert (worker.quads(), worker.system().markers, worker.system().claims) == (before, (new,), frozenset())
    assert adopt_store(source(worker), was, OURS, Position(1, 0, log.hashes[0])) == new, "done already"
    marker = following(worker, log, OURS)
    assert (marker.position.index, marker.base) == (2, base)
    assert set(worker.quads()) > set(before)
    assert len(worker.quads()) == len(before) + 2


def test_what_a_person_did_not_see_is_not_adopted(worker: OxigraphProcess) -> None:
    was = following(worker, filled_log(5), OTHER)
    elsewhere = was._replace(position=Position(1, 4, was.position.hash))
    with pytest.raises(WorkerMoved):
        adopt_store(source(worker), elsewhere, OURS, Position(1, 0, chain_start(OURS)))
    with pytest.raises(WorkerMoved):
        adopt_store(source(worker), None, OURS, Position(1, 0, chain_start(OURS)))
    assert worker.system().markers == (was,)
    token = 7
    worker.transport.send(ADAPTER.claim(token))
    loading = LoadMarker(Position(1, 3, chain_start(OURS)), 1)
    worker.transport.send(ADAPTER.mark_unusable(worker.system(), loading, token))
    with pytest.raises(WorkerLoading):
        adopt_store(source(worker), was, OURS, Position(1, 0, chain_start(OURS)))


def test_an_adoption_killed_at_any_step_is_done_or_not_begun(
    worker: OxigraphProcess, victims: Victims, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_lock, "TAKEOVER_S", TAKEOVER_S)
    was = following(worker, filled_log(5), OTHER)
    before = worker.quads()
    first = Position(1, 0, chain_start(ADOPTING))
    steps = []
    for step in victims.each("adopt", url=worker.url):
        steps.append(step)
        (marker,) = worker.system().markers
        assert marker.cluster in (OTHER, ADOPTING)
        assert marker.position in (was.position, first)
        assert worker.quads() == before
        adopted = adopt_store(source(worker), read_marker(source(worker)), ADOPTING, first)
        assert (adopted.position, worker.quads()) == (first, before)
        # back to where it was, for the next step
        worker.update("DROP ALL")
        was = following(worker, filled_log(5), OTHER)
        assert worker.quads() == before
    assert steps.count("send") >= 4


def test_the_log_alone_fills_no_store_where_it_is_not_all(worker: OxigraphProcess) -> None:
    log = new_log("a", "b", "c")
    following(worker, log, OURS)
    before, markers = worker.quads(), worker.system().markers
    masters: Any = [FirstPages(log)]
    log.kept_from = 2
    with pytest.raises(LogIncomplete, match="below 2"):
        rebuild_empty(into(worker), masters, CLUSTER)
    log.kept_from = 0
    based = WorkerStatus("uk-worker-1", position=JsonMarker(1, 2, "00" * 16, base="0b" * 16))
    with pytest.raises(LogIncomplete, match="uk-worker-1 had content"):
        rebuild_empty(into(worker), masters, CLUSTER, [based])
    assert (worker.quads(), worker.system().markers) == (before, markers)
    rebuild_empty(into(worker), masters, CLUSTER)
    (marker,) = worker.system().markers
    assert (marker.position, marker.cluster, worker.quads()) == (Position(1, 0, log.hashes[0]), OURS, [])
    following(worker, log, OURS)
    assert worker.quads() == before


def test_the_content_that_came_before_the_log_goes_with_copies_and_backups(
    worker: OxigraphProcess, empty: OxigraphProcess, tmp_path: Any
) -> None:
    was = following(worker, filled_log(5), OTHER)
    log = new_log("a", "b")
    adopted = adopt_store(source(worker), was, OURS, Position(1, 0, log.hashes[0]))
    following(worker, log, OURS)
    with pytest.raises(LogIncomplete, match="uk-worker-2 had content"):
        refuse_incomplete_log(into(worker), [], [])
    copied = rebuild_from_worker(source(worker), into(empty), (), chain_of(log))
    assert (copied.marker.cluster, copied.marker.base) == (OURS, adopted.base)
    made = back_up(worker, folder_target(tmp_path / "backups"))
    assert (made.format, made.base_content) == (2, adopted.base)
    target = folder_target(tmp_path / "backups")
    _, restored = rebuild_from_backup(target, into(empty), (), CLUSTER, chain_of(log))
    assert (restored.marker.cluster, restored.marker.base) == (OURS, adopted.base)
    assert empty.quads() == worker.quads()


def test_a_backup_of_another_cluster_comes_before_this_log(
    worker: OxigraphProcess, empty: OxigraphProcess, tmp_path: Any
) -> None:
    """Into a store that is empty, or that holds nothing but this log; it is what an adopted store would be."""
    old, target = filled_log(5), folder_target(tmp_path / "backups")
    was = following(worker, old, OTHER)
    made = back_up(worker, target, cluster=OTHER.hex())
    before = worker.quads()
    log = new_log("a", "b")
    adopting = AdoptingLog(OURS, Position(1, 0, log.hashes[0]))
    with pytest.raises(OtherCluster):
        restore_backup(target, made.name, into(empty), CLUSTER, chain_of(log))
    for _ in range(2):
        done = restore_backup(target, made.name, into(empty), CLUSTER, chain_of(log), adopting=adopting)
        assert done.marker.base == content_base(OTHER, b"", 5, old.hashes[5])
        assert (done.marker.position, done.marker.cluster, empty.quads()) == (adopting.first, OURS, before)
        following(empty, log, OURS)
        assert len(empty.quads()) == len(before) + 2
        with pytest.raises(WorkerNotEmpty):  # what came before this log is in no log
            restore_backup(target, made.name, into(empty), CLUSTER, chain_of(log), adopting=adopting)
        empty.update("DROP ALL")
        following(empty, log, OURS)
        assert len(empty.quads()) == 2
    with pytest.raises(StoreRefused, match="OtherCluster"):
        restore_backup(target, made.name, into(worker), CLUSTER, chain_of(log), adopting=adopting)
    adopted = adopt_store(source(worker), was, OURS, adopting.first)
    assert adopted.base == done.marker.base
