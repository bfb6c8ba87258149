"""One safeguard each, taken out of the shipped code: exact old text, new text. Imports nothing of ``txlog``.

Where a shipped assertion or named check guards the same rule, it is taken out too: a mutant is dead only by a checker
of the log, the acknowledgements, the workers or liveness.

Rules without a row: 32 (by it rows of 1, 6, 9 and 22 die).
Rule 22 is about going on, so liveness alone can see it. Inside one view a base that is not reached (10 b) adds nothing
to the own transactions (10 a); its row dies by the hashes.
"""

from __future__ import annotations

from txlog_simulation.joining_mutants import JOINING_MUTANTS
from txlog_simulation.membership_mutants import MEMBER_MUTANTS
from txlog_simulation.mutant import Mutant
from txlog_simulation.override_mutants import ORDER_MUTANTS
from txlog_simulation.source_patches import SourceEdit
from txlog_simulation.split_mutants import SPLIT_MUTANTS
from txlog_simulation.trim_mutants import TRIM_MUTANTS
from txlog_simulation.view_mutants import VIEW_MUTANTS

CORE = "txlog/protocol"
AGREEMENT = "txlog/protocol/log/log_state.py"
PEERS = "txlog/protocol/replication/peer_progress.py"
MARKS = "txlog/protocol/log/durability_marks.py"
QUEUE = "txlog/protocol/log/incoming_queue.py"
KEYS = "txlog/protocol/log/idempotency_keys.py"
FOUNDING = "txlog/protocol/membership/bootstrap.py"
EXECUTOR = "txlog/runtime/executor.py"
REPAIR = "txlog/runtime/journal_repair.py"
JOURNAL_DAMAGE = "txlog/journal/damage_repair.py"
JOURNAL_REPAIR = "txlog/journal/repair_check.py"
JOURNAL_SYNC = "txlog/journal/group_commit.py"
JOURNAL_TABLE = "txlog/journal/recovery_table.py"
JOURNAL_SCAN = "txlog/journal/scan.py"
JOURNAL_SURVEY = "txlog/journal/scrubber.py"
OXIGRAPH = "txlog/workers/oxigraph.py"
_OUTCOMES = "node/tests/apply/test_outcomes.py::"
INDEX_TEST = "node/tests/journal/test_journal_index.py::"
JOURNAL = "txlog/journal/journal.py"


_NO_ORDER_ASSERTION = SourceEdit(AGREEMENT, "assert min(heads) > self.log_key, f", "assert heads, f")
_NO_OWN_STAMP_ASSERTION = SourceEdit(AGREEMENT, "assert items[0].stamp > self.last_stamp,", "assert items,")
_NO_COUNTER_REGRESSION_CHECK = SourceEdit(PEERS, "                or claim.counter < old.counter\n", "")
_NO_COUNTER_IDENTITY_CHECK = SourceEdit(
    FOUNDING, "if heard.seq > own_seq or heard.counter > last_stamp:", "if heard.seq > own_seq:"
)
_NO_RISING_STAMPS_CHECK = SourceEdit(
    AGREEMENT,
    "            if item.stamp <= last and not fetched:\n",
    "            if item.stamp < last and not fetched:\n",
)
_NO_FOLLOW_HASH = SourceEdit(AGREEMENT, "if hashes[-HASH_BYTES:] != end_hash:", "if not hashes:")
_NO_FOLLOWED_ORDER = SourceEdit(
    AGREEMENT, "if any(later[:2] <= row[:2] for row, later in pairwise(rows)):", "if not rows:"
)
_NO_CLAIM_HASH = SourceEdit(CORE, "if history.hash_at(claim.log_index) != claim.log_hash:", "if history is None:")
_USABLE = "if claim.log_index > history.length or claim.own_seq > agreement.queues[peer.slot].held:"
_BOUND = "bound = min([agreement.last_stamp, *(p.usable_counter for p in self.peers)])"
_NEWS = 'news = order[self.log_index.length - after :] if after <= self.log_index.length else b""'
_FOLLOW = "node/tests/protocol/test_follow.py::"
_PROMISE_CHECKS = (_NO_ORDER_ASSERTION, _NO_COUNTER_REGRESSION_CHECK, _NO_COUNTER_IDENTITY_CHECK)

