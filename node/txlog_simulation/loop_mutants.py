"""What the loop of a master guarantees, one safeguard each taken out: order of a turn, waiters, a disk that fails.
Imports nothing of ``txlog``."""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit
from txlog_simulation.violation import PROCESS

_JOURNAL = "txlog/journal/journal.py"
_LOOP = "txlog/runtime/master_loop.py"
_THREAD = "txlog/runtime/sync_thread.py"
_TRACKER = "txlog/runtime/durability_tracker.py"

_NO_DONE_ASSERTION = SourceEdit(
    _JOURNAL, "        assert sync.done\n        self._sync = None\n", "        self._sync = None\n"
)

_FAST = "txlog/server/frontdoor/fast_path.py"
_FAST_TESTS = "node/tests/server/test_direct_writes.py::"

LOOP_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a-late-level-answers-a-later-write",
        "15",
        False,
        (SourceEdit(_FAST, "        self._connection = None\n\n\n", "        self.done()\n\n\n"),),
        test=f"{_FAST_TESTS}test_a_level_that_comes_late_answers_no_later_write",
    ),
    Mutant(
        "the-fast-path-asks-no-rule",
        "S1",
        False,
        (
            SourceEdit(
                _FAST, "            if writes.synchronous_door.rules:\n", "            if not writes.bytes_max:\n"
            ),
        ),
        test=f"{_FAST_TESTS}test_rules_leave_a_connection_on_the_short_way",
    ),
    Mutant(
        "accepted-is-done-on-the-fast-path",
        "S10",
        False,
        (SourceEdit(_FAST, "not (committed and write.level is Durability.ACCEPTED)", "write.level is not None"),),
        test=f"{_FAST_TESTS}test_rules_leave_a_connection_on_the_short_way",
    ),
    Mutant(
        "a-write-is-acknowledged-before-its-sync",
        "15",
        True,
        (
            SourceEdit(
                _LOOP,
                "            self.durability.add_waiter(write.level, target, write.waiter)\n",
                "            write.waiter.set_result(True)\n",
            ),
        ),
        profile="loop",
    ),
    Mutant(
        "a-sync-counts-as-done-when-the-thread-has-it",
        "8",
        True,
        (
            _NO_DONE_ASSERTION,
            SourceEdit(
                _LOOP,
                "                self._sync_thread.run(sync)\n",
                "                self._sync_thread.run(sync)\n                self.executor.end_sync()\n",
            ),
            SourceEdit(
                _LOOP,
                "        self.executor.end_sync()\n        if self._durable_waiters:",
                "        if self.executor._sync is not None:\n            self.executor.end_sync()\n"
                "        if self._durable_waiters:",
            ),
        ),
        profile="loop",
    ),
    Mutant(
        "a-sync-that-fails-in-the-thread-is-swallowed",
        "29",
        True,
        (
            _NO_DONE_ASSERTION,
            SourceEdit(_LOOP, "        if error is not None:\n            self.end(error)\n            return\n", ""),
        ),
        profile="loop",
    ),
    Mutant(
        "a-sync-that-fails-on-the-loop-is-swallowed",
        "29",
        True,
        (
            _NO_DONE_ASSERTION,
            SourceEdit(
                _LOOP,
                "                sync.run()\n",
                "                with contextlib.suppress(Exception):\n                    sync.run()\n",
            ),
        ),
        profile="loop",
    ),
    Mutant(
        "a-change-of-views-drops-those-who-wait",
        "15",
        False,
        (
            SourceEdit(
                _TRACKER,
                "        end, stable, cuts = self.log_index, self.stable.value, self.truncation_count\n",
                "        end, stable, cuts = self.log_index, self.stable.value, self.truncation_count\n"
                "        for mark in (self.accepted, self.quorum, self.synced):\n            mark._heap.clear()\n",
            ),
        ),
        profile="loop",
    ),
    Mutant(
        "what-came-during-a-sync-waits-for-the-timer",
        "32",
        False,
        (
            SourceEdit(
                _LOOP,
                "        if self._arrived_during_sync or self.executor.journal.dirty:\n",
                "        if self.executor.journal.dirty:\n",
            ),
        ),
        profile="loop",
    ),
    Mutant(
        "what-a-large-turn-leaves-waits-for-the-timer",
        "32",
        False,
        (
            SourceEdit(
                _LOOP, "        if self._writes:\n            self._schedule()\n\n    def _await", "\n    def _await"
            ),
        ),
        profile="loop",
    ),
    Mutant(
        "an-order-counts-as-durable-with-the-sync-before-it",
        "15",
        True,
        (SourceEdit(_LOOP, "self.counts.syncs + dirty + self._is_syncing, future", "self.counts.syncs + 1, future"),),
        profile="loop",
    ),
    Mutant(
        "each-request-of-a-turn-has-the-first-ones-answers",
        "16",
        True,
        (SourceEdit(_LOOP, "            at += len(write.batch)\n", ""),),
        profile="loop",
    ),
    Mutant(
        "a-client-is-answered-for-the-transaction-before-its-own",
        "15",
        True,
        (
            SourceEdit(
                _LOOP, "                target = answer.txid.seq\n", "                target = answer.txid.seq - 1\n"
            ),
        ),
        profile="loop",
    ),
    Mutant(
        "a-timer-that-rings-early-is-not-set-again",
        "32",
        False,
        (
            SourceEdit(
                _LOOP,
                "            self._set_timer(mono_ms, self._wake_ms)\n        else:",
                "            pass\n        else:",
            ),
        ),
        profile="loop",
    ),
    Mutant(
        "a-thread-keeps-a-failed-sync-for-itself",
        "29",
        True,
        (_NO_DONE_ASSERTION, SourceEdit(_THREAD, "            error = wrong\n", "            error = None\n")),
        profile="loop",
    ),
    Mutant(
        "any-number-of-requests-may-wait",
        "32",
        False,
        (SourceEdit(_LOOP, "if self.in_flight >= self._in_flight_max:", "if self.in_flight < 0:"),),
        profile="loop",
        counts=(PROCESS,),
    ),
)
