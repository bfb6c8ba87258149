"""Safeguards of trims and snapshots (rules 17 and 19), one each taken out. Imports nothing of ``txlog``."""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

TRIMMING = "txlog/protocol/log/log_trim.py"
AGREEMENT = "txlog/protocol/log/log_state.py"
FEET = "txlog/protocol/log/log_start.py"
CORE = "txlog/protocol/core.py"
REPLICATION = "txlog/protocol/replication/replication_state.py"
RESPONDER = "txlog/protocol/replication/fetch_responder.py"
_CHUNKS = "node/tests/protocol/test_snapshot_chunks.py::"
JOURNAL_TRIM = "txlog/journal/segment_gc.py"
TEST = "node/tests/protocol/test_trimming.py::"
ARCHIVE_REPORTS = "txlog/server/admin/archive_reports.py"
ARCHIVE_TEST = "node/tests/server/test_archive_reports.py::"
JOURNAL_TEST = "node/tests/journal/test_journal_trim.py::"

TRIM_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "trim-above-a-worker",
        "19",
        False,
        (
            SourceEdit(
                TRIMMING,
                "    blockers += [_position_blocker(log, one) for one in positions if one.kind == WORKER]\n",
                "",
            ),
        ),
    ),
    Mutant(
        "trim-above-the-archive",
        "19",
        False,
        (
            SourceEdit(
                TRIMMING,
                "    blockers += [_position_blocker(log, one) for one in positions if one.kind == ARCHIVE]\n",
                "",
            ),
        ),
        test=f"{TEST}test_rule_19_the_archive_holds_what_is_not_read_back",
    ),
    Mutant(
        "trim-to-what-is-archived-and-not-read-back",
        "19",
        False,
        (
            SourceEdit(
                ARCHIVE_REPORTS,
                "        return known.verified.highest(self._is_on_log) if known is not None else None\n",
                "        return known.archived.highest(self._is_on_log) if known is not None else None\n",
            ),
        ),
        test=f"{ARCHIVE_TEST}test_the_log_goes_only_up_to_the_verified_place",
    ),
    Mutant(
        "a-dead-archiver-has-no-delay",
        "19",
        False,
        (
            SourceEdit(
                "txlog/server/admin/stable_delay.py",
                "        if agreement is None or stable <= index:\n",
                "        if agreement is None or index:\n",
            ),
        ),
        test=f"{ARCHIVE_TEST}test_the_delay_grows_while_nothing_is_archived_and_all_masters_know_it",
    ),
    Mutant(
        "trim-above-a-silent-master",
        "19",
        False,
        (
            SourceEdit(
                CORE,
                "        masters = [m.node for m in views.configured_members]\n",
                "        masters = [m.node for m in views.configured_members\n"
                "            if not any(p.node == m.node and not self.is_present(p) for p in self.peers)]\n",
            ),
        ),
        test=f"{TEST}test_rule_19_a_member_that_is_silent_holds_what_it_lacks",
    ),
    Mutant(
        "trim-above-a-master-outside",
        "19",
        False,
        (
            SourceEdit(
                CORE,
                "        masters = [m.node for m in views.configured_members]\n",
                "        masters = [m.node for m in replication.log.view.members]\n",
            ),
        ),
        test=f"{TEST}test_rule_19_a_silent_master_holds_what_it_lacks_and_an_unheard_one_everything",
    ),
    Mutant(
        "trim-past-who-is-out-by-order",
        "19",
        False,
        (SourceEdit(REPLICATION, "        if view.is_forced(installed):", "        if False:"),),
        test=f"{TEST}test_who_is_out_by_order_holds_the_log_until_it_is_heard",
    ),
    Mutant(
        "trim-ignores-the-chain",
        "19",
        False,
        (
            SourceEdit(
                TRIMMING,
                "if place.log_index > history.length or history.hash_at(place.log_index) != place.hash:",
                "if place.log_index > history.length:",
            ),
        ),
        test=f"{TEST}test_rule_19_a_worker_on_another_branch_or_unknown_holds_everything",
    ),
    Mutant(
        "trim-without-a-backup",
        "19",
        False,
        (SourceEdit(TRIMMING, "    blockers += _backup_blockers(log, positions)\n", ""),),
    ),
    Mutant(
        "trim-above-what-is-settled",
        "19",
        False,
        (
            SourceEdit(TRIMMING, "cut = min([log.final_index, ", "cut = min([history.length, "),
            SourceEdit(TRIMMING, "<= log.final_index and", "<= history.length and"),
            SourceEdit(
                TRIMMING,
                "return TrimBlocker(MASTER, node, log.final_index,",
                "return TrimBlocker(MASTER, node, log.log_index.length,",
            ),
            SourceEdit(
                AGREEMENT,
                "assert self.log_index.start < log_start.index <= self.final_index,",
                "assert log_start.index,",
            ),
        ),
        test=f"{TEST}test_nothing_is_trimmed_beyond_what_is_settled_whatever_positions_are_known",
    ),
    Mutant(
        "foot-forgets-the-keys",
        "19",
        False,
        (
            SourceEdit(
                FEET, "= log.keys.snapshot()\n        self.parts", "= KeyTableSnapshot([], [])\n        self.parts"
            ),
        ),
        test=f"{TEST}test_a_start_from_a_trimmed_journal_knows_what_counts",
    ),
    Mutant(
        "below-the-foot-is-not-held",
        "17",
        True,
        (
            SourceEdit(
                RESPONDER,
                "            if log.log_index.is_trimmed(queue.origin, span.first_seq):\n",
                "            if False:\n",
            ),
        ),
        test=f"{TEST}test_rule_17_a_lost_disk_below_the_foot_is_sent_a_snapshot",
    ),
    Mutant(
        "segments-go-before-the-trim-is-durable",
        "19",
        False,
        (SourceEdit(JOURNAL_TRIM, "while self._due and self._due[0][0] <= synced:", "while self._due:"),),
        test=f"{JOURNAL_TEST}test_nothing_goes_before_the_trim_is_durable",
    ),
    Mutant(
        "segments-go-in-any-order",
        "19",
        False,
        (
            SourceEdit(
                JOURNAL_TRIM,
                "            for number in self.segments:\n",
                "            for number in reversed(self.segments):\n",
            ),
        ),
        test=f"{JOURNAL_TEST}test_a_crash_at_any_step_of_a_trim_is_harmless",
    ),
    Mutant(
        "a-snapshot-is-prepared-in-one-turn",
        "32",
        False,
        (SourceEdit(FEET, "        for _ in range(PARTS_IN_A_TURN):", "        while not self.digest:"),),
        test=f"{_CHUNKS}test_a_request_is_answered_once_the_snapshot_is_prepared",
    ),
    Mutant(
        "a-request-for-a-snapshot-in-the-making-is-forgotten",
        "17",
        False,
        (SourceEdit(RESPONDER, "            self._waiting[peer] = asked", "            pass"),),
        test=f"{_CHUNKS}test_a_request_is_answered_once_the_snapshot_is_prepared",
    ),
    Mutant(
        "a-snapshot-goes-on-behind-another-log-start",
        "17",
        False,
        (SourceEdit(FEET, " or log.log_index.log_start is not self._snapshot.source", ""),),
        test=f"{_CHUNKS}test_another_log_start_begins_anew",
    ),
    Mutant(
        "a-snapshot-has-keys-of-several-moments",
        "16",
        False,
        (
            SourceEdit(
                "txlog/protocol/log/key_table.py", "self._buckets.copy() if self.count", "self._buckets if self.count"
            ),
        ),
        test=f"{_CHUNKS}test_a_table_that_changes_meanwhile_is_sent_as_it_was",
    ),
)
