"""A worker made anew while everything around it goes on. A stub stands for the masters; the test is the pipeline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from killed_at_a_step import TAKEOVER_S, Victims
from log_in_memory import MemoryLog
from oxigraph_process import ADAPTER, OxigraphProcess
from pen import CLUSTER, apply, back_up, chain_of, everything, filled_log, folder_target
from stub_master import StubMaster

from txlog.apply import apply_up_to
from txlog.backup import (
    BackupProgress,
    RestoreTarget,
    SourceWorker,
    check_backup,
    rebuild_from_backup,
    rebuild_from_worker,
    restore_backup,
    take_backup,
    worker_lock,
)
from txlog.backup.backup_errors import NoSuchBackup, OffTheChain
from txlog.backup.backup_writer import BackupRequest
from txlog.client import MasterClient
from txlog.model.entry import Position
from txlog.model.errors import Unavailable
from txlog.workers import OxigraphAdapter
from txlog.workers.adapter import LoadMarker, MarkerPosition, SystemGraphs, WorkerRequest
from txlog.workers.digest import digest_worker
from txlog.workers.http_transport import HttpTransport

DEADLINE_S = 90.0


@pytest.fixture
def master() -> Iterator[StubMaster]:
    found = StubMaster("uk-1")
    yield found
    found.close()


@pytest.fixture
def masters(master: StubMaster) -> Iterator[list[MasterClient]]:
    with MasterClient(master.url) as client:
        yield [client]


class Lane:
    """Applies to a worker without a pause, and obeys holds, as a pipeline's lane does."""

    def __init__(self, name: str, worker: OxigraphProcess, log: MemoryLog, master: StubMaster) -> None:
        self.name, self.worker, self.log, self.master = name, worker, log, master
        self.ending = threading.Event()
        self.states: list[str] = []
        self.upto = 0
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        with HttpTransport(self.worker.url) as transport:
            while not self.ending.is_set():
                hold = self.master.holds.get(self.name)
                upto = self.log.end if hold is None else min(self.log.end, hold)
                done = apply_up_to(ADAPTER, transport, self.log, upto, epoch=1, budget_s=0.02, merge_max_transactions=3)
                self.states.append(done.state)
                self.upto = done.position.position.index if done.position else 0

    def __enter__(self) -> Lane:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ending.set()
        self.thread.join(DEADLINE_S)
        assert not self.thread.is_alive()


def eventually(true: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.01)


def test_a_busy_worker_is_backed_up_at_exactly_one_position(
    worker: OxigraphProcess, empty: OxigraphProcess, master: StubMaster, masters: list[MasterClient], tmp_path: Path
) -> None:
    log = filled_log(4000, 3)
    target = folder_target(tmp_path / "backups")
    with Lane("uk-worker-1", worker, log, master) as lane:
        eventually(lambda: lane.upto > 50)
        source = SourceWorker("uk-worker-1", ADAPTER, worker.transport, masters)
        made = take_backup(source, target, BackupRequest(CLUSTER, "uk"))
        assert master.holds == {}
        assert made.position.index < log.end, "the worker was done before: nothing was tried"
        moved = lane.upto
        eventually(lambda: lane.upto > moved or lane.upto == log.end)
    assert made.quads == 3 * made.position.index
    restore_backup(target, made.name, RestoreTarget("uk-worker-2", ADAPTER, empty.transport), CLUSTER, chain_of(log))
    apply(empty, log)
    apply(worker, log)
    assert digest_worker(ADAPTER, empty.transport) == digest_worker(ADAPTER, worker.transport)


@pytest.mark.parametrize("way", ["backup", "live"])
def test_a_worker_is_rebuilt_under_its_pipeline_while_the_other_goes_on(
    worker: OxigraphProcess,
    empty: OxigraphProcess,
    master: StubMaster,
    masters: list[MasterClient],
    tmp_path: Path,
    way: str,
) -> None:
    log = filled_log(2000, 3)
    apply(empty, log, 500)
    empty.update("DELETE WHERE { <urn:s:7:0> ?p ?o }")  # what nobody should have done
    fence = empty.system().markers[0].fence
    target = folder_target(tmp_path / "backups")
    apply(worker, log, 300)
    back_up(worker, target)
    into = RestoreTarget("uk-worker-2", ADAPTER, empty.transport)
    with Lane("uk-worker-1", worker, log, master) as live, Lane("uk-worker-2", empty, log, master) as lane:
        eventually(lambda: lane.upto > 500 and live.upto > 300)
        if way == "backup":
            manifest, restored = rebuild_from_backup(target, into, masters, CLUSTER, chain_of(log))
            assert (manifest.position.index, restored.marker.position) == (300, manifest.position)
        else:
            source = SourceWorker("uk-worker-1", ADAPTER, worker.transport, masters)
            restored = rebuild_from_worker(source, into, masters, chain_of(log))
            assert restored.marker.position.index > 300
        assert restored.marker.fence > fence
        assert master.holds == {}
        eventually(lambda: lane.upto == log.end and live.upto == log.end)
    assert "Refused" in lane.states
    assert set(live.states) == {"Working"}
    assert digest_worker(ADAPTER, empty.transport) == digest_worker(ADAPTER, worker.transport)


