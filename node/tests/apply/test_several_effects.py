"""A COMMIT of several transactions: one request, all or nothing, and the one that a store refuses is named."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from log_in_memory import COUNT, ManualClock, MemoryLog
from oxigraph_process import ADAPTER, OxigraphProcess

from txlog.apply import WorkerState, apply_up_to
from txlog.apply.entry_operations import find_refused, is_noop
from txlog.model.entry import KIND_QUADS, KIND_UPDATE, LogEntry
from txlog.model.entry_effects import NOOP_SYNCHRONOUS, EntryEffect, encode_effects
from txlog.model.synchronous_entry import KIND_DECISION, KIND_SYNCHRONOUS_QUADS
from txlog.workers.adapter import StoreOperation, WorkerResponse

BIRTH = 0xC0FFEE00C0FFEE


def effect(seq: int, text: str) -> EntryEffect:
    kind = KIND_QUADS if text[:2] in ("A ", "D ") else KIND_UPDATE
    return EntryEffect("us-1", BIRTH, seq, kind, text.encode())


def add_commit(log: MemoryLog, *texts: str) -> LogEntry:
    return log.append(KIND_DECISION, encode_effects([effect(seq, text) for seq, text in enumerate(texts, 1)]))


def quad(name: str) -> str:
    return f"A <urn:{name}> <urn:p> <urn:o> <urn:g> .\n"


def test_all_of_one_commit_in_one_request_in_their_order(worker: OxigraphProcess) -> None:
    log = MemoryLog()
    log.update("INSERT DATA { <urn:counter> <urn:value> 1 }")
    log.append(KIND_SYNCHRONOUS_QUADS, b"", NOOP_SYNCHRONOUS)
    add_commit(log, quad("a"), COUNT, "D <urn:a> <urn:p> <urn:o> <urn:g> .\n", quad("b"))
    log.append(KIND_DECISION, b"", NOOP_SYNCHRONOUS)
    log.append(KIND_DECISION, b"")
    found = apply_up_to(ADAPTER, worker.transport, log, log.end, merge_max_transactions=1)
    assert (found.state, found.position and found.position.position) == (WorkerState.WORKING, log.position(5))
    assert found.applied == 5
    assert sorted(worker.quads()) == [
        "<urn:b> <urn:p> <urn:o> <urn:g> .",
        '<urn:counter> <urn:value> "2"^^<http://www.w3.org/2001/XMLSchema#integer> .',
    ]


@pytest.mark.parametrize("refused", [0, 2, 4])
def test_the_refused_one_is_named_and_nothing_of_the_commit_stays(worker: OxigraphProcess, refused: int) -> None:
    log = MemoryLog()
    log.update("CREATE GRAPH <urn:there>")
    texts = [quad("a"), COUNT, quad("b"), "CREATE GRAPH <urn:new>", quad("c")]
    texts[refused] = "CREATE GRAPH <urn:there>"
    add_commit(log, *texts)
    found = apply_up_to(ADAPTER, worker.transport, log, log.end, clock=ManualClock())
    assert found.state is WorkerState.BLOCKED
    assert found.refused is not None
    assert (found.refused.index, found.refused.txid) == (2, effect(refused + 1, "").txid)
    assert "urn:there" in found.refused.body
    assert found.position is not None
    assert found.position.position == log.position(1)
    assert worker.quads() == []
    # Once the log skips it, a page has the COMMIT without it, and the rest takes effect.
    kept = [effect(seq, text) for seq, text in enumerate(texts, 1) if seq != refused + 1]
    log.entries[1] = msgspec.structs.replace(log.entries[1], payload=encode_effects(kept))
    again = apply_up_to(ADAPTER, worker.transport, log, log.end, cached=found.position)
    assert again.state is WorkerState.WORKING
    assert worker.quads()


def test_entries_without_effects_move_the_position_alone() -> None:
    log = MemoryLog()
    assert is_noop(log.append(KIND_DECISION, b""))
    assert is_noop(log.append(KIND_SYNCHRONOUS_QUADS, b"A x", NOOP_SYNCHRONOUS))
    assert not is_noop(add_commit(log, quad("a")))


@pytest.mark.parametrize("count", [1, 2, 3, 7, 500])
@pytest.mark.parametrize("place", [0.0, 0.5, 1.0])
def test_the_first_refused_operation_is_found_in_few_trials(count: int, place: float) -> None:
    operations = [StoreOperation(KIND_UPDATE, b"%d" % number) for number in range(count)]
    wrong = round(place * (count - 1))
    trials = list[int]()

    def try_prefix(prefix: Sequence[StoreOperation]) -> WorkerResponse | None:
        trials.append(len(prefix))
        return WorkerResponse(500, {}, b"some") if len(prefix) > wrong else None

    assert find_refused(operations, WorkerResponse(500, {}, b"all"), try_prefix)[0] == wrong
    assert len(trials) <= 9
