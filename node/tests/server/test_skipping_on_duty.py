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


def refused(near: list[RegisteredWorker], far: list[RegisteredWorker], heard_s: float = 0.0) -> str | None:
    """By the workers of this data centre and of the other one, which was heard of so long ago."""
    registry = SimpleNamespace(
        data_center="uk",
        notices=SimpleNamespace(last_received={"us-1": ("us", time.time() - heard_s)}),
        workers={w.name: w for w in near},
        remote_workers={"us": {w.name: w for w in far}},
    )
    site = SimpleNamespace(registry=registry, loop=None, masters=[("uk-1", "uk"), ("us-1", "us")])
    return SkipHandler(cast(Any, site), lambda peer, message: None, cast(Any, None))._refused_everywhere()


def test_what_all_refuse_is_passed_over() -> None:
    assert refused([worker("w1", 4, "Blocked")], [worker("w2", 4, "Blocked")]) == REFUSED


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
