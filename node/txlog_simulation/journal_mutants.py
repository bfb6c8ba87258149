"""Mutants of the journal, its repair, and the markers in stores (rules 28 to 30)."""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

CORE = "txlog/protocol"
AGREEMENT = "txlog/protocol/log/log_state.py"
FOUNDING = "txlog/protocol/membership/bootstrap.py"
REPAIR = "txlog/runtime/journal_repair.py"
JOURNAL_DAMAGE = "txlog/journal/damage_repair.py"
JOURNAL_REPAIR = "txlog/journal/repair_check.py"
JOURNAL_SYNC = "txlog/journal/group_commit.py"
JOURNAL_TABLE = "txlog/journal/recovery_table.py"
JOURNAL_SCAN = "txlog/journal/scan.py"
JOURNAL_SURVEY = "txlog/journal/scrubber.py"
OXIGRAPH = "txlog/workers/oxigraph.py"
_OUTCOMES = "node/tests/apply/test_outcomes.py::"
JOURNAL_CLEANUP = "txlog/journal/startup_cleanup.py"
INDEX_TEST = "node/tests/journal/test_journal_index.py::"
JOURNAL = "txlog/journal/journal.py"


_FAILED_SYNCS = "node/tests/journal/test_journal_failed_syncs.py::"
_MENDED = "node/tests/protocol/test_mended_masters.py::"
_NO_OWN_SEQ_CHECK = SourceEdit(CORE, "        if claim.held[self.state.slot] > log.own.held:\n", "        if False:\n")

