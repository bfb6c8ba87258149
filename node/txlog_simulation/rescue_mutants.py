"""Safeguards of the rescue of what survivors of a lost cluster hold, one each taken out (B13)."""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

_PLAN = "txlog/successor/rescue_plan.py"
_SHELL = "txlog/successor/rescue.py"
_KEYS = "txlog/successor/rescued_keys.py"
_JOURNAL = "txlog/successor/survivor_journal.py"
_BRANCHES = "txlog/successor/archived_branches.py"
_LINEAGE = "txlog/successor/recovery_lineage.py"
_ROUTE = "txlog/server/frontdoor/rescued_writes.py"
_RULES = "test_rescue_plan.py::"
_MASTERS = "test_rescue.py::"
_LOGS = "test_rescued_keys.py::"


def _mutant(name: str, path: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(name, "B13", False, (SourceEdit(path, old, new),), test=f"node/tests/successor/{test}")


RESCUE_MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "what-a-person-chose-to-lose-comes-back",
        _SHELL,
        "    if lineage.claim.moment != LATEST:\n",
        "    if not lineage.claim.moment:\n",
        f"{_MASTERS}test_a_recovery_to_a_chosen_moment_gives_nothing_by_itself",
    ),
    _mutant(
        "archived-in-another-branch-stays-lost",
        _SHELL,
        "    source = ArchivedBranches(lineage.streams, lineage",
        "    source = ArchivedBranches([lineage.stream], lineage",
        f"{_MASTERS}test_a_recovery_to_latest_gives_other_branches_again",
    ),
    _mutant(
        "rescue-under-another-key-than-the-clients",
        _PLAN,
        "        return self.key or rescue_key(self.txid)\n",
        "        return rescue_key(self.txid)\n",
        f"{_MASTERS}test_a_client_that_comes_after_the_rescue_finds_its_transaction",
    ),
    _mutant(
        "rescue-of-what-a-client-gave-long-ago",
        _PLAN,
        "    if one.new_key in used:\n",
        "    if not one.new_key:\n",
        f"{_RULES}test_each_is_judged_by_its_key_and_what_was_skipped",
    ),
    _mutant(
        "rescue-of-what-was-skipped",
        _PLAN,
        "    if str(one.txid) in skipped:\n",
        "    if not one.txid:\n",
        f"{_RULES}test_each_is_judged_by_its_key_and_what_was_skipped",
    ),
    _mutant(
        "rescue-of-the-second-use-of-a-key",
        _PLAN,
        "first.setdefault(each.new_key, each.txid) != each.txid:",
        "first.setdefault(each.new_key, each.txid) == 0:",
        f"{_RULES}test_of_one_key_the_first_counts",
    ),
    _mutant(
        "rescue-overtakes-what-is-not-known",
        _SHELL,
        "        is_stopped = done[-1].state is RescueState.UNKNOWN\n",
        "",
        f"{_RULES}test_behind_one_that_is_not_known_nothing_is_given",
    ),
    _mutant(
        "accepted-counts-as-given",
        _SHELL,
        "            if result.txid and result.durability in _STABLE:\n",
        "            if result.txid:\n",
        f"{_RULES}test_behind_one_that_is_not_known_nothing_is_given",
    ),
    _mutant(
        "keys-behind-the-place-count",
        _KEYS,
        "                if after < entry.index <= upto and not entry.is_noop:\n",
        "                if after < entry.index and not entry.is_noop:\n",
        f"{_LOGS}test_keys_behind_the_place_do_not_count",
    ),
    _mutant(
        "the-last-use-of-a-key-counts",
        _KEYS,
        "                if not entry.noop:\n",
        "                if entry.key and not self.found.pop(entry.key, None):\n",
        f"{_LOGS}test_keys_of_the_new_log_count_from_its_masters",
    ),
    _mutant(
        "trimmed-keys-are-not-looked-for",
        _KEYS,
        "            self._read_pages(masters, self._read_own_archive(streams, place, trimmed))\n",
        "            self._read_own_archive(streams, place, trimmed)\n",
        f"{_LOGS}test_keys_that_the_masters_trimmed_are_in_the_new_archive",
    ),
    _mutant(
        "rescue-without-abandoned-branches",
        _BRANCHES,
        "    every = [*timelines.current, *timelines.superseded]\n    kept",
        "    every = [*timelines.current]\n    kept",
        f"{_LOGS}test_other_branches_and_what_follows_the_place_are_found",
    ),
    _mutant(
        "rescue-into-a-cluster-that-was-replaced",
        _LINEAGE,
        "            if newest.successor != cluster.hex():\n",
        "            if not newest.successor:\n",
        f"{_LOGS}test_a_successor_is_known_by_the_claim_in_force",
    ),
    _mutant(
        "rescue-from-a-master-that-runs",
        _JOURNAL,
        "        self._lock()\n        try:\n",
        "        try:\n",
        f"{_MASTERS}test_what_is_no_survivor_is_refused",
    ),
    _mutant(
        "rescue-of-the-log-alone",
        _JOURNAL,
        "        return ordered + [found[1] for _, found in left]\n",
        "        return ordered\n",
        f"{_MASTERS}test_what_was_not_ordered_yet_is_given_behind_the_log",
    ),
    _mutant(
        "rescued-payloads-are-believed",
        _ROUTE,
        "        await run_sparql_off_loop(len(payload), lambda: check_logged_payload(kind, payload))\n",
        "",
        f"{_MASTERS}test_what_no_front_door_takes_is_not_taken_here",
    ),
    _mutant(
        "rescue-of-what-the-log-has",
        _ROUTE,
        "        if self._context.transactions.outcome(txid).level is not None:\n",
        "        if self._context.transactions.outcome(txid).level == '':\n",
        f"{_MASTERS}test_what_the_log_has_is_not_given_again",
    ),
)
