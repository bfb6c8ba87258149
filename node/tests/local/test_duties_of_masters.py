"""What several masters of a data centre list, as one list."""

from __future__ import annotations

from typing import Any

from txlog.model.duty import merge_repair_duties, merge_restore_duties


def restore(worker: str, lacks: bool = False) -> dict[str, Any]:
    return {"id": f"restore-{worker}", "kind": "restore", "worker": worker, "lacks": lacks}


UNORDER = {"id": "unorder-w-1", "kind": "unorder", "worker": "w-1", "lacks": False}


def repair(worker: str, fence: int = 0) -> dict[str, Any]:
    return {"id": f"repair-{worker}-{fence}", "kind": "repair", "worker": worker}


def test_a_worker_is_repaired_when_all_that_answer_say_so_alone_and_beside_nothing_else() -> None:
    for lists, wanted in (
        ([[repair("w-1")]], ["w-1"]),
        ([[repair("w-1")], [repair("w-1")]], ["w-1"]),
        ([[repair("w-1")], []], []),
        ([[repair("w-1")], [repair("w-1", 1)]], []),
        ([[repair("w-1")], [repair("w-2")]], []),
        ([[repair("w-1"), repair("w-2")]], ["w-1"]),
        ([[repair("w-1"), UNORDER]], []),
        ([[repair("w-1")], [repair("w-1"), restore("w-2")]], []),
        ([[], []], []),
        ([], []),
    ):
        assert list(merge_repair_duties([{"duties": duties} for duties in lists])) == wanted


def test_a_worker_goes_back_when_a_master_knows_that_it_must_or_nobody_knows_better() -> None:
    for lists, wanted in (
        ([[restore("w-1")], []], ["w-1"]),
        ([[restore("w-1", True)], [UNORDER]], []),
        ([[restore("w-1", True)], []], []),
        ([[restore("w-1", True)], [restore("w-1", True)]], ["w-1"]),
        ([[restore("w-1", True)]], ["w-1"]),
        ([[restore("w-1", True), restore("w-2")], [restore("w-2")]], ["w-2"]),
        ([[], []], []),
    ):
        assert list(merge_restore_duties([{"duties": duties} for duties in lists])) == wanted