def test_the_newest_sound_backup_on_the_chain_is_taken(
    worker: OxigraphProcess, empty: OxigraphProcess, masters: list[MasterClient], tmp_path: Path
) -> None:
    log = filled_log(30)
    target = folder_target(tmp_path / "backups")
    made = []
    for index in (5, 10, 15):
        apply(worker, log, index)
        made.append(back_up(worker, target).name)
    part = tmp_path / "backups" / made[2] / "part-00001.nq.zst"
    part.write_bytes(bytes(len(part.read_bytes())))
    into = RestoreTarget("uk-worker-2", ADAPTER, empty.transport)
    manifest, _ = rebuild_from_backup(target, into, masters, CLUSTER, chain_of(log))
    assert manifest.name == made[1]
    apply(empty, log, 30)

    before = everything(empty)
    with pytest.raises(NoSuchBackup, match=r"OffTheChain.*OffTheChain.*OffTheChain"):
        rebuild_from_backup(target, into, masters, CLUSTER, chain_of(filled_log(30, 1)))
    assert everything(empty) == before


def test_nothing_is_emptied_for_what_cannot_be_restored(
    worker: OxigraphProcess, empty: OxigraphProcess, masters: list[MasterClient], tmp_path: Path
) -> None:
    log, other = filled_log(9), filled_log(9, 1)
    apply(worker, log, 5)
    apply(empty, log, 4)
    before = everything(empty)
    into = RestoreTarget("uk-worker-2", ADAPTER, empty.transport)
    target = folder_target(tmp_path / "backups")
    with pytest.raises(NoSuchBackup, match="there is none"):
        rebuild_from_backup(target, into, masters, CLUSTER, chain_of(log))
    source = SourceWorker("uk-worker-1", ADAPTER, worker.transport, masters)
    with pytest.raises(OffTheChain):
        rebuild_from_worker(source, into, masters, chain_of(other))
    for name in ("../x", "", "none"):
        with pytest.raises(NoSuchBackup):
            rebuild_from_backup(target, into, masters, CLUSTER, chain_of(log), name=name)
    assert list(target.list_objects()) == []
    assert not (tmp_path / "x").exists()
    made = back_up(worker, target)
    gone = [MasterClient("http://127.0.0.1:9", connect_s=0.2)]
    with pytest.raises(Unavailable, match="no master takes the hold"):
        rebuild_from_backup(target, into, gone, CLUSTER, chain_of(log), name=made.name)
    assert everything(empty) == before
    assert check_backup(target, made.name) == made


def test_a_rebuild_that_breaks_off_is_named_and_can_be_repeated(
    worker: OxigraphProcess, empty: OxigraphProcess, masters: list[MasterClient], master: StubMaster
) -> None:
    log = filled_log(30)
    apply(worker, log, 20)
    apply(empty, log, 10)
    source = SourceWorker("uk-worker-1", ADAPTER, worker.transport, masters)
    into = RestoreTarget("uk-worker-2", ADAPTER, empty.transport)

    def fail(progress: BackupProgress) -> None:
        if progress.phase == "comparing":
            raise InterruptedError

    with pytest.raises(InterruptedError):
        rebuild_from_worker(source, into, masters, chain_of(log), on_progress=fail)
    assert master.holds == {}
    assert [each["state"] for each in master.reports] == ["Refused"]
    assert [each.position.index for each in empty.system().loading] == [20]
    rebuild_from_worker(source, into, masters, chain_of(log))
    apply(empty, log)
    apply(worker, log)
    assert empty.quads() == worker.quads()


class Interrupting(OxigraphAdapter):
    """Does something just before one of the requests of a rebuild is built."""

    def __init__(self, at: str, act: Callable[[], object]) -> None:
        self._at, self._act = at, act

    def _meet(self, step: str) -> None:
        if step == self._at:
            self._at = ""
            self._act()

    def mark_unusable(self, found: SystemGraphs, loading: LoadMarker, token: int) -> WorkerRequest:
        self._meet("condemn")
        return super().mark_unusable(found, loading, token)

    def clear(self) -> WorkerRequest:
        self._meet("empty")
        return super().clear()

    def begin_loading(self, loading: LoadMarker, token: int) -> WorkerRequest:
        self._meet("begin")
        return super().begin_loading(loading, token)

    def end_loading(self, loading: LoadMarker, new: MarkerPosition) -> WorkerRequest:
        self._meet("end")
        return super().end_loading(loading, new)


