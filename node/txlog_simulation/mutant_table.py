"""One safeguard each, taken out of the shipped code: exact old text, new text. Imports nothing of ``txlog``.

Where a shipped assertion or named check guards the same rule, it is taken out too: a mutant is dead only by a checker
of the log, the acknowledgements, the workers or liveness.

Rules without a row: 32 (by it rows of 1, 6, 9 and 22 die).
Rule 22 is about going on, so liveness alone can see it. Inside one view a base that is not reached (10 b) adds nothing
to the own transactions (10 a); its row dies by the hashes.
"""

from __future__ import annotations

from txlog_simulation.archive_mutants import ARCHIVE_MUTANTS
from txlog_simulation.bootstrap_mutants import BOOTSTRAP_MUTANTS
from txlog_simulation.bounds_mutants import BOUNDS_MUTANTS
from txlog_simulation.bulk_command_mutants import BULK_COMMAND_MUTANTS
from txlog_simulation.bulk_mutants import BULK_MUTANTS
from txlog_simulation.capture_mutants import CAPTURE_MUTANTS
from txlog_simulation.certification_mutants import CERTIFICATION_MUTANTS
from txlog_simulation.client_mutants import CLIENT_MUTANTS
from txlog_simulation.clock_mutants import CLOCK_MUTANTS
from txlog_simulation.crosslog_mutants import CROSSLOG_MUTANTS
from txlog_simulation.departure_mutants import DEPARTURE_MUTANTS
from txlog_simulation.divergence_mutants import DIVERGENCE_MUTANTS
from txlog_simulation.engine_mutants import ENGINE_MUTANTS
from txlog_simulation.front_door_mutants import FRONT_DOOR_MUTANTS
from txlog_simulation.increment_mutants import INCREMENT_MUTANTS
from txlog_simulation.joining_mutants import JOINING_MUTANTS
from txlog_simulation.journal_mutants import JOURNAL_MUTANTS, STORE_MUTANTS
from txlog_simulation.key_mutants import KEY_MUTANTS
from txlog_simulation.level_mutants import LEVEL_MUTANTS
from txlog_simulation.life_mutants import LIFE_MUTANTS
from txlog_simulation.lineage_mutants import LINEAGE_MUTANTS
from txlog_simulation.log_mutants import LOG_MUTANTS
from txlog_simulation.loop_mutants import LOOP_MUTANTS
from txlog_simulation.membership_mutants import MEMBER_MUTANTS
from txlog_simulation.merge_mutants import MERGE_MUTANTS
from txlog_simulation.mutant import Mutant
from txlog_simulation.override_mutants import ORDER_MUTANTS
from txlog_simulation.poison_mutants import POISON_MUTANTS
from txlog_simulation.queue_mutants import QUEUE_MUTANTS
from txlog_simulation.rehearsal_mutants import REHEARSAL_MUTANTS
from txlog_simulation.repository_mutants import REPOSITORY_MUTANTS
from txlog_simulation.rescue_mutants import RESCUE_MUTANTS
from txlog_simulation.site_mutants import SITE_MUTANTS
from txlog_simulation.source_patches import SourceEdit
from txlog_simulation.split_mutants import SPLIT_MUTANTS
from txlog_simulation.succession_mutants import SUCCESSION_MUTANTS
from txlog_simulation.synchronous_admin_mutants import SYNCHRONOUS_ADMIN_MUTANTS
from txlog_simulation.synchronous_archive_mutants import SYNCHRONOUS_ARCHIVE_MUTANTS
from txlog_simulation.synchronous_mutants import SYNCHRONOUS_MUTANTS
from txlog_simulation.synchronous_page_mutants import SYNCHRONOUS_PAGE_MUTANTS
from txlog_simulation.system_mutants import SYSTEM_MUTANTS
from txlog_simulation.trace_mutants import TRACE_MUTANTS
from txlog_simulation.trim_mutants import TRIM_MUTANTS
from txlog_simulation.view_mutants import VIEW_MUTANTS

