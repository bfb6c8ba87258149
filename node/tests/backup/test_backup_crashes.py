"""Processes that end in the middle: who backs up, who restores, the worker, the target."""

from __future__ import annotations

from pathlib import Path

import pytest
from killed_at_a_step import TAKEOVER_S, Victims
from log_in_memory import MemoryLog
from oxigraph_process import ADAPTER, OxigraphProcess
from pen import (
    CLUSTER,
    apply,
    back_up,
    chain_of,
    empty_out,
    everything,
    filled_log,
    folder_target,
    into,
    put_back,
    source,
)

from txlog.apply import WorkerState, apply_up_to
from txlog.backup import (
    BackupProgress,
    BackupRequest,
    BackupTarget,
    RestoreTarget,
    catalogue,
    check_backup,
    delete_incomplete_backups,
    restore_backup,
    take_backup,
    worker_lock,
)
from txlog.backup import dataset_load as loading_room
from txlog.backup.backup_errors import Incomplete, LoadingLost, NoSuchBackup, RestoredDiffers, WorkerLoading
from txlog.backup.backup_manifest import BackupManifest
from txlog.backup.dataset_load import start_load
from txlog.model.errors import Unavailable
from txlog.workers import OxigraphAdapter
from txlog.workers.adapter import MarkerPosition, Unreachable, WorkerRequest

QUADS = 2000


