"""What becomes of a worker that differs, by rule: a table from what is known to a standing."""

from __future__ import annotations

from typing import Any

import pytest

from txlog.divergence.judging import Finding
from txlog.divergence.repairs import LIMIT, PAUSES_S, STATES, WITHIN_S, Failure, Repair, Seen, standing

NOW = 1_000_000.0


def finding(fence: int = 3, **more: Any) -> Finding:
    facts: dict[str, Any] = {"kind": "counts", "wrong": True, "right": ["uk/w-1"], **more}
    return Finding(why="", graphs=["urn:a"], graph_count=1, first_index=1, index=7, hash="", fence=fence, **facts)


def repair(fence: int, at: float = NOW - 60) -> Repair:
    return Repair("w-2", "uk/w-1", ["urn:a"], 1, 1, 0, 7, fence, at)


def repairs(count: int, fence: int = 3, at: float = NOW - 60) -> list[Repair]:
    return [repair(fence - count + 1 + n, at) for n in range(count)]


CASES: list[tuple[Seen, str, str]] = [
    (Seen(finding()), "Due", ""),
    (Seen(finding(kind="sums")), "Due", ""),
    (Seen(finding(kind="refusal")), "ByHand", "rebuild NAME --live"),
    (Seen(finding(wrong=False, right=[])), "Undecided", "--source OTHER"),
    (Seen(finding(right=[])), "Undecided", "no worker of its engine that is right"),
    (Seen(finding(), obstacle="uk-1 is Suspected"), "Waiting", "uk-1 is Suspected"),
    (Seen(finding(), running=True, obstacle="it is held"), "Running", ""),
    (Seen(finding(), failure=Failure(1, "no", NOW - 5)), "Waiting", "again in 10 s: no"),
    (Seen(finding(), failure=Failure(3, "no", NOW - 59)), "Waiting", "again in 1 s"),
    (Seen(finding(), failure=Failure(3, "no", NOW - 60)), "Due", ""),
    (Seen(finding(), failure=Failure(50, "no", NOW - PAUSES_S[1])), "Due", ""),
    (Seen(finding(), repairs(1, fence=4)), "Waiting", "looked at again"),
    (Seen(finding(), repairs(LIMIT, fence=4)), "Waiting", "looked at again"),
    (Seen(finding(), repairs(LIMIT - 1)), "Due", ""),
    (Seen(finding(), repairs(LIMIT)), "GivenUp", f"repaired {LIMIT} times"),
    (Seen(finding(), repairs(LIMIT), running=True), "GivenUp", ""),
    (Seen(finding(), repairs(LIMIT, at=NOW - WITHIN_S)), "Due", ""),
    (Seen(finding(), repairs(LIMIT, fence=2)), "Due", ""),
    (Seen(finding(), repairs(LIMIT, at=NOW - WITHIN_S), given_up=3), "GivenUp", ""),
    (Seen(finding(), repairs(LIMIT, fence=2), given_up=2), "Due", ""),
    (Seen(None, repairs(2)), "Done", ""),
]


@pytest.mark.parametrize(("seen", "state", "why"), CASES)
def test_what_becomes_of_it(seen: Seen, state: str, why: str) -> None:
    found = standing(seen, True, NOW)
    assert found is not None
    assert (found.state, found.last) == (state, seen.repairs[-1] if seen.repairs else None)
    assert why in found.why


def test_the_table_knows_every_state() -> None:
    assert {state for _, state, _ in CASES} == set(STATES)


def test_a_worker_that_never_differed_has_no_standing() -> None:
    assert standing(Seen(None), True, NOW) is None


@pytest.mark.parametrize(
    "seen", [seen for seen, state, _ in CASES if state in ("Due", "Running", "Waiting", "GivenUp")]
)
def test_nothing_happens_by_itself_where_the_setting_is_manual(seen: Seen) -> None:
    found = standing(seen, False, NOW)
    assert found is not None
    assert (found.state, found.why) == ("ByHand", "workerRepair is manual: txlog worker repair NAME")
