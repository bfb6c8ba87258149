"""Safeguards of what a cluster forgets in a long life, one each taken out. Imports nothing of ``txlog``."""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

LINEAGE = "txlog/protocol/views/view_lineage.py"
ADMISSION = "txlog/protocol/views/candidate_checks.py"
VIEW = "txlog/model/view.py"
HEADER = "txlog/journal/format.py"
LOG_START = "txlog/protocol/log/log_start.py"
_LIVES = "node/tests/protocol/test_long_lives.py::"
_AGES = "node/tests/protocol/test_key_ages.py::"
_RULES = "node/tests/protocol/test_view_lineage.py::"
_UNORDERED = "node/tests/protocol/test_unordered.py::"
_BYTES = "node/tests/journal/test_journal_format.py::"
_WHOLE = "    return whole and configured <= {m.node for m in view.members}\n"
_INSTALLED = "whole = winner.is_installed and view.diverged_at(True) == -1 and not view.silent_members"

LINEAGE_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "an-absent-master-is-as-new-as-the-others",
        "16",
        False,
        (
            SourceEdit(
                LINEAGE,
                "    if configured <= {report.node for report in reports}:\n        return level\n",
                "    return level\n",
            ),
        ),
        test=_AGES + "test_an_absent_master_that_was_older_may_be_so_still[False]",
    ),
    Mutant(
        "a-founding-proves-no-level",
        "16",
        False,
        (SourceEdit("txlog/protocol/membership/bootstrap.py", "first, prefers, level)", "first, prefers)"),),
        test=_AGES + "test_masters_that_restart_while_another_one_is_away_give_first_stamps",
    ),
    Mutant(
        "the-founding-ends-earlier-views",
        "21",
        False,
        (SourceEdit(LINEAGE, "if view.ancestors and _ends", "if _ends"),),
        test=_RULES + "test_the_founding_ends_no_views",
    ),
    Mutant(
        "views-are-forgotten-while-a-master-is-out",
        "21",
        False,
        (SourceEdit(LINEAGE, _WHOLE, "    return whole\n"),),
        test=_LIVES + "test_all_ancestors_are_listed_while_a_master_is_out",
    ),
    Mutant(
        "views-are-forgotten-before-an-install",
        "21",
        False,
        (SourceEdit(LINEAGE, _INSTALLED, _INSTALLED.replace("winner.is_installed and ", "")),),
        test=_RULES + "test_else_all_ancestors_are_listed[view0-fields0-abc]",
    ),
    Mutant(
        "views-are-forgotten-with-a-branch-elsewhere",
        "21",
        False,
        (SourceEdit(LINEAGE, _INSTALLED, _INSTALLED.replace(" and view.diverged_at(True) == -1", "")),),
        test=_RULES + "test_else_all_ancestors_are_listed[view4-fields4-abc]",
    ),
    Mutant(
        "views-are-forgotten-beside-an-older-program",
        "25",
        False,
        (SourceEdit(LINEAGE, " and min(level, view.level) >= FORGETTING_LEVEL", ""),),
        test=_LIVES + "test_nothing_is_forgotten_beside_an_older_master",
    ),
    Mutant(
        "views-are-never-forgotten",
        "32",
        False,
        (SourceEdit(LINEAGE, _WHOLE, "    return False\n"),),
        test=_LIVES + "test_a_view_lists_few_ancestors_after_many_restarts[False]",
    ),
    Mutant(
        "what-is-forgotten-is-no-ancestor",
        "25",
        False,
        (SourceEdit(VIEW, "number[0] > 0 and number < self.lineage_start", "False"),),
        test=_LIVES + "test_changes_made_in_forgotten_views_count_after_a_restart",
    ),
    Mutant(
        "all-that-is-forgotten-is-an-ancestor",
        "25",
        False,
        (SourceEdit(VIEW, " and number not in self.foreign_views", ""),),
        test=_LIVES + "test_changes_of_a_branch_that_did_not_survive_stay_noops",
    ),
    Mutant(
        "what-an-absent-master-holds-is-forgotten",
        "25",
        False,
        (SourceEdit(LINEAGE, "if not configured <= {report.node for report in reports}:", "if False:"),),
        test=_RULES + "test_a_foreign_view_is_kept_as_long_as_a_master_holds_a_change_made_in_it",
    ),
    Mutant(
        "an-older-program-is-admitted",
        "25",
        False,
        (SourceEdit(ADMISSION, "    if not can_read_lineage(view, who.level):\n", "    if False:\n"),),
        test=_LIVES + "test_an_older_program_is_refused_by_name_once_views_are_forgotten",
    ),
    Mutant(
        "an-older-program-coordinates",
        "25",
        False,
        (
            SourceEdit(
                "txlog/protocol/views/participant.py",
                "if not can_read_lineage(self.views.accepted, proposal.level):",
                "if False:",
            ),
        ),
        test=_RULES + "test_a_proposal_of_an_older_program_is_refused_once_views_are_forgotten",
    ),
    Mutant(
        "views-without-all-masters-follow-without-end",
        "32",
        False,
        (SourceEdit(ADMISSION, "return len(view.ancestors) < LISTED_ANCESTORS_MAX", "return True"),),
        test=_LIVES + "test_with_too_many_views_only_all_masters_together_are_admitted",
    ),
    Mutant(
        "a-header-has-16-bits-for-its-views",
        "28",
        False,
        (SourceEdit(HEADER, "narrow = len(packed) <= _NARROW_MAX", "narrow = True"),),
        test=_BYTES + "test_a_header_has_room_for_views_of_any_length[False-1600-2]",
    ),
    Mutant(
        "a-long-header-is-read-short",
        "28",
        False,
        (SourceEdit(HEADER, "    if header is None or header.copies < 2:\n", "    if False:\n"),),
        test=_BYTES + "test_a_header_has_room_for_views_of_any_length[False-30000-2]",
    ),
    Mutant(
        "abandoned-branches-are-never-forgotten",
        "32",
        False,
        (SourceEdit(LOG_START, "return not all(is_below(span)", "return True or not all(is_below(span)"),),
        test=_UNORDERED + "test_abandoned_branches_are_forgotten_with_the_last_of_their_transactions",
    ),
    Mutant(
        "abandoned-branches-are-forgotten-with-the-first-trim",
        "5",
        False,
        (SourceEdit(LOG_START, "1 <= history.index_of(origin, last) <= index", "True"),),
        test=_UNORDERED + "test_abandoned_branches_are_forgotten_with_the_last_of_their_transactions",
    ),
    Mutant(
        "abandoned-branches-are-forgotten-while-a-worker-names-them",
        "5",
        False,
        (SourceEdit(LOG_START, "in_use = keeps_branches or ", "in_use = "),),
        test=_UNORDERED + "test_abandoned_branches_are_forgotten_with_the_last_of_their_transactions",
    ),
)