_MENDED = "node/tests/protocol/test_mended_masters.py::"
_NO_OWN_SEQ_CHECK = SourceEdit(CORE, "        if claim.held[self.slot] > agreement.own.held:\n", "        if False:\n")

_IN_ONE_VIEW: tuple[Mutant, ...] = (
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
                "        if seen_birth == recovered.birth and seen_start >= recovered.start:\n",
                "        if False:\n",
            ),
            SourceEdit(
                CORE,
                "        if claim.start == self.start and claim.number > self.post_number:\n",
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
        "stamp-not-strictly-above-promise",
        "4",
        True,
        (
            SourceEdit(CORE, "        stamp = agreement.last_stamp\n", "        stamp = agreement.last_stamp - 1\n"),
            _NO_OWN_STAMP_ASSERTION,
            _NO_ORDER_ASSERTION,
            _NO_RISING_STAMPS_CHECK,
        ),
    ),
    Mutant(
        "counter-lost-in-a-crash",
        "4",
        True,
        (
            SourceEdit(
                AGREEMENT,
                "self.last_stamp = max(recovered.ceiling, recovered.log_stamp, view.floor)",
                "self.last_stamp = max(recovered.log_stamp, view.floor)",
            ),
            *_PROMISE_CHECKS,
        ),
        profile="forgetful",
    ),
    Mutant(
        "ceiling-not-durable",
        "5",
        True,
        (SourceEdit(CORE, "self._effects.records.append(CounterCeiling(self.ceiling))", "pass"), *_PROMISE_CHECKS),
        profile="forgetful",
    ),
    Mutant(
        "restart-below-the-ceiling",
        "5",
        True,
        (
            SourceEdit(
                AGREEMENT,
                "self.last_stamp = max(recovered.ceiling, recovered.log_stamp, view.floor)",
                "self.last_stamp = max(recovered.ceiling - (11_000 << 16), recovered.log_stamp, view.floor)",
            ),
            *_PROMISE_CHECKS,
        ),
        profile="forgetful",
    ),
    Mutant(
        "clock-alone-makes-counters",
        "6",
        False,
        (
            SourceEdit(CORE, "agreement.last_stamp = max(agreement.last_stamp, claim.counter)", "pass"),
            SourceEdit(
                AGREEMENT,
                "        self.last_stamp = max(self.last_stamp, stamps[-1])\n",
                "        if queue is self.own:\n            self.last_stamp = max(self.last_stamp, stamps[-1])\n",
            ),
            _NO_ORDER_ASSERTION,
        ),
    ),
    Mutant(
        "torn-snapshot",
        "7",
        True,
        (
            SourceEdit(
                CORE,
                "        history = agreement.log_index\n        return ReplicaState(\n",
                "        log_index = agreement.log_index\n"
                "        own_seq, self._copied = getattr(self, '_copied', 0), agreement.own.held\n"
                "        return ReplicaState(\n",
            ),
            SourceEdit(CORE, "own_seq=agreement.own.held,", "own_seq=own_seq,"),
            _NO_ORDER_ASSERTION,
        ),
        profile="hearsay,clocks",
    ),
    Mutant(
        "post-before-durable",
        "8",
        False,
        (
            SourceEdit(
                EXECUTOR,
                "    def _defer_until_durable(self, effects: Effects) -> None:\n",
                "    def _defer_until_durable(self, effects: Effects) -> None:\n"
                "        self._ready.append(Effects(sends=effects.sends))\n"
                "        effects.sends = []\n",
            ),
        ),
    ),
    Mutant(
        "stale-posts-taken",
        "9",
        False,
        (SourceEdit(PEERS, "if (claim.start, claim.number) <= (old.start, old.number):", "if False:"),),
    ),
    Mutant(
        "counter-before-own-transactions",
        "10",
        True,
        (SourceEdit(CORE, _USABLE, "if claim.log_index > history.length:"), _NO_ORDER_ASSERTION),
    ),
    Mutant(
        "counter-before-its-base",
        "10",
        True,
        (
            SourceEdit(CORE, _USABLE, "if claim.own_seq > agreement.queues[peer.slot].held:"),
            _NO_CLAIM_HASH,
            _NO_ORDER_ASSERTION,
        ),
        profile="forged",
    ),
    Mutant(
        "relayed-counter-by-the-relayers-queue",
        "10",
        True,
        (
            SourceEdit(
                CORE,
                "            self._update_from_relay(claim, now)\n",
                "            self._update_from_relay(claim, now)\n"
                "            for p in self.peers:\n"
                "                known = agreement.queues[claim.slot].held\n"
                "                if p.slot == claim.slot and post.claim.held[claim.slot] <= known:\n"
                "                    p.usable_counter = max(p.usable_counter, claim.counter)\n",
            ),
            _NO_ORDER_ASSERTION,
        ),
        profile="hearsay",
    ),
    Mutant(
        "counters-kept-over-a-restart",
        "10",
        True,
        (
            SourceEdit(CORE, "\nclass CoreState:\n", "\nclass CoreState:\n    KEPT: dict[tuple[int, int], int] = {}\n"),
            SourceEdit(
                CORE,
                "        self._post_schedule.on_view_entered(now.mono)\n",
                "        self._post_schedule.on_view_entered(now.mono)\n"
                "        for p in self.peers:\n"
                "            p.usable_counter = self.KEPT.get((self.birth, p.slot), 0)\n",
            ),
            SourceEdit(
                CORE,
                "                peer.pending_states.popleft()\n",
                "                peer.pending_states.popleft()\n"
                "                self.KEPT[self.birth, peer.slot] = peer.usable_counter\n",
            ),
            _NO_ORDER_ASSERTION,
        ),
        profile="forgetful",
    ),
    Mutant(
        "a-piece-from-ahead-does-not-wait",
        "11",
        False,
        (SourceEdit(AGREEMENT, _NEWS, "news = order[max(0, self.log_index.length - after) :]"),),
        test=_FOLLOW + "test_rule_11_a_piece_from_ahead_waits_until_the_log_has_caught_up",
    ),
    Mutant(
        "a-piece-from-behind-is-taken-whole",
        "11",
        False,
        (SourceEdit(AGREEMENT, _NEWS, 'news = order if after <= self.log_index.length else b""'),),
        test=_FOLLOW + "test_rule_11_a_piece_from_behind_counts_from_where_the_log_is",
    ),
    Mutant("counter-limit-ignored", "12", True, (SourceEdit(CORE, _BOUND, "bound = 1 << 62"), _NO_ORDER_ASSERTION)),
    Mutant(
        "present-members-holds-ignored",
        "12",
        True,
        (
            SourceEdit(
                CORE,
                "        if agreement.append_up_to(bound, held):\n",
                "        if agreement.append_up_to(bound, self._held_by(agreement, [])):\n",
            ),
        ),
    ),
    Mutant(
        "silent-members-last-known-counter",
        "12",
        True,
        (
            SourceEdit(
                CORE,
                _BOUND,
                "bound = min([agreement.last_stamp, *(p.usable_counter if self.is_present(p) or not p.replica_state "
                "else p.replica_state.counter for p in self.peers)])",
            ),
            _NO_ORDER_ASSERTION,
        ),
    ),
    Mutant(
        "ties-by-who-looks",
        "13",
        False,
        (
            SourceEdit(
                AGREEMENT,
                "        self.installed = recovered.installed is not None\n",
                "        self.installed = recovered.installed is not None\n        self._me = own.node\n",
            ),
            SourceEdit(
                AGREEMENT,
                "        self.ranks = rank_origins(self.queues)\n",
                "        mine = [q.origin.node for q in self.queues].index(self._me)\n"
                "        self.ranks = [(slot - mine) % len(self.queues) for slot in range(len(self.queues))]\n",
            ),
            _NO_ORDER_ASSERTION,
        ),
    ),
    Mutant(
        "gaps-taken",
        "13",
        False,
        (SourceEdit(AGREEMENT, "if run.first_seq > queue.held + 1 or not run.items:", "if not run.items:"),),
    ),
    Mutant(
        "presence-decides",
        "14",
        True,
        (
            SourceEdit(
                CORE,
                _BOUND,
                "bound = min([agreement.last_stamp, *(p.usable_counter for p in self.peers if self.is_present(p))])",
            ),
            _NO_ORDER_ASSERTION,
        ),
    ),
    Mutant(
        "told-before-durable",
        "15",
        False,
        (
            SourceEdit(
                EXECUTOR,
                "    def _defer_until_durable(self, effects: Effects) -> None:\n",
                "    def _defer_until_durable(self, effects: Effects) -> None:\n"
                "        self._ready.append(Effects(marks=effects.marks))\n"
                "        effects.marks = None\n",
            ),
        ),
    ),
    Mutant(
        "key-counts-twice",
        "16",
        False,
        (SourceEdit(KEYS, "            return before.txid\n", "            return None\n"),),
    ),
    Mutant(
        "synced-by-own-log",
        "16",
        False,
        (
            SourceEdit(
                AGREEMENT,
                "return self.log_index.seq_within(self.slots[self.own.origin], self.stable)",
                "return self.log_index.seq_within(self.slots[self.own.origin], self.log_index.length)",
            ),
            SourceEdit(
                MARKS,
                "own, synced, stable = agreement.last_own_seq, agreement.own_synced, agreement.stable\n",
                "own, synced, stable = agreement.last_own_seq, agreement._own_synced(), agreement.stable\n",
            ),
        ),
    ),
    Mutant(
        "quorum-by-heads",
        "16",
        False,
        (
            SourceEdit(
                MARKS,
                "2 * sum(weight for held, weight in weights if held >= seq) > total:",
                "2 * sum(weight for held, weight in weights if held >= seq) >= total:",
            ),
        ),
    ),
    Mutant(
        "equal-index-taken-for-equal-log",
        "17",
        True,
        (_NO_FOLLOW_HASH, _NO_FOLLOWED_ORDER, _NO_CLAIM_HASH),
        profile="forged",
    ),
    Mutant("fetched-order-not-checked", "18", False, (_NO_FOLLOW_HASH, _NO_FOLLOWED_ORDER), profile="forged"),
    Mutant(
        "no-relays",
        "22",
        True,
        (
            SourceEdit(
                CORE,
                "relays=[p.replica_state for p in self.peers if p.replica_state is not None and p is not peer],",
                "relays=[],",
            ),
        ),
        profile="chain",
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
        "full-disk-not-refused",
        "29",
        False,
        (
            SourceEdit(
                CORE, "        self.disk_full = not room_for_work\n        if self.closing:", "        if self.closing:"
            ),
            SourceEdit(
                CORE,
                '        if not room_for_work:\n            return Unavailable("DiskFull"',
                '        if False:\n            return Unavailable("DiskFull"',
            ),
        ),
        profile="disks",
    ),
    Mutant(
        "asks-in-the-order-of-hashes",
        "31",
        False,
        (
            SourceEdit(
                CORE,
                "[(node, who) for node in self.bootstrap.others]",
                "[(o, who) for o in set(self.bootstrap.others)]",
            ),
        ),
        test="node/tests/simulation/test_seeds.py::test_no_dependence_on_hash_order",
    ),
    Mutant(
        "stable-not-journaled",
        "33",
        True,
        (SourceEdit(AGREEMENT, "        self._record_stable(index)\n", ""),),
    ),
    Mutant(
        "stable-is-the-logs-end",
        "33",
        True,
        (SourceEdit(AGREEMENT, "            if held < queue.in_log:\n", "            if held < 0:\n"),),
    ),
)

_IN_STORES: tuple[Mutant, ...] = (
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

MUTANTS = (*_IN_ONE_VIEW, *VIEW_MUTANTS, *SPLIT_MUTANTS, *ORDER_MUTANTS, *MEMBER_MUTANTS, *TRIM_MUTANTS, *_IN_STORES)
MUTANTS += JOINING_MUTANTS
