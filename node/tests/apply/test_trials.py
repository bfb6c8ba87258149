"""A trial on every engine: nothing of it stays, and its answer tells whether the operations are accepted."""

from __future__ import annotations

import pytest
from engines import ALL, stores_of
from log_in_memory import MemoryLog
from server_process import StoreProcess

from txlog.apply import WorkerState, apply_up_to
from txlog.model.entry import KIND_QUADS, KIND_UPDATE
from txlog.model.entry_effects import EntryEffect, encode_effects
from txlog.model.synchronous_entry import KIND_DECISION
from txlog.workers.adapter import ApplyResult, StoreOperation

running, worker = stores_of(ALL)

GOOD = StoreOperation(KIND_QUADS, b"A <urn:s> <urn:p> <urn:o> <urn:g> .\n")
BAD = {
    "oxigraph": "CREATE GRAPH <urn:there>",
    "fuseki": "SELECT nothing",
    "rdf4j": "SELECT nothing",
    "virtuoso": "SELECT nothing",
}
"""What the engine refuses, by its name."""


@pytest.mark.parametrize("refused", [False, True])
def test_a_trial_changes_nothing(worker: StoreProcess, refused: bool) -> None:
    log = MemoryLog()
    log.update("INSERT DATA { <urn:first> <urn:p> <urn:o> }")
    assert apply_up_to(worker.adapter, worker.transport, log, 1).state is WorkerState.WORKING
    if worker.adapter.engine == "oxigraph":
        worker.transport.send(worker.adapter._update(["CREATE GRAPH <urn:there>"]))
    system = worker.adapter.parse_system_graphs(worker.transport.send(worker.adapter.read_system()))
    bad = StoreOperation(KIND_UPDATE, BAD[worker.adapter.engine].encode())
    operations = [GOOD, bad] if refused else [GOOD]
    answer = worker.transport.send(worker.adapter.apply(operations, system.markers[0], None))
    found = worker.adapter.parse_apply_result(answer)
    assert found is (ApplyResult.REFUSED if refused else ApplyResult.MOVED), answer.text
    after = worker.adapter.parse_system_graphs(worker.transport.send(worker.adapter.read_system()))
    assert after.markers == system.markers
    again = apply_up_to(worker.adapter, worker.transport, log, 1)
    assert (again.state, again.applied) == (WorkerState.WORKING, 0)


def test_the_refused_one_of_a_commit_is_named(worker: StoreProcess) -> None:
    log = MemoryLog()
    log.update("INSERT DATA { <urn:first> <urn:p> <urn:o> }")
    assert apply_up_to(worker.adapter, worker.transport, log, 1).state is WorkerState.WORKING
    if worker.adapter.engine == "oxigraph":
        worker.transport.send(worker.adapter._update(["CREATE GRAPH <urn:there>"]))
    bad = EntryEffect("us-1", 9, 3, KIND_UPDATE, BAD[worker.adapter.engine].encode())
    good = [EntryEffect("us-1", 9, seq, *GOOD) for seq in (1, 2)]
    log.append(KIND_DECISION, encode_effects([*good, bad]))
    found = apply_up_to(worker.adapter, worker.transport, log, 2)
    assert found.state is WorkerState.BLOCKED, found.error
    assert found.refused is not None
    assert found.refused.txid == bad.txid
