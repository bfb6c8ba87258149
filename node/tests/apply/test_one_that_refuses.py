"""A transaction that fails on one worker and succeeds on another: caught at that transaction, on real stores."""

from __future__ import annotations

from pathlib import Path

from log_in_memory import MemoryLog
from oxigraph_process import ADAPTER, OxigraphProcess

from txlog.apply import ApplyOutcome, WorkerState, apply_up_to
from txlog.divergence.detector import DivergenceDetector, ObservedWorker


def subject(name: str, outcome: ApplyOutcome) -> ObservedWorker:
    """As a master hears of it."""
    assert outcome.position is not None
    refused = None if outcome.refused is None else str(outcome.refused.txid)
    return ObservedWorker(name, "oxigraph", [], refused, outcome.position.position.index)


def test_the_store_that_refuses_stops_before_it_and_is_named(worker: OxigraphProcess, tmp_path: Path) -> None:
    other = OxigraphProcess(tmp_path / "other")
    try:
        log = MemoryLog()
        for n in range(1, 4):
            log.add(f"<urn:s:{n}> <urn:p> <urn:o> <urn:g> .")
        for each in (worker, other):
            assert apply_up_to(ADAPTER, each.transport, log, 3).state is WorkerState.WORKING
        # An empty graph that nobody but this store knows of: no count and no sum shows it.
        assert other.update("CREATE GRAPH <urn:only-here>").ok
        log.update("CREATE GRAPH <urn:only-here>")
        for n in range(5, 8):
            log.add(f"<urn:s:{n}> <urn:p> <urn:o> <urn:g> .")
        went_on = apply_up_to(ADAPTER, worker.transport, log, 7)
        stopped = apply_up_to(ADAPTER, other.transport, log, 7)
        assert (went_on.state, went_on.position and went_on.position.position.index) == (WorkerState.WORKING, 7)
        assert stopped.state is WorkerState.BLOCKED
        assert stopped.refused is not None
        assert (stopped.refused.index, stopped.refused.txid) == (4, log.entries[3].txid)
        assert len(other.quads()) == 3, "nothing behind it was executed"
        findings = DivergenceDetector()
        ((name, found),) = findings.judge([subject("uk/a", went_on), subject("uk/b", stopped)])[0]
        assert (name, found.kind, found.first_index, found.wrong) == ("uk/b", "refusal", 4, False)
        assert str(log.entries[3].txid) in found.why
    finally:
        other.kill()