CORE = "txlog/protocol"
AGREEMENT = "txlog/protocol/log/log_state.py"
QUEUES = "txlog/protocol/log/incoming_queue.py"
PEERS = "txlog/protocol/replication/peer_progress.py"
HASHES = "txlog/protocol/log/entry_hashes.py"
MARKS = "txlog/protocol/replication/durability_marks.py"
KEYS = "txlog/protocol/log/idempotency_keys.py"
FOUNDING = "txlog/protocol/membership/bootstrap.py"
EXECUTOR = "txlog/runtime/executor.py"


_NO_ORDER_ASSERTION = SourceEdit(AGREEMENT, "assert first > self.log_key, f", "assert first, f")
_NO_OWN_STAMP_ASSERTION = SourceEdit(AGREEMENT, "assert items[0].stamp > self.last_stamp,", "assert items,")
_NO_COUNTER_REGRESSION_CHECK = SourceEdit(PEERS, "if lost or claim.counter < old.counter:", "if lost:")
_NO_COUNTER_IDENTITY_CHECK = SourceEdit(
    FOUNDING, "if heard.seq > own_seq or heard.counter > last_stamp:", "if heard.seq > own_seq:"
)
_NO_RISING_STAMPS_CHECK = SourceEdit(
    QUEUES,
    "            if item.stamp <= last_stamp:\n",
    "            if item.stamp < last_stamp:\n",
)
_NO_FOLLOW_HASH = SourceEdit(AGREEMENT, "if hashes[-HASH_BYTES:] != end_hash:", "if not hashes:")
_NO_FOLLOWED_ORDER = SourceEdit(
    HASHES, "if any(later[:2] <= row[:2] for row, later in pairwise(rows)):", "if not rows:"
)
_NO_CLAIM_HASH = SourceEdit(CORE, "if history.hash_at(claim.log_index) != claim.log_hash:", "if history is None:")
_USABLE = "if claim.log_index > history.length or claim.own_seq > log.queues[peer.slot].held:"
_BOUND = "bound = min([log.last_stamp, *(p.usable_counter for p in peers)])"
_NEWS = 'news = order[self.log_index.length - after :] if after <= self.log_index.length else b""'
_FOLLOW = "node/tests/protocol/test_follow.py::"
_PROMISE_CHECKS = (_NO_ORDER_ASSERTION, _NO_COUNTER_REGRESSION_CHECK, _NO_COUNTER_IDENTITY_CHECK)


