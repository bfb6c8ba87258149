"""Safeguards against long lives and broken peers (rules 22, 32), one each taken out. Imports nothing of ``txlog``."""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

MESSAGES = "txlog/wire/messages.py"
CHECKS = "txlog/wire/message_checks.py"
POST_SENDER = "txlog/protocol/replication/post_sender.py"
POST_RECEIVER = "txlog/protocol/replication/post_receiver.py"
SNAPSHOTS = "txlog/protocol/replication/snapshot_install.py"
LOG = "txlog/protocol/log/log_state.py"
BASE_LOG = "txlog/protocol/log/base_log.py"
QUEUES = "txlog/protocol/log/incoming_queue.py"
ADMISSION = "txlog/protocol/views/candidate_checks.py"
POLICY = "txlog/protocol/views/view_policy.py"
REPAIR = "txlog/runtime/journal_repair.py"
_LIVES = "node/tests/protocol/test_many_incarnations.py::"
_HOSTILE = "node/tests/protocol/test_hostile_peers.py::"

BOUNDS_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "heard-members-are-read-by-slot",
        "22",
        False,
        (
            SourceEdit(
                MESSAGES,
                "bits, at = (self.heard, slot) if self.heard_members < 0 else (self.heard_members, place)",
                "bits, at = self.heard, slot",
            ),
        ),
        test=_LIVES + "test_members_post_with_any_number_of_earlier_incarnations[247]",
    ),
    Mutant(
        "older-masters-are-heard-by-place",
        "22",
        False,
        (SourceEdit(MESSAGES, "if self.heard_members < 0 else", "if False else"),),
        test=_LIVES + "test_a_silent_member_is_known_from_older_masters",
    ),
    Mutant(
        "a-bit-for-every-slot",
        "32",
        False,
        (SourceEdit(POST_SENDER, "for slot in slots if slot < HEARD_SLOTS)", "for slot in slots)"),),
        test=_LIVES + "test_members_post_with_any_number_of_earlier_incarnations[70]",
    ),
    Mutant(
        "an-incarnation-too-many-is-admitted",
        "32",
        False,
        (
            SourceEdit(
                ADMISSION,
                "return view is None or len(added.union(view.origins)) <= SLOTS_MAX",
                "return True",
            ),
        ),
        test=_LIVES + "test_a_further_incarnation_is_refused_by_name_and_stops_nobody",
    ),
    Mutant(
        "of-several-more-incarnations-than-fit",
        "32",
        False,
        (SourceEdit(POLICY, "if has_room_for_origins(view, origins | who.origins):", "if True:"),),
        test=_LIVES + "test_of_two_further_incarnations_the_one_that_fits_is_admitted",
    ),
    Mutant(
        "a-count-of-a-report-is-believed",
        "32",
        False,
        (
            SourceEdit(
                CHECKS,
                "    if len(report.hashes) != HASH_BYTES * count or report.shared.index + count != report.log.index:\n",
                "    if False:\n",
            ),
        ),
        test=_HOSTILE + "test_a_count_of_a_report_is_compared_with_the_bytes_that_came",
    ),
    Mutant(
        "the-parts-of-a-view-are-not-compared",
        "32",
        False,
        (SourceEdit(CHECKS, "len(view.known_seqs) not in (0, len(view.origins))", "False"),),
        test=_HOSTILE + "test_the_parts_of_a_view_fit_each_other[known_seqs]",
    ),
    Mutant(
        "a-base-has-stamps-above-its-floor",
        "32",
        False,
        (SourceEdit(CHECKS, "    if stamps and max(stamps) > view.floor:\n", "    if False:\n"),),
        test=_HOSTILE + "test_a_base_with_a_stamp_above_its_floor_is_refused",
    ),
    Mutant(
        "a-base-need-not-continue-the-log",
        "32",
        False,
        (SourceEdit(LOG, "if not base_fits(self.by_origin, self.log_index, view, cut, spans, waiting):", "if False:"),),
        test=_HOSTILE + "test_a_view_that_parks_less_or_more_than_its_base_has_is_refused",
    ),
    Mutant(
        "unnamed-transactions-keep-any-stamp",
        "13",
        False,
        (SourceEdit(BASE_LOG, "        if not _grows_above(", "        if False and not _grows_above("),),
        test="node/tests/protocol/test_cut_and_restamp.py::test_rule_13_what_a_view_does_not_name_lies_above_its_stamps",
    ),
    Mutant(
        "an-order-of-any-slots",
        "32",
        False,
        (SourceEdit(POST_RECEIVER, "if post.order and max(post.order) >= len(log.queues):", "if False:"),),
        test=_HOSTILE + "test_an_order_with_an_unknown_slot_is_the_fault_of_its_sender",
    ),
    Mutant(
        "a-key-longer-than-the-journal-has-room-for",
        "32",
        False,
        (SourceEdit(QUEUES, "len(item.key.encode()) > KEY_BYTES_MAX", "False"),),
        test=_HOSTILE + "test_a_transaction_that_the_journal_cannot_store_is_refused",
    ),
    Mutant(
        "a-snapshot-that-changes-its-size",
        "32",
        False,
        (
            SourceEdit(SNAPSHOTS, "arriving.whole in (None, whole)", "True"),
            SourceEdit(SNAPSHOTS, "0 < len(piece.data) <= piece.total - piece.offset", "bool(piece.data)"),
        ),
        test=_HOSTILE + "test_a_snapshot_has_a_bounded_size_that_stays",
    ),
    Mutant(
        "a-snapshot-is-used-unchecked",
        "32",
        False,
        (SourceEdit(SNAPSHOTS, "        if error:\n", "        if False:\n"),),
        test=_HOSTILE + "test_a_snapshot_is_checked_before_it_is_used",
    ),
    Mutant(
        "a-repair-takes-any-order",
        "32",
        False,
        (SourceEdit(REPAIR, "if count > wanted.damage.log_to - message.after:", "if False:"),),
        test=_HOSTILE + "test_an_order_longer_than_asked_for_is_refused_by_a_repair",
    ),
    Mutant(
        "a-view-report-mixes-two-views",
        "34",
        False,
        (SourceEdit("txlog/server/admin/view_report.py", " or status.view is not view", ""),),
        test="node/tests/server/test_view_report_in_pieces.py::test_after_another_view_it_is_read_again",
    ),
    Mutant(
        "a-long-view-report-takes-one-turn",
        "32",
        False,
        (SourceEdit("txlog/server/admin/view_report.py", "                await asyncio.sleep(0)\n", ""),),
        test="node/tests/server/test_view_report_in_pieces.py::test_others_get_turns_and_what_they_write_is_in_it",
    ),
    Mutant(
        "long-literals-are-kept-in-memory",
        "32",
        False,
        (
            SourceEdit(
                "txlog/workers/canonical_literals.py",
                "_compute_cached(literal) if len(literal) <= CACHED_BYTES_MAX else _compute(literal)",
                "_compute_cached(literal)",
            ),
        ),
        test="node/tests/workers/test_canonical_literals.py::test_the_memory_for_forms_is_bounded",
    ),
    Mutant(
        "connections-of-checks-are-kept-while-a-store-hangs",
        "32",
        False,
        (SourceEdit("txlog/workers/http_transport.py", "and not self.reads:", "and True:"),),
        test="node/tests/workers/test_worker_transport.py::"
        "test_a_store_that_hangs_does_not_collect_the_connections_of_checks",
    ),
)