JOURNAL_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "start-not-raised",
        "1",
        False,
        (
            SourceEdit(
                JOURNAL, "        recovered.start += 1\n", "        recovered.start = max(1, recovered.start)\n"
            ),
            SourceEdit(
                FOUNDING,
                "        if seen_birth == self.local.birth and seen_start >= self.local.start:\n",
                "        if False:\n",
            ),
            SourceEdit(
                CORE,
                "        if claim.start == self.state.local.start and claim.number > self.state.post_number:\n",
                "        if False:\n",
            ),
        ),
    ),
    Mutant(
        "seqs-used-again-after-a-start",
        "3",
        False,
        (
            SourceEdit(
                AGREEMENT,
                "            self._recover_queued(meta)\n",
                "            logged = unsettled.get(self.own.origin, 0)\n"
                "            count = logged if Origin(meta.node, meta.birth) == self.own.origin else len(meta.stamps)\n"
                "            kept = [one[:count] for one in (meta.stamps, meta.keys, meta.kinds)]\n"
                "            kept.append(meta.contents[: count * HASH_BYTES])\n"
                "            self._recover_queued(QueuedMetadata(meta.node, meta.birth, meta.first_seq, *kept))\n",
            ),
            SourceEdit(JOURNAL, "        assert run.first_seq == held.last + 1, f", "        assert run.first_seq, f"),
            SourceEdit(FOUNDING, "if heard.seq > own_seq or heard.counter > last_stamp:", "if False:"),
            _NO_OWN_SEQ_CHECK,
        ),
    ),
    Mutant(
        "damage-taken-for-a-torn-tail",
        "28",
        False,
        (
            SourceEdit(
                JOURNAL_TABLE,
                "_YES, _ANY, _YES, _ANY, RecoveryDecision.DAMAGE_RESUME",
                "_YES, _ANY, _YES, _ANY, RecoveryDecision.CUT",
            ),
        ),
        profile="flips",
    ),
    Mutant(
        "an-index-of-anything-is-believed",
        "28",
        False,
        (
            SourceEdit(
                JOURNAL_SCAN, "        if found is None or found.identity != wanted:\n", "        if found is None:\n"
            ),
        ),
        test=f"{INDEX_TEST}test_the_index_of_another_segment_or_of_another_journal_is_passed_over",
    ),
    Mutant(
        "what-an-index-leads-to-is-not-compared",
        "28",
        False,
        (SourceEdit(JOURNAL_SCAN, "        self._check_index_result(piece.number, next_header.state_header)\n", ""),),
        test=f"{INDEX_TEST}test_an_index_that_is_whole_and_tells_what_cannot_be_is_passed_over",
    ),
    Mutant(
        "damage-stays-behind-its-index",
        "28",
        False,
        (
            SourceEdit(
                JOURNAL_SURVEY,
                "        self._remove_if_present(index_name(self.segment))\n        text = (\n",
                "        text = (\n",
            ),
        ),
        test=f"{INDEX_TEST}test_damage_in_a_segment_with_an_index_is_found_when_it_is_read_again",
    ),
    Mutant(
        "one-denial-is-enough",
        "28",
        False,
        (
            SourceEdit(
                REPAIR,
                "            if self._peers_without >= set(self._peers):\n",
                "            if self._peers_without:\n",
            ),
        ),
        profile="flips",
    ),
    Mutant(
        "mended-and-at-work-with-a-later-stamp",
        "28",
        False,
        (SourceEdit(JOURNAL_DAMAGE, "            self._stop_view()\n", "            pass\n"),),
        profile="flips",
        test=_MENDED + "test_a_transaction_that_waited_comes_back_with_a_later_stamp_and_the_view_is_stopped",
    ),
    Mutant(
        "mended-with-a-stamp-that-the-log-denies",
        "28",
        False,
        (
            SourceEdit(
                JOURNAL_REPAIR,
                "                if value != self._recovered.hash_at(index):\n",
                "                if not value:\n",
            ),
        ),
        profile="flips",
        test=_MENDED + "test_what_stands_in_the_log_comes_back_with_the_stamp_that_its_hash_proves",
    ),
    Mutant(
        "failed-fsync-passed-over",
        "29",
        False,
        (
            SourceEdit(
                JOURNAL_SYNC,
                "            self._on_error(text)\n            raise JournalBroken(text) from error\n        self.done",
                "        self.done",
            ),
        ),
        profile="disks",
    ),
    Mutant(
        "what-a-failed-fsync-left-in-memory-is-believed",
        "29",
        False,
        (SourceEdit(JOURNAL_CLEANUP, "    if found.unproven is not None:\n", "    if False:\n"),),
        profile="disks",
        test=f"{_FAILED_SYNCS}test_what_a_start_read_after_a_failed_sync_survives_a_loss_of_power",
    ),
    Mutant(
        "only-the-last-record-is-written-again",
        "29",
        False,
        (SourceEdit(JOURNAL_SCAN, "            if synced > last_synced:\n", "            if True:\n"),),
        test=f"{_FAILED_SYNCS}test_what_a_start_read_after_a_failed_sync_survives_a_loss_of_power",
    ),
    Mutant(
        "zeros-that-only-memory-has-are-believed",
        "29",
        False,
        (SourceEdit(JOURNAL_CLEANUP, "        file.drop_cached(start)\n        raise\n", "        raise\n"),),
        test=f"{_FAILED_SYNCS}test_a_torn_tail_whose_zeros_were_not_synced_is_zeroed_again",
    ),
)

STORE_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a-takeover-leaves-the-fence",
        "30",
        False,
        (SourceEdit(OXIGRAPH, "raised = found._replace(fence=found.fence + 1)", "raised = found"),),
        test=_OUTCOMES + "test_a_raised_fence_keeps_out_who_does_not_know_it",
    ),
    Mutant(
        "applied-wherever-the-worker-stands",
        "30",
        False,
        (
            SourceEdit(
                OXIGRAPH,
                'texts.append(f"DROP GRAPH <{marker_or_load_name(expected)}>")',
                'texts.append(f"DROP SILENT GRAPH <{marker_or_load_name(expected)}>")',
            ),
        ),
        test=_OUTCOMES + "test_a_raised_fence_keeps_out_who_does_not_know_it",
    ),
)
