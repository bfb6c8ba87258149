"""Safeguards of the durability levels of any master's transactions (rules 15, 16), one each taken out. Imports nothing
of ``txlog``."""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

MARKS = "txlog/protocol/replication/durability_marks.py"
TRACKER = "txlog/runtime/durability_tracker.py"
STATUS = "txlog/runtime/master_status.py"
LOOP = "txlog/runtime/master_loop.py"
_TEST = "node/tests/protocol/test_levels_of_others.py::"
_FRONT_DOOR = "node/tests/server/test_levels_of_repeats.py::"
_SYNCHRONOUS = "node/tests/runtime/test_synchronous_levels.py::"
_CUT = "node/tests/runtime/test_a_log_that_is_cut.py::"

LEVEL_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "quorum-index-in-a-view-of-any-weight",
        "16",
        False,
        (
            SourceEdit(
                MARKS,
                " and _is_quorum({node, *(peer.node for peer in peers)}, configured):\n",
                ":\n",
            ),
        ),
        profile="splits",
    ),
    Mutant(
        "quorum-by-stable-here",
        "16",
        False,
        (
            SourceEdit(
                TRACKER,
                "return 0 < index <= self.quorum_index or self._status",
                "return 0 < index <= self.stable.value or self._status",
            ),
        ),
        test=_TEST + "test_stable_in_a_view_of_a_minority_is_no_quorum",
    ),
    Mutant(
        "quorum-by-the-members-of-the-view",
        "16",
        False,
        (SourceEdit(MARKS, "p.fault is None and p.held_seq(slot) >= txid.seq}", "p.fault is None}"),),
        test=_TEST + "test_stable_in_a_view_of_a_minority_is_no_quorum",
    ),
    Mutant(
        "quorum-waits-for-stable",
        "16",
        False,
        (SourceEdit(TRACKER, " or self._status.is_held_by_quorum(txid)", ""),),
        test=_TEST + "test_what_more_than_half_report_has_reached_quorum_though_two_are_silent",
    ),
    Mutant(
        "quorum-index-stays-above-a-cut",
        "16",
        False,
        (SourceEdit(TRACKER, "        self.quorum_index = min(self.quorum_index, cut)\n", ""),),
        test=_CUT + "test_marks_that_wait_for_the_disk_speak_of_no_log_that_was_cut",
    ),
    Mutant(
        "a-repeat-answered-from-memory",
        "15",
        False,
        (SourceEdit(STATUS, " and self._executor.is_durable(txid)", ""),),
        test=_TEST + "test_a_repeat_waits_for_the_disk_of_the_master_that_answers",
    ),
    Mutant(
        "a-batch-waits-for-its-last-repeat",
        "15",
        False,
        (SourceEdit(LOOP, "            elif not answer.is_repeat:\n", "            else:\n"),),
        test=_FRONT_DOOR + "test_a_batch_that_ends_with_a_repeat_waits_for_its_new_lines",
    ),
    Mutant(
        "a-later-worker-of-a-name-inherits-what-was-proved",
        "16",
        False,
        (SourceEdit("txlog/runtime/worker_registry.py", "        self._forget_removed()\n", ""),),
        test="node/tests/runtime/test_removed_workers.py::"
        "test_names_of_removed_workers_of_another_data_centre_do_not_pile_up",
    ),
    Mutant(
        "a-quorum-of-one-before-its-disk",
        "15",
        False,
        (SourceEdit("txlog/runtime/executor.py", "for records in (undrained, *[", "for records in ([], *["),),
        test=_SYNCHRONOUS + "test_a_quorum_of_one_has_the_write_once_its_own_disk_has_it",
    ),
    Mutant(
        "a-sync-for-what-nothing-waits-for",
        "15",
        False,
        (SourceEdit(LOOP, "        if mono_ms < self.sync_by_ms:\n", "        if mono_ms < 0:\n"),),
        test=_SYNCHRONOUS + "test_records_that_nothing_waits_for_share_the_sync_of_the_next_write",
    ),
    Mutant(
        "syncs-are-put-off-for-everybody",
        "15",
        False,
        (SourceEdit("txlog/runtime/executor.py", "log is None or log.synchronous.is_unused or", "log is None or"),),
        test=_SYNCHRONOUS + "test_without_synchronous_transactions_no_sync_is_put_off",
    ),
    Mutant(
        "a-lone-master-is-not-woken-after-its-commit",
        "S6",
        False,
        (SourceEdit("txlog/protocol/core.py", "return min(due.wake_ms, now.mono + 1)", "return due.wake_ms"),),
        test="node/tests/protocol/test_synchronous_masters.py::test_a_lone_master_needs_no_message_to_go_on",
    ),
    Mutant(
        "terms-of-any-write-are-kept",
        "S1",
        False,
        (
            SourceEdit(
                "txlog/server/frontdoor/synchronous_door.py",
                "len(written.named) > KNOWN_GRAPHS_MAX)",
                "len(written.named) > 1 << 40)",
            ),
        ),
        test="node/tests/server/test_synchronous_terms.py::test_writes_of_many_graphs_leave_nothing_behind",
    ),
)
