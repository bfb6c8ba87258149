"""What an applier does after a request whose end nothing shows: it leaves the lock to that request."""

from __future__ import annotations

from log_in_memory import COUNT, LossyTransport, ManualClock, MemoryLog
from oxigraph_process import ADAPTER, OxigraphProcess

from txlog.apply import ApplyOutcome, WorkerState, apply_up_to
from txlog.workers.adapter import TAKEOVER_S, WorkerRequest, WorkerResponse


class Gateway(LossyTransport):
    """A proxy has stopped waiting: no connection shows the end of the request."""

    def settled(self) -> bool:
        return True


class Confused(LossyTransport):
    """While a request runs, the store answers questions with an error, as one without memory or threads does."""

    def send(self, request: WorkerRequest) -> WorkerResponse:
        if self.waiting and request.reads:
            return WorkerResponse(500, {}, b"no thread is free")
        return super().send(request)


def begin(worker: OxigraphProcess, transport: LossyTransport, clock: ManualClock) -> tuple[MemoryLog, ApplyOutcome]:
    """Five entries are in the worker, and the request with the next three has no answer."""
    log = MemoryLog()
    log.add('<urn:counter> <urn:value> "0"^^<http://www.w3.org/2001/XMLSchema#integer> .')
    for _ in range(10):
        log.update(COUNT)
    apply_up_to(ADAPTER, worker.transport, log, 5)
    lost = apply_up_to(ADAPTER, transport, log, 8, clock=clock)
    assert len(transport.waiting) == 1
    return log, lost


def assert_once(worker: OxigraphProcess, log: MemoryLog) -> None:
    assert worker.select("SELECT ?v { <urn:counter> <urn:value> ?v }") == ["10"]
    (marker,) = worker.system().markers
    assert (marker.position.index, marker.fence) == (log.end, 0)


def test_the_lock_of_a_request_that_a_proxy_gave_up_counts_as_that_of_another(worker: OxigraphProcess) -> None:
    clock, transport = ManualClock(), Gateway(worker.url, late={2})
    log, lost = begin(worker, transport, clock)
    assert lost.state is WorkerState.UNREACHABLE
    held = lost.foreign_lock
    begun = clock.now()
    while clock.now() < begun + TAKEOVER_S - 5:
        waiting = apply_up_to(ADAPTER, transport, log, 11, clock=clock, held=held)
        assert (waiting.state, waiting.applied) == (WorkerState.WORKING, 0)
        assert "another applier" in (waiting.error or "")
        held = waiting.foreign_lock
    assert transport.deliver() == [204], "it was under way all the time"
    done = apply_up_to(ADAPTER, transport, log, 11, clock=clock, held=held)
    assert (done.state, done.error, done.applied) == (WorkerState.WORKING, None, 3)
    assert_once(worker, log)


def test_an_error_instead_of_the_position_releases_no_lock(worker: OxigraphProcess) -> None:
    clock, transport = ManualClock(), Confused(worker.url, late={2})
    log, lost = begin(worker, transport, clock)
    assert lost.state is WorkerState.UNREACHABLE
    assert lost.suspect is not None
    assert worker.system().claims, "the request may still be executed"
    other = apply_up_to(ADAPTER, worker.transport, log, 11, clock=clock)
    assert (other.state, other.applied) == (WorkerState.WORKING, 0)
    assert transport.deliver() == [204]
    done = apply_up_to(ADAPTER, transport, log, 11, clock=clock, held=lost.foreign_lock, suspect=lost.suspect)
    assert (done.state, done.error, done.applied) == (WorkerState.WORKING, None, 3)
    assert_once(worker, log)
