"""Nothing behind the log asks the bounds of updates: masters of other bounds, or versions, execute one log alike."""

from __future__ import annotations

import pytest
from log_in_memory import MemoryLog
from oxigraph_process import ADAPTER, OxigraphProcess

from txlog.apply import WorkerState, apply_up_to
from txlog.model.entry import KIND_UPDATE, Position
from txlog.model.errors import BadInput
from txlog.sparql import prepare_update
from txlog.sparql.plan_limit import JOIN_PARTS_MAX
from txlog.workers import ADAPTERS
from txlog.workers.adapter import LockAction, MarkerPosition, StoreOperation

PATTERNS = " ".join(f"?s <urn:p{n}> ?o{n} ." for n in range(JOIN_PARTS_MAX + 1))
UPDATE = f"INSERT {{ ?s <urn:found> true }} WHERE {{ {PATTERNS} }}"
GROUPS = "{ " * 70 + "?s <urn:p0> ?o" + " }" * 70
NESTED = f"INSERT {{ ?s <urn:found> true }} WHERE {{ {GROUPS} }}"


@pytest.mark.parametrize("update", [UPDATE, NESTED], ids=["patterns", "nesting"])
def test_an_update_above_the_bounds_is_executed_once_it_is_in_the_log(worker: OxigraphProcess, update: str) -> None:
    with pytest.raises(BadInput):
        prepare_update(update, base=None, now="2026-01-01T00:00:00Z", draw=lambda: 1)
    log = MemoryLog()
    log.add(*(f"<urn:s> <urn:p{n}> <urn:o> ." for n in range(JOIN_PARTS_MAX + 1)))
    log.update(update)
    outcome = apply_up_to(ADAPTER, worker.transport, log, 2, budget_s=60, execution_s=60)
    assert (outcome.state, outcome.applied, outcome.error) == (WorkerState.WORKING, 2, None)
    assert len(worker.quads()) == JOIN_PARTS_MAX + 2


@pytest.mark.parametrize("engine", sorted(ADAPTERS))
@pytest.mark.parametrize("update", [UPDATE, NESTED], ids=["patterns", "nesting"])
def test_no_adapter_refuses_it(engine: str, update: str) -> None:
    at = MarkerPosition(Position(1, 1, bytes(16)), 0)
    to = MarkerPosition(Position(1, 2, bytes(15) + b"1"), 0)
    operation = StoreOperation(KIND_UPDATE, update.encode())
    request = ADAPTERS[engine].apply([operation], at, to, lock=LockAction.NONE, token=0, release=False)
    assert request.path
