"""Schedules, delays, outputs of jobs, down proofs, and the masters of the log against those of the manifests."""

from __future__ import annotations

from typing import Any

import pytest

from txlog.config.schedule import parse_schedule
from txlog.supervision.backup_schedule import ScheduleStep, plan_scheduled_backup
from txlog.supervision.down_proof import needs_down_proof
from txlog.supervision.job_output import failure_message, parse_job_output
from txlog.supervision.membership import (
    missing_masters,
    newest_configuration,
    next_master_to_add,
    next_master_to_remove,
    unlisted_masters,
)
from txlog.supervision.retry_delay import next_delay_s


def test_delays_double_between_their_bounds() -> None:
    delays = [0.0]
    for _ in range(6):
        delays.append(next_delay_s(delays[-1], (1.0, 15.0)))
    assert delays[1:] == [1.0, 2.0, 4.0, 8.0, 15.0, 15.0]


@pytest.mark.parametrize(
    ("due_at", "now", "busy", "wanted"),
    [
        (None, 7.0, False, ScheduleStep(False, False, 10.0)),
        (10.0, 9.9, True, ScheduleStep(False, False, 10.0)),
        (70.0, 7.0, False, ScheduleStep(False, False, 10.0)),  # of a former schedule
        (10.0, 10.0, False, ScheduleStep(True, False, 20.0)),
        (10.0, 35.0, False, ScheduleStep(True, False, 40.0)),
        (10.0, 10.5, True, ScheduleStep(False, True, 20.0)),
    ],
)
def test_a_scheduled_backup(due_at: float | None, now: float, busy: bool, wanted: ScheduleStep) -> None:
    assert plan_scheduled_backup(lambda at: at // 10 * 10 + 10, due_at, now, busy=busy) == wanted


@pytest.mark.parametrize("look_s", [1.0, 3.0, 30.0])
def test_an_interval_comes_to_its_end(look_s: float) -> None:
    """However often a supervisor looks: a day has three intervals of eight hours."""
    every, now, due_at, starts = parse_schedule("@every 8h"), 0.0, None, 0
    while now < 24 * 3600 + look_s:
        step = plan_scheduled_backup(every.next_after, due_at, now, busy=False, is_interval=every.is_interval)
        starts, due_at, now = starts + step.starts, step.next_at, now + look_s
    assert starts == 3


def test_a_shorter_interval_counts_at_once() -> None:
    every = parse_schedule("@every 1h")
    step = plan_scheduled_backup(every.next_after, 8 * 3600.0, 0.0, busy=False, is_interval=True)
    assert step == ScheduleStep(False, False, 3600.0)


def test_the_output_of_a_job() -> None:
    assert parse_job_output('a warning\n{"index": 7}\n') == {"index": 7}
    for nothing in ("", "killed", "[1]"):
        assert parse_job_output(nothing) == {}
    assert failure_message('{"error": "NoWorker", "message": "none"}', "") == "NoWorker: none"
    assert failure_message('{"message": "none"}', "") == "none"
    assert failure_message("x" * 600 + "MemoryError\n", "") == "x" * 489 + "MemoryError"
    assert failure_message(" \n", "its pod has failed") == "its pod has failed"


def test_a_proof_is_needed_where_that_process_is_still_a_member() -> None:
    member = {"node": "uk-2", "birth": "0a"}
    assert needs_down_proof([member], [], "uk-2", "0a", 3)
    assert needs_down_proof([member], [{"node": "uk-2", "start": 3}], "uk-2", "0a", 3)
    assert not needs_down_proof([member], [{"node": "uk-2", "start": 4}], "uk-2", "0a", 3), "a later process answers"
    assert not needs_down_proof([{**member, "birth": "0b"}], [], "uk-2", "0a", 3)
    assert not needs_down_proof([], [{"node": "uk-2", "start": 3}], "uk-2", "0a", 3)


def configuration(*nodes: str, removed: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    masters = [{"node": node, "dataCenter": node.partition("-")[0], "role": "member"} for node in nodes]
    return {"version": 1, "masters": masters, "removed": list(removed), "pending": None, **more}


def test_the_newest_configuration() -> None:
    assert newest_configuration([None]) is None
    assert newest_configuration([{"version": 9}, None, {"version": 10}]) == {"version": 10}


def test_masters_are_added_one_at_a_time() -> None:
    known, wanted = configuration("uk-1", "us-1", removed=("uk-2",)), ["uk-1", "uk-2", "uk-3", "us-1"]
    assert missing_masters(known, wanted) == ["uk-3"]
    assert next_master_to_add(known, wanted) == "uk-3"
    assert next_master_to_add(known, wanted, again=True) == "uk-2"
    assert next_master_to_add(known, ["uk-1"]) is None
    assert next_master_to_add({**known, "pending": "uk-1.0a.7"}, wanted) is None
    assert unlisted_masters(known, ["uk-1", "uk-3"]) == ["us-1"]


def test_the_last_master_is_removed_first_and_leaves_alone() -> None:
    known = configuration("uk-1", "uk-2", "uk-9", "uk-10", "us-7")
    assert next_master_to_remove(known, "uk", ["uk-1", "uk-2"]) == "uk-10"
    assert next_master_to_remove(known, "us", ["us-7"]) is None
    assert next_master_to_remove({**known, "pending": "uk-1.0a.7"}, "uk", ["uk-1"]) is None
    known["masters"][2]["role"] = "leaving"
    assert next_master_to_remove(known, "uk", ["uk-1"]) is None
