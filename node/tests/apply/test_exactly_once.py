"""Whatever is lost, repeated, killed or restored: every entry is in the worker once, and the marker tells the truth. On
a real store of every engine; what is about locks, on those that have them.
"""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest
from engines import ALL, LOCKING, SERIAL, stores_of
from log_in_memory import COUNT, LossyTransport, ManualClock, MemoryLog
from server_process import StoreProcess

from txlog.apply import ApplyOutcome, ForeignLock, WorkerState, apply_up_to
from txlog.apply.applier import YIELD_S
from txlog.model.entry import LogEntry, Position
from txlog.workers import OxigraphAdapter
from txlog.workers.adapter import MarkerPosition, Unreachable
from txlog.workers.http_transport import HttpTransport

running, worker = stores_of(ALL)


locking = pytest.mark.parametrize("running", LOCKING, indirect=True)


def lossy(worker: StoreProcess, *, answer_lost: Collection[int] = (), late: Collection[int] = ()) -> LossyTransport:
    return LossyTransport(worker.url, answer_lost=answer_lost, late=late, update_path=worker.update_path)


def counter(worker: StoreProcess) -> list[str]:
    return worker.select("SELECT ?v { <urn:counter> <urn:value> ?v }")


def counting_log(count: int) -> MemoryLog:
    log = MemoryLog()
    log.add('<urn:counter> <urn:value> "0"^^<http://www.w3.org/2001/XMLSchema#integer> .')
    for _ in range(count):
        log.update(COUNT)
    return log


def assert_at(worker: StoreProcess, log: MemoryLog, index: int) -> None:
    """The only thing of ours in the worker is the marker of this index."""
    system = worker.system()
    assert [(m.position.index, m.position.hash) for m in system.markers] == [(index, log.hashes[index])]
    assert not system.claims


def test_from_nothing_to_the_end_and_again(worker: StoreProcess) -> None:
    log = counting_log(30)
    first = apply_up_to(worker.adapter, worker.transport, log, 31, epoch=3)
    assert (first.state, first.applied, first.error) == (WorkerState.WORKING, 31, None)
    assert first.position is not None
    assert first.position.position.epoch == 3
    again = apply_up_to(worker.adapter, worker.transport, log, 31)
    assert (again.state, again.applied, again.position) == (WorkerState.WORKING, 0, first.position)
    assert counter(worker) == ["30"]
    assert_at(worker, log, 31)


def test_a_replayed_batch_changes_nothing(worker: StoreProcess) -> None:
    log = counting_log(20)
    old = apply_up_to(worker.adapter, worker.transport, log, 5).position
    apply_up_to(worker.adapter, worker.transport, log, 15)
    replayed = apply_up_to(worker.adapter, worker.transport, log, 15, cached=old)
    assert (replayed.state, replayed.applied) == (WorkerState.WORKING, 0)
    further = apply_up_to(worker.adapter, worker.transport, log, 21, cached=old)
    assert (further.state, further.applied) == (WorkerState.WORKING, 6)
    assert counter(worker) == ["20"]
    assert_at(worker, log, 21)


def test_a_wrong_cached_position_is_not_believed_even_with_nothing_to_do(worker: StoreProcess) -> None:
    log = counting_log(5)
    apply_up_to(worker.adapter, worker.transport, log, 3)
    outcome = apply_up_to(worker.adapter, worker.transport, log, 6, cached=MarkerPosition(log.position(6), 0))
    assert (outcome.state, outcome.applied) == (WorkerState.WORKING, 3)
    assert counter(worker) == ["5"]


