"""Safeguards of synchronous transactions in an archive, one each taken out. Imports nothing of ``txlog``. A test of the
room kills each."""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

_FOLD = "txlog/archive/archived_effects.py"
_EXECUTED = "txlog/archive/executed_entries.py"
_INHERITED = "txlog/successor/inheritance.py"
_RESTORE_TEST = "node/tests/archive/test_restore_of_synchronous.py::"
_MASTERS_TEST = "node/tests/archive/test_archive_of_synchronous_masters.py::"
_INHERITED_TEST = "node/tests/successor/test_inherited_synchronous.py::"


def _mutant(name: str, rule: str, file: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(f"synchronous-archive-{name}", rule, False, (SourceEdit(file, old, new),), test=test)


SYNCHRONOUS_ARCHIVE_MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "executes-at-its-own-place",
        "S7",
        _EXECUTED,
        "            if entry.kind not in SYNCHRONOUS_AND_DECISION:\n",
        "            if entry.kind:\n",
        f"{_RESTORE_TEST}test_between_its_place_and_its_commit_it_is_left_out_and_named",
    ),
    _mutant(
        "forgets-what-is-open-at-the-base",
        "S13",
        _EXECUTED,
        "        self._fold = fold_range(self._range, plan.after.index, read)\n",
        "        self._fold = EffectFold()\n",
        f"{_RESTORE_TEST}test_what_is_open_at_the_base_takes_effect_after_it",
    ),
    _mutant(
        "executes-a-repeated-key",
        "S11",
        _FOLD,
        "        repeats = named if entry.is_noop else named.intersection(entry.passed_over)\n",
        "        repeats = named if entry.is_noop else set[Txid]()\n",
        f"{_RESTORE_TEST}test_a_repeated_key_takes_no_effect_at_a_commit",
    ),
    _mutant(
        "leaves-out-a-payload-in-silence",
        "S13",
        _EXECUTED,
        "            if str(txid) not in skipped:\n",
        "            if False:\n",
        f"{_RESTORE_TEST}test_a_base_from_before_what_the_files_have_is_refused_by_name",
    ),
    _mutant(
        "forgets-a-decision-before-the-stream",
        "S13",
        _FOLD,
        "        if entry.verdict and txid not in limbo.early:\n",
        "        if False:\n",
        f"{_RESTORE_TEST}test_a_decision_before_the_stream_counts",
    ),
    _mutant(
        "a-moment-is-that-of-the-entry",
        "S7",
        "txlog/archive/restore_plan.py",
        "    index = _index_of_effect(timeline, index, read)\n",
        "",
        f"{_RESTORE_TEST}test_a_moment_of_a_transaction_is_that_of_its_effect",
    ),
    _mutant(
        "retires-the-payload-of-what-is-open",
        "S13",
        "txlog/archive/window_plan.py",
        "            needed = min(needed, fold_range(found, node.index, read).first_needed(node.index))\n",
        "            needed = min(needed, found.end.index)\n",
        f"{_RESTORE_TEST}test_the_window_keeps_the_payloads_of_what_is_open_at_its_base",
    ),
    _mutant(
        "begins-where-positions-are-served",
        "S13",
        "txlog/server/feed/log_pages.py",
        "    return log.start if contents is PageContents.FOR_ARCHIVE else log.served_from\n",
        "    return log.served_from\n",
        f"{_MASTERS_TEST}test_a_stream_begins_before_what_is_open_where_the_log_is_served_from",
    ),
    _mutant(
        "forgets-a-skip-that-leaves-the-log",
        "S7",
        "txlog/server/feed/synchronous_pages.py",
        "        names = self._find_names(entry)\n",
        "        names = [txid for txid in self._find_names(entry) if not self._is_skipped(txid)]\n",
        "node/tests/server/test_synchronous_pages.py::test_a_page_for_an_archive_has_the_names_of_what_takes_effect",
    ),
    _mutant(
        "keys-count-from-their-own-place",
        "S11",
        _INHERITED,
        "_KeyUse(entry.index, one.key.client_key, FirstUse(one.txid, effect.stamp, one.content))",
        "_KeyUse(one.log_index, one.key.client_key, FirstUse(one.txid, one.stamp, one.content))",
        f"{_INHERITED_TEST}test_a_key_counts_from_the_effect",
    ),
    _mutant(
        "a-new-cluster-takes-it-for-done",
        "S10",
        "txlog/successor/first_records.py",
        "        synchronous=_synchronous_state(inherited),\n",
        "",
        f"{_INHERITED_TEST}test_a_founded_cluster_answers_that_it_is_rolled_back",
    ),
    _mutant(
        "a-backup-names-what-is-undecided-now",
        "S13",
        "txlog/protocol/log/synchronous_effects.py",
        "        found = [*self.limbo.open, *(txid for txid, at in decided if at > index)]\n",
        "        found = [*self.limbo.open, *(txid for txid, at in decided if not at)]\n",
        "node/tests/backup/test_undecided_at_backups.py::test_masters_tell_what_was_undecided_at_a_position",
    ),
    _mutant(
        "undecided-is-not-lost",
        "recovery",
        _INHERITED,
        "    found, rolled_back = set(undecided), set[Txid]()\n",
        "    found, rolled_back = set[Txid](), set[Txid]()\n",
        f"{_INHERITED_TEST}test_what_was_undecided_is_lost_and_rolled_back",
    ),
)
