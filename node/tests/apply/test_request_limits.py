"""How long an applier waits, for an answer and for another applier."""

from __future__ import annotations

import pytest
from log_in_memory import ManualClock, MemoryLog
from oxigraph_process import ADAPTER, OxigraphProcess

from txlog.apply import EXECUTION_S, WorkerState, apply_up_to
from txlog.apply.request_limits import silence_limit_s, time_limit_s
from txlog.config.limit_specs import EXECUTION_TIMEOUT
from txlog.config.units import parse_duration
from txlog.workers.adapter import TAKEOVER_S

LONGEST_S = parse_duration(EXECUTION_TIMEOUT[1]) / 1000


@pytest.mark.parametrize("execution_s", [1.0, EXECUTION_S, LONGEST_S])
@pytest.mark.parametrize("size", [10, 16 << 20, 48 << 20])
def test_no_owner_is_taken_for_dead_while_it_waits_for_an_answer(execution_s: float, size: int) -> None:
    log = MemoryLog()
    log.update(" " * size)
    waits_s = time_limit_s(log.entries, execution_s)
    assert silence_limit_s(log.entries[0], execution_s, TAKEOVER_S) > waits_s


@pytest.mark.parametrize("execution_s", [EXECUTION_S, LONGEST_S])
def test_a_lock_is_left_to_an_owner_that_may_still_wait(worker: OxigraphProcess, execution_s: float) -> None:
    log, clock = MemoryLog(), ManualClock()
    log.add("<urn:s> <urn:p> <urn:o> <urn:g> .")
    assert worker.send(ADAPTER.claim(7)).ok
    held = None

    def apply_after(seconds: float) -> WorkerState | None:
        nonlocal held
        clock.time += seconds
        found = apply_up_to(
            ADAPTER, worker.transport, log, 1, clock=clock, held=held, budget_s=0.0, execution_s=execution_s
        )
        held = found.foreign_lock
        return found.state if found.applied else None

    more_s = execution_s - EXECUTION_S
    while held is None:  # a claim that shares no graph with the other one sees it only where it is confirmed
        assert apply_after(0) is None
    assert apply_after(TAKEOVER_S + more_s - 1) is None
    assert worker.system().claims == ADAPTER.claims_for_token(7)
    assert apply_after(2) is WorkerState.WORKING
