"""What becomes of a worker that differs, by rule: a table from what is known to a standing."""

from __future__ import annotations

from typing import Any

import pytest

from txlog.divergence.repair_policy import (
    REPAIR_WINDOW_S,
    REPAIRS_MAX,
    RETRY_PAUSES_S,
    RepairFailure,
    RepairInputs,
    repair_status,
)
from txlog.wire.divergence_report import REPAIR_STATES, CompletedRepair, DivergenceFinding

NOW = 1_000_000.0


def finding(fence: int = 3, **more: Any) -> DivergenceFinding:
    facts: dict[str, Any] = {"kind": "counts", "wrong": True, "right": ["uk/w-1"], **more}
    return DivergenceFinding(
        why="", graphs=["urn:a"], graph_count=1, first_index=1, index=7, hash="", fence=fence, **facts
    )


def repair(fence: int, at: float = NOW - 60) -> CompletedRepair:
    return CompletedRepair("w-2", "uk/w-1", ["urn:a"], 1, 1, 0, 7, fence, at)


def repairs(count: int, fence: int = 3, at: float = NOW - 60) -> list[CompletedRepair]:
    return [repair(fence - count + 1 + n, at) for n in range(count)]


CASES: list[tuple[RepairInputs, str, str]] = [
    (RepairInputs(finding()), "Due", ""),
    (RepairInputs(finding(kind="sums")), "Due", ""),
    (RepairInputs(finding(kind="refusal")), "ByHand", "rebuild NAME --live"),
    (RepairInputs(finding(wrong=False, right=[])), "Undecided", "--source OTHER"),
    (RepairInputs(finding(right=[])), "Undecided", "no worker of its engine that is right"),
    (RepairInputs(finding(), obstacle="uk-1 is Suspected"), "Waiting", "uk-1 is Suspected"),
    (RepairInputs(finding(), running=True, obstacle="it is held"), "Running", ""),
    (RepairInputs(finding(), failure=RepairFailure(1, "no", NOW - 5)), "Waiting", "again in 10 s: no"),
    (RepairInputs(finding(), failure=RepairFailure(3, "no", NOW - 59)), "Waiting", "again in 1 s"),
    (RepairInputs(finding(), failure=RepairFailure(3, "no", NOW - 60)), "Due", ""),
    (RepairInputs(finding(), failure=RepairFailure(50, "no", NOW - RETRY_PAUSES_S[1])), "Due", ""),
    (RepairInputs(finding(), repairs(1, fence=4)), "Waiting", "looked at again"),
    (RepairInputs(finding(), repairs(REPAIRS_MAX, fence=4)), "Waiting", "looked at again"),
    (RepairInputs(finding(), repairs(REPAIRS_MAX - 1)), "Due", ""),
    (RepairInputs(finding(), repairs(REPAIRS_MAX)), "GivenUp", f"repaired {REPAIRS_MAX} times"),
    (RepairInputs(finding(), repairs(REPAIRS_MAX), running=True), "GivenUp", ""),
    (RepairInputs(finding(), repairs(REPAIRS_MAX, at=NOW - REPAIR_WINDOW_S)), "Due", ""),
    (RepairInputs(finding(), repairs(REPAIRS_MAX, fence=2)), "Due", ""),
    (RepairInputs(finding(), repairs(REPAIRS_MAX, at=NOW - REPAIR_WINDOW_S), given_up=3), "GivenUp", ""),
    (RepairInputs(finding(), repairs(REPAIRS_MAX, fence=2), given_up=2), "Due", ""),
    (RepairInputs(None, repairs(2)), "Done", ""),
]


@pytest.mark.parametrize(("seen", "state", "why"), CASES)
def test_what_becomes_of_it(seen: RepairInputs, state: str, why: str) -> None:
    found = repair_status(seen, True, NOW)
    assert found is not None
    assert (found.state, found.last) == (state, seen.repairs[-1] if seen.repairs else None)
    assert why in found.why


def test_the_table_knows_every_state() -> None:
    assert {state for _, state, _ in CASES} == set(REPAIR_STATES)


def test_a_worker_that_never_differed_has_no_standing() -> None:
    assert repair_status(RepairInputs(None), True, NOW) is None


@pytest.mark.parametrize(
    "seen", [seen for seen, state, _ in CASES if state in ("Due", "Running", "Waiting", "GivenUp")]
)
def test_nothing_happens_by_itself_where_the_setting_is_manual(seen: RepairInputs) -> None:
    found = repair_status(seen, False, NOW)
    assert found is not None
    assert (found.state, found.why) == ("ByHand", "workerRepair is manual: txlog worker repair NAME")
