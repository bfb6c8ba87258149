"""Safeguards of what makes and publishes change sets, one each taken out. Imports nothing of ``txlog``."""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

STORE = "txlog/changesets/capture_store.py"
FOLLOWER = "txlog/changesets/capture_follower.py"
READER = "txlog/changesets/change_log_reader.py"
FEED = "txlog/server/feed"
KILL_TEST = "node/tests/changesets/test_capture_killed.py::test_a_kill_at_each_step_keeps_the_change_log_exact"
STORE_TEST = "node/tests/changesets/test_capture_store.py::"
FOLLOWER_TEST = "node/tests/changesets/test_capture_follower.py::"
SERVER_TEST = "node/tests/server/test_change_sets.py::"


def _mutant(name: str, file: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(name, "A2", False, (SourceEdit(file, old, new),), test=test)


CAPTURE_MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "capture-applies-before-it-records",
        STORE,
        "        self._log.flush()\n"
        "        apply_change(self._store, changes[0] if len(changes) == 1 else combine(changes), made.quads)\n",
        "        apply_change(self._store, changes[0] if len(changes) == 1 else combine(changes), made.quads)\n"
        "        self._log.flush()\n",
        KILL_TEST,
    ),
    _mutant(
        "capture-goes-on-with-half-a-large-change",
        STORE,
        "        is_store_sure = same_boot and not is_large_dropped\n",
        "        is_store_sure = same_boot\n",
        KILL_TEST,
    ),
    _mutant(
        "capture-has-no-copy-before-a-large-change",
        STORE,
        "        self._make_checkpoint(self._log.end.index)\n        self._log.begin_large(",
        "        self._log.begin_large(",
        f"{STORE_TEST}test_what_is_too_large_is_executed_and_not_kept",
    ),
    _mutant(
        "capture-undoes-what-was-not-kept",
        STORE,
        "        if large is not None:\n            raise ChangeNotKept(",
        "        if large is not None and index < 0:\n            raise ChangeNotKept(",
        f"{STORE_TEST}test_what_is_too_large_is_executed_and_not_kept",
    ),
    _mutant(
        "capture-keeps-what-is-old-until-many-entries-came",
        STORE,
        "        if self._checkpoint.replay < self._log.end.index and self._log.would_prune(before_ms):\n",
        "        if self._clock_ms is None:\n",
        f"{STORE_TEST}test_what_is_old_goes_also_where_few_entries_come",
    ),
    _mutant(
        "capture-ahead-of-workers",
        FOLLOWER,
        "        return min(status.applied, status.stable.index)\n",
        "        return status.stable.index\n",
        f"{FOLLOWER_TEST}test_masters_prove_how_far_a_worker_is",
    ),
    _mutant(
        "capture-passes-over-a-skip-of-what-it-executed",
        FOLLOWER,
        "    _refuse_captured_skips(store, steps)\n",
        "",
        f"{FOLLOWER_TEST}test_an_entry_that_is_skipped_after_it_was_executed_asks_for_another_store",
    ),
    _mutant(
        "capture-reader-believes-a-place-after-a-cut",
        READER,
        "            return end == cursor.offset and record.chain == cursor.chain\n",
        "            return True\n",
        "node/tests/changesets/test_change_log_reader.py::test_a_cut_log_gives_nothing_of_the_branch_that_was_given_up",
    ),
    _mutant(
        "capture-of-another-branch-leaves",
        f"{FEED}/change_set_source.py",
        "            if log.has_hash_at(change.index) and log.hash_at(change.index) != change.hash:\n",
        "            if log is None:\n",
        f"{SERVER_TEST}test_what_a_store_has_of_a_branch_that_was_given_up_does_not_leave",
    ),
    _mutant(
        "capture-leaves-before-it-is-final",
        f"{FEED}/feed_request.py",
        '    level = query.get("level", "settled" if updates == "quads" else "stable")\n',
        '    level = query.get("level", "stable")\n',
        f"{SERVER_TEST}test_after_a_rejoin_it_goes_back_and_followers_are_rewound",
    ),
    _mutant(
        "capture-answers-everybody",
        "txlog/capture/change_server.py",
        "                if not hmac.compare_digest(shown.encode(), self._authorization.encode()):\n",
        "                if hmac.compare_digest(shown.encode(), b'x'):\n",
        f"{SERVER_TEST}test_masters_read_with_a_token",
    ),
    _mutant(
        "capture-left-and-masters-skip-it",
        "txlog/server/admin/skip_transaction.py",
        "        if self._has_change_set(before + 1):\n",
        "        if before < 0:\n",
        "node/tests/server/test_skipping_on_duty.py::test_not_what_has_left_as_a_change_set",
    ),
)
