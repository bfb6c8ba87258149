"""Safeguards of splits, rejoins and workers that do not go back (protocol section 4), taken out one by one.

See ``view_mutants.py``. Imports nothing of ``txlog``.
"""

from __future__ import annotations

from txlog_simulation.mutant import HARM, Mutant
from txlog_simulation.source_patches import SourceEdit

CORE = "txlog/protocol/core.py"
AGREEMENT = "txlog/protocol/log/log_state.py"
VIEWS = "txlog/protocol/views/view_policy.py"
BASES = "txlog/protocol/views/log_merge.py"
BRANCHES = "txlog/protocol/views/branch_selection.py"
UNORDERED = "txlog/protocol/log/executed_out_of_order.py"
_SEEDS = "node/tests/simulation/test_seeds.py::test_what_was_wrong_once_in_a_mix_is_right"


SPLIT_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "founded-with-one-preference",
        "23",
        False,
        (SourceEdit("txlog/protocol/membership/bootstrap.py", "min(prefers, key=STRATEGIES.index)", "prefers[0]"),),
        test="node/tests/protocol/test_preferences_change.py::"
        "test_a_cluster_is_founded_with_the_safest_that_its_masters_prefer",
    ),
    Mutant(
        "a-preference-changes-a-split-view",
        "23",
        False,
        (
            SourceEdit("txlog/protocol/views/next_view.py", "changed = same and not split and", "changed = same and"),
            SourceEdit(VIEWS, "if view.silent_members or view.preferred_by", "if view.preferred_by"),
        ),
        test="node/tests/protocol/test_preferences_change.py::"
        "test_a_side_of_a_split_keeps_the_strategy_that_the_split_began_with",
    ),
    Mutant(
        "given-up-without-a-trace",
        "25",
        False,
        (
            SourceEdit(
                AGREEMENT,
                "        shown = self.log_index.length if self.installed else self.stable",
                "        shown = self.log_index.length if self.installed else 0",
            ),
        ),
        test="node/tests/protocol/test_cut_and_restamp.py::"
        "test_what_was_shown_is_set_aside_also_behind_a_view_that_was_never_installed",
    ),
    Mutant(
        "waits-for-who-is-ahead-and-cut-off",
        "32",
        False,
        (
            SourceEdit(
                VIEWS,
                "        if self.views.newer_view is None or self.views.majority_required:\n",
                "        if True:\n",
            ),
        ),
        test=_SEEDS + "[splits,flaps,successions-80]",
    ),
    Mutant(
        "no-backup-is-recalled",
        "32",
        False,
        (
            SourceEdit(
                CORE,
                "return self.split_backup.is_missing(self.lifecycle.state, self.closing) and not self.views.installed",
                "return False",
            ),
        ),
        test=_SEEDS + "[splits,flaps,successions-316]",
    ),
    Mutant(
        "no-backup-and-going-on",
        "23",
        False,
        (SourceEdit(VIEWS, "        return self.views.backup_index >= 0 or any(", "        return True or any("),),
        profile="flaps,splits",
        counts=HARM,
    ),
    Mutant(
        "lagger-by-its-log",
        "25",
        True,
        (
            SourceEdit(
                BRANCHES,
                "        if _absent_members(one, branches)\n        or not any(_extends(",
                "        if not any(_extends(",
            ),
        ),
        test="node/tests/protocol/test_closing.py::test_rule_25_the_same_as_the_model",
    ),
    Mutant(
        "ancestors-vote",
        "25",
        True,
        (
            SourceEdit(
                BRANCHES,
                "leaves = [b for b in branches if not any(_is_superseded_by(b, other) for other in branches)]",
                "leaves = branches",
            ),
        ),
        profile="splits,flaps",
        counts=HARM,
    ),
    Mutant(
        "a-view-that-came-to-nothing-votes",
        "25",
        False,
        (
            SourceEdit(
                BRANCHES,
                "return other.view.descends_from(one.number) or _never_installed(one, other)",
                "return other.view.descends_from(one.number)",
            ),
        ),
        test="node/tests/protocol/test_closing.py::test_who_alone_accepted_a_view_that_came_to_nothing_is_a_lagger",
    ),
    Mutant(
        "the-last-of-several-stamps",
        "26",
        True,
        (
            SourceEdit(
                BASES, "if before is None or stamp < before.stamp:", "if before is None or stamp > before.stamp:"
            ),
            SourceEdit(
                BASES, "known[seq] = min(its, known.get(seq, its))", "known[seq] = max(its, known.get(seq, its))"
            ),
        ),
        profile="splits,flaps",
        counts=HARM,
    ),
    Mutant(
        "winner-by-length",
        "25",
        False,
        (
            SourceEdit(
                BRANCHES,
                "    return sum(weights.get(node, 0) for node in nodes), branch.length, -first\n",
                "    return 0, branch.length, -first\n",
            ),
        ),
        profile="splits,flaps",
        counts=HARM,
    ),
    Mutant(
        "apart-at-ignored",
        "21",
        True,
        (
            SourceEdit(
                AGREEMENT,
                "return max(self._final_index, self.view.final_index(self.stable, self.installed))",
                "return self.stable",
            ),
        ),
        profile="flaps",
        counts=HARM,
    ),
    Mutant(
        "a-view-of-everybody-binds-at-the-accept",
        "21",
        False,
        (
            SourceEdit(
                "txlog/model/view.py",
                "apart_at = -2 - self.diverged_index if self.diverged_index < -1 and not installed "
                "else self.diverged_index",
                "apart_at = self.diverged_index",
            ),
        ),
        test="node/tests/protocol/test_closing.py::test_where_the_log_may_part_counts_until_everybody_has_accepted_the_view_with_everybody_in_it",
    ),
    # One test decides for each worker
    Mutant(
        "any-worker-is-on-the-log",
        "25",
        True,
        (
            SourceEdit(
                "txlog/runtime/worker_registry.py",
                "return self._durability.position_at(position.index).hash.hex() == position.hash",
                "return bool(position.hash)",
            ),
        ),
        test="node/tests/runtime/test_a_log_that_is_cut.py::"
        "test_everything_falls_with_the_cut_and_nothing_of_the_base_is_shown_before_its_install",
    ),
    Mutant(
        "pages-for-whoever-asks",
        "25",
        True,
        (SourceEdit("txlog/server/feed/log_pages.py", "if given is not None and given != mine and", "if False and"),),
        test="node/tests/runtime/test_a_log_that_is_cut.py::test_no_page_for_a_worker_whose_position_is_on_another_branch",
    ),
    # Workers that do not go back (``None``)
    Mutant(
        "executed-on-the-abandoned-order-and-again",
        "26",
        False,
        (
            SourceEdit(
                UNORDERED,
                "return index <= self.executed_up_to or (at >= 0 and ranges[at][0] <= seq <= ranges[at][1])",
                "return index <= self.executed_up_to or at < -1",
            ),
        ),
        profile="splits",
        counts=HARM,
    ),
    Mutant(
        "abandoned-order-forgotten",
        "26",
        False,
        (SourceEdit(AGREEMENT, "        self._record_abandoned(view, cut)\n", ""),),
        profile="splits",
        counts=HARM,
    ),
    Mutant(
        "key-of-the-abandoned-order-forgotten",
        "16",
        False,
        (SourceEdit(UNORDERED, "        for done in self._keys.get(key, ()):\n", "        for done in ():\n"),),
        profile="splits",
        counts=HARM,
    ),
    Mutant(
        "answer-to-an-earlier-process",
        "2",
        False,
        (
            SourceEdit(
                "txlog/protocol/membership/bootstrap.py",
                "if not any(one.birth == self.local.birth and one.start >= self.local.start "
                "for one in known.known_incarnations):",
                "if not known:",
            ),
        ),
        test="node/tests/protocol/test_lost_journals.py"
        "::test_rule_2_what_was_told_an_earlier_process_founds_no_second_cluster",
    ),
)
