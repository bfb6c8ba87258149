"""Safeguards of rule 16, each taken out of the shipped code: the age of a key, what is forgotten, and its table.

See ``mutant_table.py``. Imports nothing of ``txlog``.
"""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

KEYS = "txlog/protocol/log/idempotency_keys.py"
EFFECTS = "txlog/protocol/log/keyed_effects.py"
HORIZON = "txlog/protocol/replication/key_horizon.py"
SUBMISSION = "txlog/protocol/replication/submission.py"
LEVELS = "txlog/protocol/peer_levels.py"
RESPONDER = "txlog/protocol/replication/fetch_responder.py"
EXECUTOR = "txlog/runtime/executor.py"
ORIGIN_INDEX = "txlog/journal/origin_index.py"
BODIES = "txlog/journal/record_bodies.py"
TRIM_RECORDS = "txlog/journal/trim_records.py"
REPLAY = "txlog/journal/replay.py"

_TESTS = "node/tests/protocol/test_idempotency_keys.py::"

CORE = "txlog/protocol/core.py"
CLOCKS = "txlog/protocol/clock_comparison.py"
_AGES = "node/tests/protocol/test_key_ages.py::"

KEY_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a-key-without-an-age-is-taken",
        "16",
        False,
        (SourceEdit(CORE, "unheard = [node for node in unheard if node in known]", "unheard = []"),),
        test=_AGES + "test_where_older_masters_founded_the_cluster_a_member_that_sent_no_hello_is_waited_for",
    ),
    Mutant(
        "two-bytes-tell-one-body-from-another",
        "16",
        False,
        (SourceEdit(EXECUTOR, "first.payload) != one.content for", "first.payload)[:2] != one.content[:2] for"),),
        test="node/tests/protocol/test_masters_in_one_view.py::test_a_body_whose_hash_begins_alike_is_another_body",
    ),
    Mutant(
        "age-from-the-present-stamp",
        "16",
        False,
        (SourceEdit(EFFECTS, "FirstUse(txid, first_stamp or stamp, content)", "FirstUse(txid, stamp, content)"),),
        test=_TESTS + "test_a_copy_that_comes_back_repeats_what_it_repeated_when_it_was_taken",
    ),
    Mutant(
        "no-first-stamp-is-made",
        "16",
        False,
        (SourceEdit(SUBMISSION, "stamp if is_keyed and terms.marks_first_stamps else 0", "0"),),
        test=_TESTS + "test_a_copy_that_comes_back_repeats_what_it_repeated_when_it_was_taken",
    ),
    Mutant(
        "a-view-takes-the-first-stamp-away",
        "16",
        False,
        (SourceEdit(ORIGIN_INDEX, "old.payload, old.first_stamp)", "old.payload)"),),
        test=_TESTS + "test_the_first_stamp_outlives_views_and_starts",
    ),
    Mutant(
        "the-journal-drops-first-stamps",
        "16",
        False,
        (SourceEdit(BODIES, "if any(item.first_stamp for item in items):", "if not items:"),),
        test=_TESTS + "test_the_first_stamp_outlives_views_and_starts",
    ),
    Mutant(
        "a-crash-takes-the-counter-below-a-first-stamp",
        "16",
        False,
        (
            SourceEdit(
                "txlog/protocol/log/log_state.py",
                "max([self.last_stamp, queue.last_stamp, *firsts[stamped:]])",
                "max(self.last_stamp, queue.last_stamp)",
            ),
        ),
        test="node/tests/protocol/test_cut_and_restamp.py::"
        "test_a_first_stamp_without_a_view_is_below_the_stamp_that_follows_a_crash",
    ),
    Mutant(
        "whatever-is-older-is-a-repeat",
        "16",
        False,
        (
            SourceEdit(
                KEYS, "low, high = min(first_stamp, stamp), max(first_stamp, stamp)", "low, high = first_stamp, stamp"
            ),
        ),
        test=_TESTS + "test_a_key_that_is_used_anew_counts_although_an_older_one_comes_back",
    ),
    Mutant(
        "keys-are-forgotten-while-a-master-is-away",
        "16",
        False,
        (SourceEdit(HORIZON, "if any(view.member(one.node) is None for one in configured):", "if not configured:"),),
        test=_TESTS + "test_nothing_is_forgotten_while_a_master_is_away",
    ),
    Mutant(
        "keys-are-forgotten-before-what-waits",
        "16",
        False,
        (
            SourceEdit(
                HORIZON,
                "        ages = [queue.oldest_keyed() for queue in log.by_origin.values()]\n",
                "        ages = []\n",
            ),
        ),
        test=_TESTS + "test_what_waits_holds_the_horizon",
    ),
    Mutant(
        "keys-are-forgotten-for-what-may-leave-the-log",
        "16",
        False,
        (SourceEdit(HORIZON, "min([counter, log.keys.oldest_tentative(), *ages])", "min([counter, *ages])"),),
        test=_TESTS + "test_what_may_leave_the_log_holds_the_horizon",
    ),
    Mutant(
        "first-stamps-are-given-to-older-masters",
        "16",
        False,
        (SourceEdit(LEVELS, "level if node in proven else 0) >= level", "level) >= 0"),),
        test=_TESTS + "test_masters_of_an_older_version_are_given_no_first_stamps",
    ),
    Mutant(
        "a-key-without-any-stamp-is-taken",
        "16",
        False,
        (SourceEdit("txlog/protocol/core.py", "if refusal is None and not marks:", "if False:"),),
        test=_TESTS + "test_without_a_view_no_key_is_taken_before_it_is_known_that_all_keep_first_stamps",
    ),
    Mutant(
        "an-older-master-lets-keys-wait",
        "16",
        False,
        (SourceEdit(LEVELS, "if any(self._levels.get(node, level) < level for node in others):", "if False:"),),
        test=_TESTS + "test_without_a_view_no_key_is_taken_before_it_is_known_that_all_keep_first_stamps",
    ),
    Mutant(
        "an-older-learner-is-sent-a-table",
        "17",
        False,
        (SourceEdit(RESPONDER, " or asked.level < LEVEL_FIRST_STAMPS:", ":"),),
        test=_TESTS + "test_an_older_learner_gets_no_snapshot_whose_keys_it_cannot_read",
    ),
    Mutant(
        "a-waiting-key-never-expires",
        "16",
        False,
        (
            SourceEdit(
                KEYS,
                "return waits if waits is not None and self.is_repeat(waits.stamp, stamp) else None",
                "return waits",
            ),
        ),
        test=_TESTS + "test_a_transaction_that_waits_for_ever_swallows_no_new_one",
    ),
    Mutant(
        "what-a-snapshot-has-passed-still-waits",
        "16",
        False,
        (SourceEdit(KEYS, "if one.txid.seq > seqs.get(one.txid.origin, 0)", "if one.txid.seq"),),
        test=_TESTS + "test_what_a_snapshot_has_passed_does_not_wait",
    ),
    Mutant(
        "keys-without-a-bound",
        "32",
        False,
        (SourceEdit(SUBMISSION, "if is_keyed and terms.keys_refused is not None:", "if not seq:"),),
        test=_TESTS + "test_above_the_bound_a_new_key_is_refused_by_name_and_nothing_is_forgotten",
    ),
    Mutant(
        "a-trim-writes-all-keys-in-one-turn",
        "32",
        False,
        (
            SourceEdit(
                EXECUTOR,
                "            if not planned.table.is_complete:\n                return True\n",
                "            return self._continue_trim()\n",
            ),
        ),
        test=_TESTS + "test_a_trim_writes_the_keys_in_parts_while_others_write",
    ),
    Mutant(
        "a-trim-is-not-asked-for-again",
        "19",
        False,
        (
            SourceEdit(
                EXECUTOR,
                "if log is planned.log and allowed.start < planned.index <= allowed.trim_to:",
                "if log is planned.log:",
            ),
        ),
        test=_TESTS + "test_a_trim_ends_without_effect_when_a_worker_goes_back_meanwhile",
    ),
    Mutant(
        "segments-with-keys-are-removed",
        "19",
        False,
        (SourceEdit(TRIM_RECORDS, "first = max(self._segments.first, min(first, self._first_segment))", "pass"),),
        test=_TESTS + "test_the_segments_that_have_the_keys_stay",
    ),
    Mutant(
        "a-lost-part-is-no-damage",
        "28",
        False,
        (SourceEdit(REPLAY, "        if lost:\n", "        if lost < 0:\n"),),
        test=_TESTS + "test_a_part_of_which_one_copy_is_damaged_is_read_from_the_other",
    ),
    Mutant(
        "an-earlier-trim-needs-its-parts",
        "19",
        False,
        (
            SourceEdit(
                REPLAY,
                "        return msgspec.structs.replace(log_start, key_table=parts) if parts else log_start\n",
                "        log_start = self.log_start = msgspec.structs.replace(log_start, key_table=parts)\n"
                "        self.require_key_table()\n        return log_start\n",
            ),
        ),
        test=_TESTS + "test_a_trim_after_a_trim_needs_no_part_of_the_first_one",
    ),
    Mutant(
        "what-the-log-start-has-decided-is-decided-again",
        "16",
        False,
        (SourceEdit(KEYS, "        if index <= self.known_until:\n            return None\n", ""),),
        test=_TESTS + "test_a_learner_below_the_log_start_gets_the_keys",
    ),
    Mutant(
        "a-learner-passes-on-less-than-its-table-decides",
        "16",
        False,
        (SourceEdit(KEYS, "return max(final_index, self.known_until)", "return final_index"),),
        test="node/tests/protocol/test_snapshot_chunks.py::test_a_learner_passes_on_how_far_the_table_decides",
    ),
    Mutant(
        "a-cut-forgets-what-the-log-start-has-decided",
        "16",
        False,
        (SourceEdit(EFFECTS, "known = max(cut, self.keys.known_until)", "known = cut"),),
        test=_TESTS + "test_a_cut_keeps_the_repeats_that_the_log_start_has_decided",
    ),
    Mutant(
        "a-key-is-aged-by-an-unconfirmed-counter",
        "16",
        False,
        (SourceEdit(CLOCKS, "        if self._has_merged_counter or (", "        if True or ("),),
        test=_AGES + "test_one_key_at_two_masters_that_woke_apart_takes_effect_once",
    ),
    Mutant(
        "a-first-counter-by-one-clock-ages-keys",
        "16",
        False,
        (SourceEdit(CLOCKS, " and not is_of_one_clock)", ")"),),
        test=_AGES + "test_a_first_counter_by_one_clock_alone_takes_no_key",
    ),
    Mutant(
        "any-clock-of-another-master-confirms-a-counter",
        "16",
        False,
        (SourceEdit(CLOCKS, "if any(abs(ms - (counter >> LOGICAL_BITS)) <= bound_ms for", "if any(ms for"),),
        test=_AGES + "test_a_first_counter_by_one_clock_alone_takes_no_key",
    ),
    Mutant(
        "posts-confirm-no-counter",
        "16",
        False,
        (SourceEdit(CLOCKS, "        self._has_merged_counter = True\n", "        pass\n"),),
        test=_AGES + "test_behind_a_long_stop_a_master_alone_takes_no_key_until_another_one_confirms_the_time[bc]",
    ),
    Mutant(
        "a-cluster-of-one-waits-for-another-clock",
        "16",
        False,
        (
            SourceEdit(
                CORE,
                "        if others:\n            is_alone",
                "        if True:\n            is_alone",
            ),
        ),
        test=_AGES + "test_a_cluster_of_one_takes_keys_behind_any_stop",
    ),
)
