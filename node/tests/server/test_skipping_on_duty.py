"""When the master on duty may pass over a transaction that workers refuse: never one that a worker has executed."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from txlog.runtime.worker_state import STALE_S, RegisteredWorker, WorkerMarker
from txlog.server.admin.skip_transaction import NOTICE_TTL_S, SkipHandler

REFUSED = "uk-1:7:5"


def worker(name: str, index: int, state: str, age_s: float = 0.0) -> RegisteredWorker:
    found = RegisteredWorker(
        name, position=WorkerMarker(1, index, "ab" * 32), state=state, reported_at=time.time() - age_s
    )
    if state == "Blocked":
        found.status, found.txid = 400, REFUSED
    return found


def refused(
    near: list[RegisteredWorker], far: list[RegisteredWorker], heard_s: float = 0.0, captured: int = 0
) -> str | None:
    """By the workers of this data centre and of the other one, which was heard of so long ago. ``captured``: the last
    entry with a change set."""
    registry = SimpleNamespace(
        data_center="uk",
        notices=SimpleNamespace(last_received={"us-1": ("us", time.time() - heard_s)}),
        workers={w.name: w for w in near},
        remote_workers={"us": {w.name: w for w in far}},
    )
    site = SimpleNamespace(registry=registry, loop=None, masters=[("uk-1", "uk"), ("us-1", "us")])
    handler = SkipHandler(cast(Any, site), lambda peer, message: None, cast(Any, None), lambda index: index <= captured)
    return handler._refused_everywhere()


def test_what_all_refuse_is_passed_over() -> None:
    assert refused([worker("w1", 4, "Blocked")], [worker("w2", 4, "Blocked")]) == REFUSED


def test_not_what_has_left_as_a_change_set() -> None:
    """A worker that is gone has executed it."""
    both = [worker("w1", 4, "Blocked")], [worker("w2", 4, "Blocked")]
    assert refused(*both, captured=4) == REFUSED
    assert refused(*both, captured=5) is None


@pytest.mark.parametrize("state", ["Working", "Unordered", "Diverged"])
def test_not_while_one_has_not_said_no(state: str) -> None:
    assert refused([worker("w1", 4, "Blocked")], [worker("w2", 4, state)]) is None


def test_not_while_a_data_centre_is_silent() -> None:
    assert refused([worker("w1", 4, "Blocked")], [worker("w2", 4, "Blocked")], heard_s=NOTICE_TTL_S + 1) is None


@pytest.mark.parametrize("age_s", [0.0, STALE_S + 1])
def test_one_out_of_reach_is_not_waited_for(age_s: float) -> None:
    away = worker("w2", 4, "Unreachable" if not age_s else "Working", age_s)
    assert refused([worker("w1", 4, "Blocked")], [away]) == REFUSED


@pytest.mark.parametrize("age_s", [0.0, STALE_S + 1])
def test_not_when_one_out_of_reach_has_executed_it(age_s: float) -> None:
    away = worker("w2", 5, "Unreachable" if not age_s else "Working", age_s)
    assert refused([worker("w1", 4, "Blocked")], [away]) is None


def harmed(name: str, fault: str, state: str = "Blocked", running: bool = False) -> RegisteredWorker:
    """A worker that gives no answer to the transaction."""
    found = worker(name, 4, state)
    found.status, found.txid, found.fault, found.running = None, REFUSED, fault, running
    return found


@pytest.mark.parametrize("fault", ["ended", "stalled"])
def test_what_none_survives_is_passed_over(fault: str) -> None:
    assert refused([harmed("w1", fault)], [harmed("w2", "ended")]) == REFUSED
    assert refused([harmed("w1", fault)], [worker("w2", 4, "Blocked")]) == REFUSED, "the other one refuses it"
    assert refused([harmed("w1", fault)], [worker("w2", 4, "Unreachable")]) == REFUSED


def test_not_what_another_one_survives() -> None:
    assert refused([harmed("w1", "ended")], [worker("w2", 5, "Working")]) is None
    assert refused([harmed("w1", "ended")], [worker("w2", 5, "Unreachable")]) is None
    assert refused([harmed("w1", "ended")], [worker("w2", 4, "Working")]) is None


@pytest.mark.parametrize("state", ["Blocked", "Unreachable"])
def test_not_while_one_may_execute_it_yet(state: str) -> None:
    assert refused([harmed("w1", "ended")], [harmed("w2", "stalled", state, running=True)]) is None
    assert refused([harmed("w1", "ended")], [harmed("w2", "suspected", state)]) is None
    assert refused([harmed("w1", "ended", running=True)], [harmed("w2", "ended")]) is None


def test_a_report_of_an_older_pipeline_is_no_verdict() -> None:
    silent = worker("w2", 4, "Blocked")
    silent.status = None
    assert refused([harmed("w1", "ended")], [silent]) is None
