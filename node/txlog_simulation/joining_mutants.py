"""Safeguards of joining under load, silence that adds up, and a learner's stamps. Imports nothing of ``txlog``."""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

BACKFILL = "txlog/protocol/views/backfill.py"
CATCH_UP = "txlog/protocol/views/catch_up.py"
DETECTOR = "txlog/protocol/replication/failure_detector.py"
HANDSHAKE = "txlog/protocol/membership/handshake.py"
POLICY = "txlog/protocol/views/view_policy.py"
SPLIT_BACKUP = "txlog/protocol/views/split_backup.py"
STATE = "txlog/protocol/views/view_state.py"
_JOINING = "node/tests/protocol/test_joining_under_load.py::"
_SILENCE = "node/tests/protocol/test_silence_adds_up.py::"
_STAMPS = "node/tests/protocol/test_stamps_of_views.py::"

JOINING_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a-joining-master-is-judged-by-a-count",
        "32",
        False,
        (SourceEdit(CATCH_UP, "        return done > before and", "        return False and"),),
        test=_JOINING + "test_a_master_whose_hellos_are_rare_joins_while_the_others_write",
    ),
    Mutant(
        "a-joining-master-is-let-in-however-much-it-lacks",
        "32",
        False,
        (SourceEdit(CATCH_UP, "        return done > before and", "        return True or"),),
        test=_JOINING + "test_a_master_that_fetches_slowly_is_not_let_in_before_it_is_near",
    ),
    Mutant(
        "no-early-hello-while-others-write",
        "32",
        False,
        (SourceEdit(HANDSHAKE, "        if lacks_newer_position:\n", "        if False:\n"),),
        test=_JOINING + "test_a_master_joins_where_an_older_one_judges_by_a_count",
    ),
    Mutant(
        "silence-does-not-add-up",
        "21",
        False,
        (
            SourceEdit(
                POLICY,
                "return detector.is_silent(member.node) and 2 * detector.silent_ms_within",
                "return False and 2 * detector.silent_ms_within",
            ),
        ),
        test=_SILENCE + "test_a_flapping_member_does_not_stop_the_log",
    ),
    Mutant(
        "silence-before-a-view-counts-after-it",
        "21",
        False,
        (SourceEdit(DETECTOR, "            self._silences.pop(node, None)\n", ""),),
        test=_SILENCE + "test_a_member_that_comes_back_begins_with_no_silence",
    ),
    Mutant(
        "the-backup-is-forgotten-between-two-silences",
        "23",
        False,
        (SourceEdit("txlog/protocol/core.py", " and not self.view_manager.policy.silence_adds_up:", ":"),),
        test=_SILENCE + "test_rule_23_a_backup_is_needed_while_silence_adds_up_and_kept_until_it_does_not",
    ),
    Mutant(
        "no-backup-is-needed-between-two-silences",
        "23",
        False,
        (SourceEdit(SPLIT_BACKUP, " or self._policy.silence_adds_up)", ")"),),
        test=_SILENCE + "test_rule_23_a_backup_is_needed_while_silence_adds_up_and_kept_until_it_does_not",
    ),
    Mutant(
        "a-learner-names-no-view-like-an-older-program",
        "14",
        False,
        (SourceEdit(STATE, "            return LEARNER_STAMPS\n", "            return self.number\n"),),
        test=_STAMPS + "test_a_learner_names_no_view_for_the_stamps_that_it_fetched",
    ),
    Mutant(
        "stamps-without-a-view-are-of-this-one",
        "14",
        False,
        (SourceEdit(BACKFILL, "same = views.last_views.get(peer) == views.number", "same = True"),),
        test=_STAMPS + "test_an_older_program_that_sends_no_view_counts_where_its_hello_named_this_one",
    ),
)
