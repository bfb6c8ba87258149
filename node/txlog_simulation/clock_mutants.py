"""Safeguards of rules 6 and 9, each taken out of the shipped code: whose time counts, and which numbers of a peer.

See ``mutant_table.py``. Imports nothing of ``txlog``.
"""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

COMPARISON = "txlog/protocol/clock_comparison.py"
NUMBERS = "txlog/protocol/peer_numbers.py"
RECEIVER = "txlog/protocol/replication/post_receiver.py"
SENDER = "txlog/protocol/replication/post_sender.py"
PEERS = "txlog/protocol/replication/peer_progress.py"
SHAKING = "txlog/protocol/membership/handshake.py"
DISPATCHER = "txlog/protocol/message_dispatcher.py"
MESSAGES = "txlog/wire/messages.py"

_CLOCKS = "node/tests/protocol/test_clocks.py::"
_HOSTILE = "node/tests/protocol/test_hostile_numbers.py::"
_NUMBER_TYPE = SourceEdit(
    "txlog/model/bounds.py",
    "Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]",
    "Count = Annotated[int, Meta()]",
)

CLOCK_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a-run-below-the-end-of-the-log-is-taken",
        "13",
        False,
        (SourceEdit("txlog/protocol/log/log_state.py", "max(queue.last_stamp, floor)", "queue.last_stamp"),),
        test=_CLOCKS + "test_a_false_run_cannot_enter_a_log_that_has_passed_its_stamp[0]",
    ),
    Mutant(
        "a-clock-is-believed",
        "6",
        False,
        (
            SourceEdit(COMPARISON, "self.is_ahead = wall - middle > skew", "self.is_ahead = False"),
            SourceEdit(COMPARISON, "is_free = not counter or (is_confirmed", "is_free = True or (is_confirmed"),
        ),
        profile="clocks",
    ),
    Mutant(
        "a-counter-rises-without-a-bound",
        "6",
        False,
        (SourceEdit(COMPARISON, "is_free = not counter or (is_confirmed", "is_free = True or (is_confirmed"),),
        test=_CLOCKS + "test_a_cluster_of_one_moves_by_one_step_a_round",
    ),
    Mutant(
        "the-highest-clock-decides",
        "6",
        False,
        (SourceEdit(COMPARISON, "middle = clocks[(len(clocks) - 1) // 2]", "middle = clocks[-1]"),),
        test=_CLOCKS + "test_a_clock_that_is_a_year_ahead_moves_no_stamps",
    ),
    Mutant(
        "a-clock-that-is-behind-decides",
        "6",
        False,
        (
            SourceEdit(
                COMPARISON, "for clock in known.values() if clock >= counter - skew", "for clock in known.values()"
            ),
        ),
        test=_CLOCKS + "test_a_dead_clock_proves_no_other_one_to_be_ahead",
    ),
    Mutant(
        "clocks-are-not-exchanged-before-a-view",
        "6",
        False,
        (
            SourceEdit(SHAKING, "self._local.clock.on_peer_clock(peer, hello.clock_ms)", "pass"),
            SourceEdit(DISPATCHER, "self._local.clock.on_peer_clock(peer, known.clock_ms)", "pass"),
        ),
        test=_CLOCKS + "test_a_cluster_is_founded_with_one_wrong_clock",
    ),
    Mutant(
        "time-that-two-clocks-show-is-not-believed",
        "6",
        False,
        (
            SourceEdit(
                COMPARISON, "(is_confirmed and not self._has_caught_up)", "(not self._has_caught_up and not counter)"
            ),
        ),
        test=_CLOCKS + "test_masters_that_were_stopped_for_weeks_take_the_time_that_two_clocks_show",
    ),
    Mutant(
        "time-is-forgotten-without-peers",
        "6",
        False,
        (
            SourceEdit(
                SENDER,
                "        if self.state.peers:\n            return 1 << 60",
                "        if self.state:\n            return 1 << 60",
            ),
        ),
        test=_CLOCKS + "test_a_cluster_of_one_remembers_the_time_without_writes",
    ),
    Mutant(
        "a-counter-of-any-size-is-merged",
        "9",
        False,
        (
            SourceEdit(RECEIVER, "        self._check_counter(sender, post.claim)\n", ""),
            _NUMBER_TYPE,
        ),
        test=_CLOCKS + "test_one_wrong_bit_in_a_counter_stops_nothing_and_is_not_kept",
    ),
    Mutant(
        "a-counter-that-jumped-is-merged-at-once",
        "9",
        False,
        (SourceEdit(RECEIVER, ") and not peer.repeats_doubted(claim):", ") and peer is None:"),),
        test=_CLOCKS + "test_one_wrong_bit_in_a_counter_stops_nothing_and_is_not_kept",
    ),
    Mutant(
        "the-same-post-confirms-itself",
        "9",
        False,
        (SourceEdit(PEERS, "return before is not None and is_later and", "return before is not None and"),),
        test=_CLOCKS + "test_a_counter_that_jumped_counts_when_a_later_post_confirms_it",
    ),
    Mutant(
        "a-lower-counter-is-a-fault-for-good",
        "9",
        False,
        (SourceEdit(PEERS, "if not lost and claim.start == old.start:", "if not old:"),),
        test="node/tests/protocol/test_queues_and_history.py::"
        "test_rule_9_a_lower_counter_of_the_same_process_is_refused_alone",
    ),
    Mutant(
        "stamps-of-transactions-are-not-checked",
        "9",
        False,
        (SourceEdit(NUMBERS, "if not 0 <= item.stamp <= stamp_max:", "if stamp_max < 0:"),),
        test=_CLOCKS + "test_a_run_with_a_stamp_out_of_range_counts_for_nothing",
    ),
    Mutant(
        "reports-and-views-are-not-checked",
        "9",
        False,
        (
            SourceEdit(NUMBERS, "                self._check_report(message)", "                pass"),
            SourceEdit(NUMBERS, "                self._check_accept(message)", "                pass"),
        ),
        test=_HOSTILE + "test_a_report_that_cannot_be_is_refused",
    ),
    Mutant(
        "a-strategy-of-any-name",
        "9",
        False,
        (SourceEdit("txlog/wire/message_checks.py", "sorted(strategies - set(STRATEGIES))", "sorted(set[str]())"),),
        test=_HOSTILE + "test_a_view_with_a_floor_or_a_strategy_that_cannot_be_is_refused",
    ),
    Mutant(
        "numbers-of-any-size",
        "9",
        False,
        (_NUMBER_TYPE,),
        test=_HOSTILE + "test_numbers_without_a_next_one_are_refused",
    ),
)