_IN_ONE_VIEW: tuple[Mutant, ...] = (
    Mutant(
        "stamp-not-strictly-above-promise",
        "4",
        True,
        (
            SourceEdit(CORE, "        stamp = log.last_stamp\n", "        stamp = log.last_stamp - 1\n"),
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
        (SourceEdit(CORE, "state.outbox.append(CounterCeiling(state.ceiling))", "pass"), *_PROMISE_CHECKS),
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
            SourceEdit(CORE, "log.raise_last_stamp(claim.counter)", "pass"),
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
                "        history = log.log_index\n        return ReplicaState(\n",
                "        history = log.log_index\n"
                "        own_seq, self._copied = getattr(self, '_copied', 0), log.own.held\n"
                "        return ReplicaState(\n",
            ),
            SourceEdit(CORE, "own_seq=log.own.held,", "own_seq=own_seq,"),
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
                "        self._ready.append(Effects([], effects.sends))\n"
                "        effects = effects._replace(sends=[])\n",
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
            SourceEdit(CORE, _USABLE, "if claim.own_seq > log.queues[peer.slot].held:"),
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
                "            self._update_from_relay(claim, now, starts)\n",
                "            self._update_from_relay(claim, now, starts)\n"
                "            for p in state.peers:\n"
                "                here = log.queues[claim.slot].held\n"
                "                if p.slot == claim.slot and post.claim.held[claim.slot] <= here:\n"
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
            SourceEdit(
                CORE,
                "\nclass ReplicationState:\n",
                "\nclass ReplicationState:\n    KEPT: dict[tuple[int, int], int] = {}\n",
            ),
            SourceEdit(
                CORE,
                "        self.schedule.on_view_entered(now.mono)\n",
                "        self.schedule.on_view_entered(now.mono)\n"
                "        for p in self.peers:\n"
                "            p.usable_counter = self.KEPT.get((self.local.birth, p.slot), 0)\n",
            ),
            SourceEdit(
                CORE,
                "                peer.pending_states.popleft()\n",
                "                peer.pending_states.popleft()\n"
                "                self.state.KEPT[self.state.local.birth, peer.slot] = peer.usable_counter\n",
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
                "        if log.append_up_to(bound, held):\n",
                "        if log.append_up_to(bound, self._held_by([])):\n",
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
                "bound = min([log.last_stamp, *(p.usable_counter if state.is_present(p) or not p.replica_state "
                "else p.replica_state.counter for p in peers)])",
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
                "bound = min([log.last_stamp, *(p.usable_counter for p in peers if state.is_present(p))])",
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
                "        self._ready.append(Effects([], [], effects.marks))\n"
                "        effects = effects._replace(marks=None)\n",
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
                "own, synced, stable = agreement.last_own_seq, agreement._compute_own_synced(), agreement.stable\n",
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
                "relays=[p.replica_state for p in state.peers if p.replica_state is not None and p is not peer],",
                "relays=[],",
            ),
        ),
        profile="chain",
    ),
    Mutant(
        "full-disk-not-refused",
        "29",
        False,
        (
            SourceEdit(
                CORE,
                "        self.local.disk_full = not room_for_work\n        refusal = ",
                "        refusal = ",
            ),
            SourceEdit(
                CORE,
                '        if self._local.disk_full:\n            return Unavailable("DiskFull"',
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
                "            for node in bootstrap.others:\n                self._outbox.send(node, hello)\n",
                "            for node in set(bootstrap.others):\n                self._outbox.send(node, hello)\n",
            ),
        ),
        test="node/tests/simulation/test_seeds.py::test_no_dependence_on_hash_order",
    ),
    Mutant(
        "stable-not-journaled",
        "33",
        True,
        (SourceEdit(AGREEMENT, "        record_stable(self.records, index)\n", ""),),
    ),
    Mutant(
        "stable-is-the-logs-end",
        "33",
        True,
        (SourceEdit(AGREEMENT, "            if held < queue.in_log:\n", "            if held < 0:\n"),),
    ),
)

MUTANTS = (
    *_IN_ONE_VIEW,
    *VIEW_MUTANTS,
    *DEPARTURE_MUTANTS,
    *SPLIT_MUTANTS,
    *ORDER_MUTANTS,
    *MEMBER_MUTANTS,
    *POISON_MUTANTS,
    *TRIM_MUTANTS,
    *TRACE_MUTANTS,
    *ARCHIVE_MUTANTS,
    *CAPTURE_MUTANTS,
    *SITE_MUTANTS,
    *QUEUE_MUTANTS,
    *JOINING_MUTANTS,
    *KEY_MUTANTS,
    *CLIENT_MUTANTS,
    *CLOCK_MUTANTS,
    *LEVEL_MUTANTS,
    *LINEAGE_MUTANTS,
    *LIFE_MUTANTS,
    *LOOP_MUTANTS,
    *JOURNAL_MUTANTS,
    *BOUNDS_MUTANTS,
    *BOOTSTRAP_MUTANTS,
    *SUCCESSION_MUTANTS,
    *RESCUE_MUTANTS,
    *MERGE_MUTANTS,
    *REHEARSAL_MUTANTS,
    *INCREMENT_MUTANTS,
    *BULK_MUTANTS,
    *BULK_COMMAND_MUTANTS,
    *STORE_MUTANTS,
    *SYNCHRONOUS_MUTANTS,
    *SYNCHRONOUS_PAGE_MUTANTS,
    *SYNCHRONOUS_ARCHIVE_MUTANTS,
    *SYNCHRONOUS_ADMIN_MUTANTS,
    *FRONT_DOOR_MUTANTS,
    *CROSSLOG_MUTANTS,
    *SYSTEM_MUTANTS,
    *REPOSITORY_MUTANTS,
    *LOG_MUTANTS,
    *CERTIFICATION_MUTANTS,
    *DIVERGENCE_MUTANTS,
    *ENGINE_MUTANTS,
)