def test_two_appliers_at_once_on_one_worker(worker: StoreProcess) -> None:
    log = counting_log(600 // worker.slow)
    faults: list[ApplyOutcome] = []
    start = threading.Barrier(2)

    def applier(seed: int) -> None:
        chance = random.Random(seed)
        held: ForeignLock | None = None
        cached: MarkerPosition | None = None
        with HttpTransport(worker.url) as transport:
            start.wait()
            while cached is None or cached.position.index < log.end:
                upto = min(log.end, (cached.position.index if cached else 0) + chance.randint(1, 25))
                outcome = apply_up_to(
                    worker.adapter,
                    transport,
                    log,
                    upto,
                    cached=cached if chance.random() < 0.7 else None,
                    held=held,
                    merge_max_transactions=chance.randint(1, 7),
                )
                held, cached = outcome.foreign_lock, outcome.position
                if outcome.state is not WorkerState.WORKING:
                    faults.append(outcome)
                    return

    threads = [threading.Thread(target=applier, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert not faults
    assert counter(worker) == [str(log.end - 1)]
    assert_at(worker, log, log.end)


def test_two_appliers_at_once_on_an_empty_worker(worker: StoreProcess) -> None:
    log = counting_log(3)
    for _ in range(-(-25 // worker.slow)):
        start = threading.Barrier(2)
        outcomes: list[ApplyOutcome] = []

        def applier(upto: int, start: threading.Barrier = start, outcomes: list[ApplyOutcome] = outcomes) -> None:
            with HttpTransport(worker.url) as transport:
                start.wait()
                outcomes.append(apply_up_to(worker.adapter, transport, log, upto))

        threads = [threading.Thread(target=applier, args=(upto,)) for upto in (2, 4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert [o.state for o in outcomes] == [WorkerState.WORKING] * 2
        assert counter(worker) == ["3"]
        assert_at(worker, log, 4)
        worker.clear()


class Overtaken:
    """A log during whose first pages another applier is faster by one entry."""

    def __init__(self, log: MemoryLog, worker: StoreProcess, times: int) -> None:
        self._log, self._worker, self._times = log, worker, times

    def page(
        self, after: Position | None, upto: int, max_bytes: int, unordered: Sequence[tuple[int, bytes]] = ()
    ) -> list[LogEntry]:
        found = self._log.page(after, upto, max_bytes, unordered)
        if self._times:
            self._times -= 1
            further = (after.index if after is not None else 0) + 1
            apply_up_to(self._worker.adapter, self._worker.transport, self._log, further)
        return found


@pytest.mark.parametrize("running", SERIAL, indirect=True)
def test_who_meets_another_applier_lets_it_go_on_for_ever_longer(worker: StoreProcess) -> None:
    log, clock = counting_log(10), ManualClock()
    began = clock.now()
    overtaken = Overtaken(log, worker, 3)
    outcome = apply_up_to(worker.adapter, worker.transport, overtaken, log.end, clock=clock, budget_s=60)
    assert (outcome.state, outcome.error, outcome.applied) == (WorkerState.WORKING, None, log.end - 3)
    assert counter(worker) == ["10"]
    assert_at(worker, log, log.end)
    first, _ = YIELD_S
    assert 3.5 * first <= clock.now() - began <= 7 * first

    # what was remembered and is no longer true is no sign of anybody
    began, stale = clock.now(), MarkerPosition(log.position(4), 0)
    assert apply_up_to(worker.adapter, worker.transport, log, log.end, clock=clock, cached=stale).error is None
    assert clock.now() == began


def test_kill_9_of_the_worker_in_a_stream(worker: StoreProcess) -> None:
    log = MemoryLog()
    for n in range(20_000 // worker.slow):
        log.add(f"<urn:s:{n}> <urn:p> <urn:o> <urn:g:{n % 3}> .")
    held: ForeignLock | None = None
    for seed in range(6 if worker.slow == 1 else 2):
        chance = random.Random(seed)
        killer = threading.Timer(chance.uniform(0.02, 0.4), worker.process.kill)
        killer.start()
        outcome = apply_up_to(
            worker.adapter,
            worker.transport,
            log,
            log.end,
            budget_s=30,
            merge_max_transactions=chance.choice([1, 3, 20]),
            held=held,
        )
        killer.join()
        worker.kill()
        worker.start()
        held = outcome.foreign_lock
        # The marker is the data, to the quad.
        markers = worker.system().markers
        index = markers[0].position.index if markers else 0
        assert len(markers) <= 1
        assert len(worker.data()) == index
        if outcome.state is WorkerState.UNREACHABLE and worker.keeps_all:
            assert outcome.applied <= index
    # And the next one goes on, at once where it knows the lock that the killed request left, or where there is none.
    rest = apply_up_to(worker.adapter, worker.transport, log, log.end, budget_s=60, held=held, takeover_s=1)
    assert rest.state is WorkerState.WORKING
    assert len(worker.data()) == log.end
    assert_at(worker, log, log.end)


def test_a_worker_restored_from_an_older_copy_of_its_folder(worker: StoreProcess, tmp_path: Path) -> None:
    log = counting_log(50)
    apply_up_to(worker.adapter, worker.transport, log, 20)
    worker.settle()
    worker.kill()
    shutil.copytree(worker.folder, tmp_path / "copy")
    worker.start()
    newest = apply_up_to(worker.adapter, worker.transport, log, 40).position
    worker.kill()
    shutil.rmtree(worker.folder)
    shutil.copytree(tmp_path / "copy", worker.folder)
    worker.start()
    outcome = apply_up_to(worker.adapter, worker.transport, log, 51, cached=newest, budget_s=60)
    assert (outcome.state, outcome.applied) == (WorkerState.WORKING, 31)
    assert counter(worker) == ["50"]
    assert_at(worker, log, 51)


def test_a_request_without_an_answer_that_was_carried_out(worker: StoreProcess) -> None:
    log = counting_log(40)
    for lost in range(1, 8 if worker.slow == 1 else 5):
        transport = lossy(worker, answer_lost={lost})
        outcome = apply_up_to(
            worker.adapter, transport, log, log.end, merge_max_transactions=10, takeover_s=0.05, clock=ManualClock()
        )
        held = outcome.foreign_lock
        clock = ManualClock()
        while outcome.state is WorkerState.UNREACHABLE or outcome.error:
            outcome = apply_up_to(
                worker.adapter, worker.transport, log, log.end, held=held, takeover_s=0.05, clock=clock
            )
            held = outcome.foreign_lock
        assert outcome.state is WorkerState.WORKING
        assert counter(worker) == ["40"]
        assert_at(worker, log, log.end)
        worker.clear()


@pytest.mark.parametrize("running", SERIAL, indirect=True)
def test_a_request_that_comes_late_to_an_engine_without_locks(worker: StoreProcess) -> None:
    log = counting_log(12)
    transport = lossy(worker, late={1})
    assert apply_up_to(worker.adapter, transport, log, 5).state is WorkerState.UNREACHABLE
    assert apply_up_to(worker.adapter, worker.transport, log, 8).applied == 8
    assert transport.deliver() in ([500], [409]), "the guard refuses it"
    assert_at(worker, log, 8)
    assert counter(worker) == ["7"]


def test_an_update_that_it_refuses_alone_blocks_it_by_name(worker: StoreProcess) -> None:
    log = counting_log(2)
    bad = log.update("LOAD <urn:nowhere>")
    log.update(COUNT)
    outcome = apply_up_to(worker.adapter, worker.transport, log, log.end)
    assert (outcome.state, outcome.applied) == (WorkerState.BLOCKED, 3)
    assert outcome.refused is not None
    assert outcome.refused.txid == bad.txid
    assert counter(worker) == ["2"]
    assert_at(worker, log, 3)


@locking
def test_a_request_without_an_answer_that_is_still_under_way(worker: StoreProcess) -> None:
    log = counting_log(10)
    apply_up_to(worker.adapter, worker.transport, log, 5)
    clock = ManualClock()
    transport = lossy(worker, late={2})  # the claim passes, the batch hangs
    lost = apply_up_to(worker.adapter, transport, log, 8, clock=clock)
    assert (lost.state, lost.position) == (WorkerState.UNREACHABLE, None)
    # Whoever comes now with another batch waits: both together could not be told apart from one of them.
    waiting = apply_up_to(worker.adapter, worker.transport, log, 11, clock=clock)
    assert waiting.state is WorkerState.WORKING
    assert waiting.error is not None
    assert "another applier" in waiting.error
    assert waiting.applied == 0
    assert transport.deliver() == [204]
    done = apply_up_to(worker.adapter, worker.transport, log, 11, clock=clock, held=waiting.foreign_lock)
    assert (done.state, done.error, done.applied) == (WorkerState.WORKING, None, 3)
    assert counter(worker) == ["10"]
    assert_at(worker, log, 11)


@locking
def test_our_own_request_that_takes_longer_than_any_takeover(worker: StoreProcess) -> None:
    log = counting_log(10)
    apply_up_to(worker.adapter, worker.transport, log, 5)
    clock = ManualClock()
    transport = lossy(worker, late={2})
    outcome = apply_up_to(worker.adapter, transport, log, 8, clock=clock)
    for _ in range(10):  # the connection says that it is not over: no takeover, however long it lasts
        outcome = apply_up_to(worker.adapter, transport, log, 11, clock=clock, held=outcome.foreign_lock, takeover_s=1)
        assert (outcome.state, outcome.applied) == (WorkerState.WORKING, 0)
        assert outcome.foreign_lock is not None
        assert outcome.foreign_lock.is_ours
    assert transport.deliver() == [204]
    outcome = apply_up_to(worker.adapter, transport, log, 11, clock=clock, held=outcome.foreign_lock, takeover_s=1)
    assert (outcome.state, outcome.error, outcome.applied) == (WorkerState.WORKING, None, 3)
    assert counter(worker) == ["10"]
    assert_at(worker, log, 11)


@locking
def test_our_own_request_that_never_happened(worker: StoreProcess) -> None:
    log = counting_log(10)
    transport = lossy(worker, late={2})
    lost = apply_up_to(worker.adapter, transport, log, 8)
    transport.waiting.clear()  # the worker died before it read it
    outcome = apply_up_to(worker.adapter, transport, log, 11, held=lost.foreign_lock)
    assert (outcome.state, outcome.error, outcome.applied) == (WorkerState.WORKING, None, 11)
    assert counter(worker) == ["10"]
    assert_at(worker, log, 11)


@locking
def test_an_applier_that_died_is_taken_over_and_cannot_come_back(worker: StoreProcess) -> None:
    log = counting_log(10)
    apply_up_to(worker.adapter, worker.transport, log, 5)
    clock = ManualClock()
    transport = lossy(worker, late={2})
    apply_up_to(worker.adapter, transport, log, 8, clock=clock)
    held: ForeignLock | None = None
    for _ in range(20):
        outcome = apply_up_to(worker.adapter, worker.transport, log, 11, clock=clock, held=held, takeover_s=5)
        held = outcome.foreign_lock
        if outcome.error is None:
            break
    assert clock.now() >= 1005
    assert (outcome.state, outcome.applied) == (WorkerState.WORKING, 6)
    assert outcome.position is not None
    assert outcome.position.fence == 1
    assert transport.deliver() in ([500], [409])
    assert counter(worker) == ["10"]
    assert_at(worker, log, 11)


@locking
def test_a_takeover_that_came_too_early_steps_back(worker: StoreProcess) -> None:
    """The request of an owner that seemed dead lands together with the takeover."""
    log = counting_log(10)
    apply_up_to(worker.adapter, worker.transport, log, 5)
    slow = lossy(worker, late={2})
    apply_up_to(worker.adapter, slow, log, 8)

    class Together(LossyTransport):
        def send(self, request):  # type: ignore[no-untyped-def]
            if b":5:" in request.body and b":1:0>" in request.body and slow.waiting:
                # What two overlapping requests leave behind on such an engine: the writes of both.
                assert slow.deliver() == [204]
                assert worker.system().markers[0].position.index == 8
                self.sent.append(request)
                return worker.plant(MarkerPosition(log.position(5), 1))
            return super().send(request)

    together = Together(worker.url, update_path=worker.update_path)
    outcome = apply_up_to(worker.adapter, together, log, 11, takeover_s=0.0)
    assert (outcome.state, outcome.applied) == (WorkerState.WORKING, 3)
    assert counter(worker) == ["10"]
    assert_at(worker, log, 11)


def test_a_worker_that_is_not_there(worker: StoreProcess) -> None:
    log = counting_log(3)
    apply_up_to(worker.adapter, worker.transport, log, 2)
    worker.settle()
    worker.kill()
    outcome = apply_up_to(worker.adapter, worker.transport, log, 4)
    assert (outcome.state, outcome.position, outcome.applied) == (WorkerState.UNREACHABLE, None, 0)
    worker.start()
    assert apply_up_to(worker.adapter, worker.transport, log, 4, held=outcome.foreign_lock).applied == 2


def test_an_error_of_the_log_is_passed_on_and_leaves_no_lock(worker: StoreProcess) -> None:
    class Broken(MemoryLog):
        def page(self, after, upto, max_bytes, unordered=()):  # type: ignore[no-untyped-def]
            if self.asked == 1:
                raise ConnectionError("no master")
            return super().page(after, upto, max_bytes)

    log = Broken()
    for n in range(10):
        log.add(f"<urn:s:{n}> <urn:p> <urn:o> .")
    try:
        apply_up_to(worker.adapter, worker.transport, log, 10, page_max_bytes=100)
    except ConnectionError:
        pass
    else:
        raise AssertionError("the log's fault is not the worker's")
    assert 0 < len(worker.data()) < 10
    assert_at(worker, log, len(worker.data()))


def test_unreachable_is_an_outcome_never_an_error() -> None:
    class Gone:
        url = "http://gone"

        def send(self, request):  # type: ignore[no-untyped-def]
            from txlog.workers.adapter import RequestOutcome

            raise Unreachable(self.url, "away", RequestOutcome.NOT_SENT)

    assert apply_up_to(OxigraphAdapter(), Gone(), counting_log(1), 2).state is WorkerState.UNREACHABLE