@pytest.fixture
def log() -> MemoryLog:
    return filled_log(101, QUADS // 100)


@pytest.fixture
def target(tmp_path: Path) -> BackupTarget:
    return folder_target(tmp_path / "backups")


@pytest.fixture
def made(worker: OxigraphProcess, target: BackupTarget, log: MemoryLog) -> BackupManifest:
    apply(worker, log, 100)
    return back_up(worker, target, part_bytes=20_000)


def refuses_to_apply(worker: OxigraphProcess, log: MemoryLog, cached: MarkerPosition | None = None) -> None:
    before = everything(worker)
    outcome = apply_up_to(ADAPTER, worker.transport, log, log.end, budget_s=0.05, cached=cached)
    assert outcome.state is WorkerState.REFUSED, outcome
    assert outcome.error is not None
    assert outcome.error.startswith("Loading: a data set is being loaded into")
    assert everything(worker) == before


def test_a_backup_that_is_killed_at_any_step_never_counts(
    worker: OxigraphProcess, empty: OxigraphProcess, target: BackupTarget, victims: Victims
) -> None:
    log = filled_log(21)
    apply(worker, log, 20)
    before = everything(worker)
    met: list[str] = []
    whole: list[str] = []
    for step in victims.each("create", url=worker.url, folder=target.location, name="killed-NUMBER"):
        met.append(step)
        name = f"killed-{len(met)}"
        try:
            assert check_backup(target, name).quads == 200
        except (Incomplete, NoSuchBackup) as none:
            assert not whole, "once it is whole, no later step takes that back"
            with pytest.raises(type(none)):
                put_back(target, name, empty, log)
            assert everything(empty) == ([], [])
        else:
            whole.append(step)
        assert everything(worker) == before
    assert set(met) >= {"holding", "stream", "copying", "write", "fsync", "link", "reading back", "read"}, met
    assert set(whole) <= {"fsync", "read", "link"}, "the folder, what is read back: its manifest has its name"
    broken = len(met) - len(whole)
    left = [each for each in catalogue(target) if each.state != "complete"]
    assert {(each.state, each.manifest) for each in left} == {("incomplete", None)}
    assert 20 < len(left) <= broken
    assert delete_incomplete_backups(target, 3600) == []
    assert len(delete_incomplete_backups(target, 3600, now=max(each.touched for each in left) + 3601)) == len(left)
    assert {each.state for each in catalogue(target)} == {"complete"}


def test_a_restore_that_is_killed_at_any_step_leaves_a_worker_that_says_so(
    worker: OxigraphProcess,
    empty: OxigraphProcess,
    target: BackupTarget,
    victims: Victims,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_lock, "TAKEOVER_S", TAKEOVER_S)
    log = filled_log(21)
    apply(worker, log, 20)
    made = back_up(worker, target, part_bytes=2000)
    states: list[tuple[str, str]] = []
    for step in victims.each("restore", url=empty.url, folder=target.location, name=made.name):
        found = empty.system()
        if found.markers:
            state = "restored"
            assert (found.loading, [each.position for each in found.markers]) == ((), [made.position])
            assert empty.quads() == worker.quads()
        elif found.loading:
            state = "loading"
            assert [each.position for each in found.loading] == [made.position]
            refuses_to_apply(empty, log)
            refuses_to_apply(empty, log, cached=MarkerPosition(made.position, 1))
            with pytest.raises(WorkerLoading):
                put_back(target, made.name, empty, log)
            put_back(target, made.name, empty, log, again=True)
        else:
            state = "untouched"
            assert empty.quads() == []
            put_back(target, made.name, empty, log)
        states.append((step, state))
        assert empty.quads() == worker.quads()
        apply(empty, log)
        assert len(empty.quads()) == 210
        empty_out(empty)
    assert empty.quads() == worker.quads(), "the last one was not killed"
    order = [state for _, state in states]
    assert order == sorted(order, key=["untouched", "loading", "restored"].index), states
    assert {step for step, state in states if state == "loading"} >= {"loading", "comparing", "send"}, states
    assert {step for step, state in states if state == "untouched"} >= {"checking", "read", "write"}, states
    assert check_backup(target, made.name) == made


def test_a_worker_that_ends_while_it_is_backed_up(worker: OxigraphProcess, target: BackupTarget) -> None:
    apply(worker, filled_log(1))
    more = b"".join(b"<urn:more:%d> <urn:p> <urn:o> .\n" % n for n in range(200_000))
    assert worker.send(ADAPTER.load(more)).ok  # more than the sockets' buffers hold

    def kill(progress: BackupProgress) -> None:
        if progress.phase == "copying":
            worker.process.kill()

    with pytest.raises(Unreachable):
        take_backup(source(worker), target, BackupRequest(CLUSTER, "uk"), kill)
    assert list(target.list_objects()) == []


def test_a_worker_that_ends_while_it_is_restored(
    empty: OxigraphProcess, target: BackupTarget, log: MemoryLog, made: BackupManifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading_room, "BATCH_BYTES", 4000)
    loaded = 0

    def kill(progress: BackupProgress) -> None:
        nonlocal loaded
        loaded += progress.phase == "loading"
        if loaded == 3:
            empty.process.kill()

    with pytest.raises(Unreachable):
        restore_backup(target, made.name, into(empty), CLUSTER, chain_of(log), on_progress=kill)
    empty.process.wait(30)
    empty.start()
    refuses_to_apply(empty, log)
    put_back(target, made.name, empty, log, again=True)
    apply(empty, log)
    assert len(empty.quads()) == QUADS + QUADS // 100


def test_of_two_restores_at_once_the_later_counts(
    empty: OxigraphProcess, target: BackupTarget, log: MemoryLog, made: BackupManifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading_room, "BATCH_BYTES", 4000)
    later = []

    def told(progress: BackupProgress) -> None:
        if progress.phase == "loading" and not later:
            later.append(True)
            put_back(target, made.name, empty, log, again=True)

    with pytest.raises(LoadingLost):
        restore_backup(target, made.name, into(empty), CLUSTER, chain_of(log), on_progress=told)
    assert [marker.position for marker in empty.system().markers] == [made.position]
    assert empty.system().loading == ()
    assert len(empty.quads()) == QUADS


@pytest.mark.parametrize("token", [0, 0x5555, 0x1234])
def test_a_restore_waits_for_the_applier_and_takes_over_from_one_that_is_gone(
    empty: OxigraphProcess,
    target: BackupTarget,
    log: MemoryLog,
    made: BackupManifest,
    monkeypatch: pytest.MonkeyPatch,
    token: int,
) -> None:
    assert empty.send(ADAPTER.claim(token)).ok  # its owner never comes back
    before = everything(empty)
    with pytest.raises(Unavailable, match="another applier has the lock"):
        start_load(into(empty), made.position, emptying=False, lock_s=0.2)
    assert everything(empty) == before
    monkeypatch.setattr(worker_lock, "TAKEOVER_S", 0.2)
    put_back(target, made.name, empty, log)
    assert empty.system().claims == frozenset()
    apply(empty, log)
    assert len(empty.quads()) == QUADS + QUADS // 100


def test_a_worker_that_gives_out_something_else_stays_marked(
    empty: OxigraphProcess, target: BackupTarget, log: MemoryLog, made: BackupManifest
) -> None:
    class Touched(OxigraphAdapter):
        def snapshot(self, accept: str = "application/n-quads") -> WorkerRequest:
            empty.update("INSERT DATA { <urn:not> <urn:of> <urn:it> }")
            return super().snapshot(accept)

    into_touched = RestoreTarget("uk-worker-2", Touched(), empty.transport)
    with pytest.raises(RestoredDiffers, match="2,001 quads"):
        restore_backup(target, made.name, into_touched, CLUSTER, chain_of(log))
    assert [each.position for each in empty.system().loading] == [made.position]
    refuses_to_apply(empty, log)