def crash() -> None:
    raise InterruptedError


@pytest.mark.parametrize("step", ["condemn", "empty", "begin", "end"])
def test_whatever_a_rebuild_ends_before_the_worker_never_looks_like_another(
    worker: OxigraphProcess, empty: OxigraphProcess, masters: list[MasterClient], step: str
) -> None:
    log = filled_log(30)
    apply(worker, log, 20)
    apply(empty, log, 10)
    before = everything(empty)
    source = SourceWorker("uk-worker-1", ADAPTER, worker.transport, masters)
    into = RestoreTarget("uk-worker-2", Interrupting(step, crash), empty.transport)
    with pytest.raises(InterruptedError):
        rebuild_from_worker(source, into, masters, chain_of(log))
    found = empty.system()
    if step == "condemn":  # its lock lies there, and is taken over in time
        assert (empty.quads(), found.markers) == (before[0], marker_at(log, 10))
    elif step == "begin":
        assert (empty.quads(), found.markers, found.loading) == ([], (), ())
    else:
        assert found.markers == ()
        assert [each.position.index for each in found.loading] == [20]
    for claim in found.claims:
        empty.update(f"DROP SILENT GRAPH <{claim}>")
    rebuild_from_worker(source, RestoreTarget("uk-worker-2", ADAPTER, empty.transport), masters, chain_of(log))
    apply(empty, log)
    apply(worker, log)
    assert empty.quads() == worker.quads()


@pytest.mark.parametrize("way", ["rebuild", "copy"])
def test_a_rebuild_that_is_killed_at_any_step_leaves_the_old_worker_or_one_that_says_so(
    worker: OxigraphProcess,
    empty: OxigraphProcess,
    master: StubMaster,
    masters: list[MasterClient],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    victims: Victims,
    way: str,
) -> None:
    monkeypatch.setattr(worker_lock, "TAKEOVER_S", TAKEOVER_S)
    log = filled_log(21)
    target = folder_target(tmp_path / "backups")
    apply(worker, log, 20)
    made = back_up(worker, target, part_bytes=2000)
    right = worker.quads()
    told = {"url": empty.url, "folder": target.location, "name": made.name, "source": worker.url, "master": master.url}
    apply(empty, log, 20)
    states: list[tuple[str, str]] = []
    wrong = "DELETE WHERE { <urn:s:7:0> ?p ?o }"  # what nobody should have done
    empty.update(wrong)
    before = empty.quads(), empty.system().markers
    for step in victims.each(way, **told):
        found, quads = empty.system(), empty.quads()
        if found.markers and quads == right:
            state = "rebuilt"
            assert [each.position for each in found.markers] == [made.position]
            assert found.loading == ()
        elif found.markers:
            state = "as before"
            assert (quads, found.markers) == before
        elif found.loading:
            state = "loading"
            assert [each.position for each in found.loading] == [made.position]
        else:
            state = "empty"
            assert quads == []
        states.append((step, state))
        into = RestoreTarget("uk-worker-2", ADAPTER, empty.transport)
        rebuild_from_backup(target, into, masters, CLUSTER, chain_of(log), name=made.name)
        assert master.holds.get("uk-worker-2") is None
        assert empty.quads() == right
        empty.update(wrong)
        before = empty.quads(), empty.system().markers
    assert empty.quads() == right, "the last one was not killed"
    assert worker.quads() == right
    order = [state for _, state in states]
    assert {state for _, state in states} >= {"as before", "loading"}, states
    assert order.index("loading") > order.index("as before")
    assert "as before" not in order[order.index("loading") :], states
    assert {step for step, state in states if state == "loading"} >= {"loading", "comparing", "send", "resume_worker"}
    assert {step for step, state in states if state == "as before"} >= {"pause_worker", "report_worker", "send"}


def marker_at(log: MemoryLog, index: int) -> tuple[MarkerPosition, ...]:
    return (MarkerPosition(Position(1, index, log.hashes[index]), 0),)


def test_a_pipeline_that_begins_between_two_steps_is_emptied_once_more(
    worker: OxigraphProcess, empty: OxigraphProcess, masters: list[MasterClient]
) -> None:
    log = filled_log(30)
    apply(worker, log, 20)
    apply(empty, log, 10)
    met: list[int] = []

    def begin() -> None:
        assert empty.quads() == []
        apply(empty, log, 3, takeover_s=0.2)  # the rebuild has claimed
        met.append(len(empty.quads()))

    source = SourceWorker("uk-worker-1", ADAPTER, worker.transport, masters)
    into = RestoreTarget("uk-worker-2", Interrupting("begin", begin), empty.transport)
    restored = rebuild_from_worker(source, into, masters, chain_of(log))
    assert met == [30]
    assert restored.marker.position.index == 20
    assert empty.quads() == worker.quads()
