"""What several masters of a data centre list, as one list, and what a supervisor does with it."""

from __future__ import annotations

from typing import Any

import pytest

from txlog.supervision.duties import (
    DutyKind,
    DutyList,
    duties_to_perform,
    kind_of,
    masters_that_list,
    may_release_backups,
)

BACKUP = {"id": "backup-3.1.uk-2", "kind": "backup", "worker": None}
UNORDER = {"id": "unorder-w-1", "kind": "unorder", "worker": "w-1", "lacks": False}


def restore(worker: str, lacks: bool = False) -> dict[str, Any]:
    return {"id": f"restore-{worker}-7", "kind": "restore", "worker": worker, "lacks": lacks}


def repair(worker: str, fence: int = 0) -> dict[str, Any]:
    return {"id": f"repair-{worker}-{fence}", "kind": "repair", "worker": worker}


def lists(*duties: list[dict[str, Any]], state: str = "Joined") -> list[DutyList]:
    return [DutyList(each, state) for each in duties]


def test_the_order_of_performance() -> None:
    performed = duties_to_perform(lists([restore("w-2"), UNORDER], [BACKUP, UNORDER, restore("w-2")]))
    assert [duty["id"] for duty in performed] == ["backup-3.1.uk-2", "unorder-w-1", "restore-w-2-7"]
    assert sorted(DutyKind, key=lambda kind: kind.rank) == [
        "backup",
        "unorder",
        "adopt",
        "discard",
        "restore",
        "repair",
    ]


def test_a_kind_of_a_newer_master_is_ignored() -> None:
    assert duties_to_perform(lists([{"id": "polish-w-1", "kind": "polish", "worker": "w-1"}, BACKUP])) == [BACKUP]
    assert (kind_of("polish-w-1"), kind_of("unorder-w-1")) == (None, DutyKind.UNORDER)


@pytest.mark.parametrize(
    ("listed", "wanted"),
    [
        ([[repair("w-1")]], ["w-1"]),
        ([[repair("w-1")], [repair("w-1")]], ["w-1"]),
        ([[repair("w-1")], []], []),
        ([[repair("w-1")], [repair("w-1", 1)]], []),
        ([[repair("w-1")], [repair("w-2")]], []),
        ([[repair("w-1"), repair("w-2")]], ["w-1"]),
        ([[], []], []),
        ([], []),
    ],
)
def test_a_worker_is_repaired_when_every_master_lists_it(listed: list[list[dict[str, Any]]], wanted: list[str]) -> None:
    assert [duty["worker"] for duty in duties_to_perform(lists(*listed))] == wanted
    beside = duties_to_perform(lists(*listed), ["w-9"])
    assert {duty["kind"] for duty in beside} <= {"restore"}, "not while a restore is unfinished"


@pytest.mark.parametrize("other", [BACKUP, UNORDER, restore("w-2"), restore("w-2", True)])
def test_no_worker_is_repaired_beside_another_duty(other: dict[str, Any]) -> None:
    for listed in ([[repair("w-1"), other]], [[repair("w-1")], [repair("w-1"), other]]):
        assert all(duty["kind"] != "repair" for duty in duties_to_perform(lists(*listed)))


@pytest.mark.parametrize(
    ("listed", "wanted"),
    [
        ([[restore("w-1")], []], ["w-1"]),
        ([[restore("w-1", True)], [UNORDER]], []),
        ([[restore("w-1", True)], []], []),
        ([[restore("w-1", True)], [restore("w-1", True)]], ["w-1"]),
        ([[restore("w-1", True)]], ["w-1"]),
        ([[restore("w-1", True), restore("w-2")], [restore("w-2")]], ["w-2"]),
        ([[], []], []),
    ],
)
def test_a_worker_is_restored_unless_another_master_may_know_its_order(
    listed: list[list[dict[str, Any]]], wanted: list[str]
) -> None:
    performed = duties_to_perform(lists(*listed))
    assert [duty["worker"] for duty in performed if duty["kind"] == "restore"] == wanted


def test_an_unfinished_restore_continues_while_a_master_answers() -> None:
    assert duties_to_perform([], ["w-1"]) == []
    (continued,) = duties_to_perform(lists([]), ["w-1"])
    assert (continued["kind"], continued["worker"]) == ("restore", "w-1")
    assert duties_to_perform(lists([restore("w-1")]), ["w-1"]) == [restore("w-1")], "under the id that masters know"


def test_only_a_restore_may_leave_a_worker_half_loaded() -> None:
    assert [kind for kind in DutyKind if kind.may_leave_partial_state] == [DutyKind.DISCARD, DutyKind.RESTORE]


def test_a_discard_that_was_interrupted_goes_on_as_what_it_is() -> None:
    """While a person's decision is listed, the plain restore would refuse that store."""
    discard = {"id": "discard-w-1-20-abcdef01", "kind": "discard", "worker": "w-1"}
    assert duties_to_perform(lists([discard]), ["w-1"]) == [discard]
    (continued,) = duties_to_perform(lists([]), ["w-1"])
    assert continued["kind"] == "restore"


def test_the_arguments_of_the_job() -> None:
    assert DutyKind.BACKUP.job_argument("backup-3.1.uk-2", None) == "--backup=backup-3.1.uk-2"
    assert [kind.job_argument("id", "w-1") for kind in (DutyKind.UNORDER, DutyKind.RESTORE, DutyKind.REPAIR)] == [
        *("--unorder=w-1", "--restore=w-1", "--repair=w-1")
    ]


def test_a_repetition_that_found_the_work_done_is_known() -> None:
    for kind, did, found in (
        (DutyKind.BACKUP, {"name": "b", "index": 7}, {"already": True}),
        (DutyKind.UNORDER, {"index": 7}, {"already": True}),
        (DutyKind.REPAIR, {"graphCount": 1}, {"graphCount": 0}),
    ):
        assert kind.changed_something(did), kind
        assert not kind.changed_something(found), kind
    assert DutyKind.RESTORE.changed_something({"already": True}), "it ends the record of an unfinished restore"


def test_a_failure_is_reported_to_masters_that_list_the_duty() -> None:
    found = {"http://a": DutyList([BACKUP]), "http://b": DutyList([UNORDER]), "http://c": DutyList([UNORDER, BACKUP])}
    assert masters_that_list(found, BACKUP["id"] or "") == ["http://a", "http://c"]


def test_split_backups_are_released_when_the_split_is_over_for_every_master() -> None:
    assert may_release_backups(lists([], []), 2)
    assert not may_release_backups(lists([]), 2)
    assert not may_release_backups(lists([], [restore("w-1", True)]), 2)
    assert not may_release_backups(lists([], [], state="Rejoining"), 2)
