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
_BACKFILL = "node/tests/protocol/test_backfill.py::"
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
    Mutant(
        "a-request-names-one-origin",
        "32",
        False,
        (SourceEdit(BACKFILL, "FetchRuns(spans[0], spans[1:])", "FetchRuns(spans[0])"),),
        test=_BACKFILL + "test_a_join_takes_as_long_in_an_old_cluster_as_in_a_young_one",
    ),
    Mutant(
        "an-answer-brings-one-span",
        "32",
        False,
        (SourceEdit("txlog/protocol/message_dispatcher.py", "[asked.span, *asked.more]", "[asked.span]"),),
        test=_BACKFILL + "test_a_join_takes_as_long_in_an_old_cluster_as_in_a_young_one",
    ),
    Mutant(
        "an-answer-of-several-spans-is-longer-than-a-frame",
        "32",
        False,
        (SourceEdit("txlog/runtime/executor.py", "            left -= len(items)\n", ""),),
        test=_BACKFILL + "test_an_answer_is_no_longer_than_the_holder_allows",
    ),
    Mutant(
        "a-silent-holder-is-asked-for-ever",
        "18",
        False,
        (SourceEdit(BACKFILL, "            self._source_offset += 1\n", ""),),
        test=_BACKFILL + "test_a_holder_that_does_not_answer_is_followed_by_the_next",
    ),
    Mutant(
        "a-holder-that-has-nothing-is-waited-for",
        "32",
        True,
        (SourceEdit(BACKFILL, "if not (self._is_answered_empty and self._empty_answers % len(missing)):", "if True:"),),
        test=_BACKFILL + "test_a_holder_that_has_nothing_is_followed_by_the_next_at_once",
    ),
    Mutant(
        "holders-that-have-nothing-are-asked-without-a-pause",
        "32",
        True,
        (SourceEdit(BACKFILL, " and self._empty_answers % len(missing)", ""),),
        test=_BACKFILL + "test_a_holder_that_has_nothing_is_followed_by_the_next_at_once",
    ),
    Mutant(
        "requests-without-an-answer-never-become-rarer",
        "18",
        False,
        (SourceEdit(BACKFILL, "min(2 * wait_ms,", "min(wait_ms,"),),
        test=_BACKFILL + "test_a_request_without_an_answer_is_repeated_soon_and_then_less_often",
    ),
    Mutant(
        "an-answer-on-the-way-is-requested-again",
        "18",
        False,
        (SourceEdit(BACKFILL, "        if not self._is_repeat:\n", "        if True:\n"),),
        test=_BACKFILL + "test_an_answer_on_the_way_is_not_requested_again",
    ),
    Mutant(
        "nothing-is-learned-of-how-soon-answers-come",
        "18",
        False,
        (SourceEdit(BACKFILL, "        if not self._is_repeat:\n", "        if False:\n"),),
        test=_BACKFILL + "test_a_lost_request_is_repeated_soon_where_answers_come_soon",
    ),
    Mutant(
        "a-request-in-part-below-the-log-start-gets-the-rest",
        "17",
        False,
        (
            SourceEdit(
                "txlog/protocol/replication/fetch_responder.py",
                "                self._answer(sends, _log_start_of(log))\n                return\n            count",
                "                continue\n            count",
            ),
        ),
        test=_BACKFILL + "test_rule_17_a_request_that_is_in_part_below_the_log_start_is_answered_with_it",
    ),
    Mutant(
        "a-request-with-any-number-of-spans-is-served",
        "32",
        False,
        (SourceEdit("txlog/wire/messages.py", "Annotated[list[Span], Meta(max_length=SLOTS_MAX)]", "list[Span]"),),
        test=_BACKFILL + "test_a_request_with_more_spans_than_a_log_has_origins_is_malformed",
    ),
)
