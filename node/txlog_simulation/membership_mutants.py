"""Safeguards of rule 20, each taken out of the shipped code: who is a master, and what a majority is.

See ``mutant_table.py``. Imports nothing of ``txlog``.
"""

from __future__ import annotations

from txlog_simulation.mutant import HARM, Mutant
from txlog_simulation.source_patches import SourceEdit

CONFIGURATION = "txlog/model/configuration.py"
CONFIGURING = "txlog/protocol/membership/configuration_changes.py"
FOLLOWING = "txlog/protocol/membership/configuration_effects.py"
STANDING = "txlog/protocol/views/view_state.py"
MEMBERSHIP = "txlog/protocol/views/participant.py"
COORDINATING = "txlog/protocol/views/coordinator.py"
VIEWS = "txlog/protocol/views/view_policy.py"
CLOSING = "txlog/protocol/views/next_view.py"
AGREEMENT = "txlog/protocol/log/log_state.py"
KEYS = "txlog/protocol/log/idempotency_keys.py"

_TESTS = "node/tests/protocol/test_configuration.py::"
_APART = "node/tests/protocol/test_taken_out_and_apart.py::"
_JOINTLY = "all(one.has_majority(know) for one in closed.joint_configurations)"

MEMBER_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "majority-as-it-will-be",
        "20",
        True,
        (
            SourceEdit(MEMBERSHIP, "few = self.views.majority_required and not", "few = False and not"),
            SourceEdit(
                COORDINATING, "if self.views.majority_required and not self.views.is_majority(know)", "if False"
            ),
            SourceEdit(
                VIEWS,
                "            self.views.majority_required\n            and not self.views.is_majority(nodes)",
                "            False",
            ),
            SourceEdit(COORDINATING, _JOINTLY, "closed.joint_configurations[-1].has_majority(know)"),
        ),
        test=_TESTS + "test_a_half_that_changes_the_weights_alone_is_no_majority",
    ),
    Mutant(
        "majority-as-each-log-has-it",
        "20",
        True,
        (
            SourceEdit(
                STANDING,
                "return agreement.configurations.joint_configurations(agreement.stable)",
                "return [agreement.configurations.latest]",
            ),
            SourceEdit(COORDINATING, _JOINTLY, "closed.weights is not None"),
        ),
        test=_TESTS + "test_a_half_that_has_not_seen_a_change_is_no_majority_under_it",
    ),
    Mutant(
        "majority-as-an-accepted-view-has-it",
        "20",
        True,
        (
            SourceEdit(
                STANDING,
                "return agreement.configurations.joint_configurations(agreement.stable)",
                "return agreement.configurations.joint_configurations(agreement.log_index.length)",
            ),
            SourceEdit(CLOSING, "stable = max(report.stable for report in winner.reports)", "stable = winner.length"),
        ),
        test=_TESTS + "test_what_an_accepted_view_holds_changes_no_majority_before_its_install",
    ),
    Mutant(
        "a-change-of-another-view-counts",
        "20",
        True,
        (SourceEdit(CONFIGURATION, "        or not in_lineage(change.view)\n", ""),),
        test=_TESTS + "test_a_change_made_in_a_view_that_the_chain_does_not_know_is_a_noop",
    ),
    Mutant(
        "both-of-two-changes-count",
        "20",
        True,
        (SourceEdit(CONFIGURATION, "        or change.base_version != now.version\n", ""),),
        test=_TESTS + "test_of_two_changes_at_once_the_first_in_the_log_counts",
    ),
    Mutant(
        "a-change-of-another-branch-keeps-its-effect",
        "20",
        True,
        (SourceEdit(AGREEMENT, "        if stands < cut:", "        if False:"),),
        test=_TESTS + "test_a_change_of_a_branch_that_did_not_go_on_is_a_noop_where_it_was_made_as_well",
    ),
    Mutant(
        "added-past-those-in-the-view",
        "20",
        False,
        (SourceEdit(CONFIGURING, "if now.has_majority(here) and not", "if False and not"),),
        test=_TESTS + "test_a_master_is_added_under_majority_only_while_those_in_the_view_stay_a_majority",
    ),
    Mutant(
        "gone-while-its-vote-is-needed",
        "20",
        False,
        (
            SourceEdit(
                "txlog/protocol/membership/configuration_effects.py",
                " or in_force.has_majority(rest)",
                " or bool(rest)",
            ),
        ),
        test=_TESTS + "test_a_master_that_is_taken_out_goes_when_the_others_are_most_with_its_vote_counted",
    ),
    Mutant(
        "waits-for-one-that-was-taken-out",
        "32",
        False,
        (SourceEdit(VIEWS, " or self._silent_member_removed(view)", ""),),
        test=_APART + "test_a_view_that_waits_for_one_that_was_taken_out_gives_way",
    ),
    Mutant(
        "holds-the-view-for-one-that-was-taken-out",
        "32",
        False,
        (SourceEdit(MEMBERSHIP, "            heard = heard and not self._is_removed(member.node)\n", ""),),
        test=_APART + "test_one_that_is_taken_out_and_has_not_left_holds_nobody",
    ),
    Mutant(
        "no-master-elsewhere-and-first-all-the-same",
        "32",
        False,
        (SourceEdit(VIEWS, " or not self.views.unlisted_by.isdisjoint(nodes)", ""),),
        test=_APART + "test_one_that_is_no_master_elsewhere_does_not_outbid_who_is",
    ),
    Mutant(
        "taken-out-alone-and-never-gone",
        "20",
        False,
        (
            SourceEdit(
                CONFIGURING,
                "theirs.is_or_descends_from(mine.number) or self._is_no_longer_needed(known)",
                "theirs.is_or_descends_from(mine.number)",
            ),
        ),
        test=_APART + "test_one_that_was_taken_out_and_went_on_alone_ends",
    ),
    Mutant(
        "taken-out-whom-alone-another-knows",
        "20",
        False,
        (SourceEdit(CONFIGURING, "        if cut_off:\n", "        if False:\n"),),
        test=_TESTS + "test_nobody_goes_while_another_is_out_who_knows_none_of_those_that_stay",
    ),
    Mutant(
        "several-changes-at-a-time",
        "20",
        True,
        (SourceEdit(CONFIGURING, "        if pending is not None:\n", "        if False:\n"),),
        test=_TESTS + "test_a_second_change_is_refused_while_one_is_pending",
    ),
    Mutant(
        "a-muted-master-takes-writes",
        "20",
        False,
        (SourceEdit(CONFIGURING, "        if self._role == MUTED:\n", "        if False:\n"),),
        profile="members",
        counts=HARM,
    ),
    Mutant(
        "work-while-it-is-taken-out",
        "20",
        True,
        (SourceEdit(CONFIGURING, "if self._role in (LEAVING, REMOVED):", "if self._role == REMOVED:"),),
        profile="members",
        counts=HARM,
    ),
    Mutant(
        "gone-before-anybody-has-what-it-has",
        "20",
        True,
        (
            SourceEdit(
                FOLLOWING,
                "        return views.is_active and bool(state.peers) and",
                "        return views.is_active or bool(state.peers) and",
            ),
        ),
        test=_TESTS + "test_a_master_that_is_alone_does_not_go",
    ),
    Mutant(
        "removed-masters-are-heard",
        "20",
        True,
        (SourceEdit(CONFIGURING, "        raise self._unlisted_fault(peer)\n", "        return\n"),),
        test=_TESTS + "test_a_removed_master_brings_everything_in_and_is_refused_by_name",
    ),
    Mutant(
        "strangers-are-heard",
        "20",
        True,
        (SourceEdit(CONFIGURING, "        raise self._unlisted_fault(peer)\n", "        return\n"),),
        test=_TESTS + "test_it_may_run_before_it_is_added",
    ),
    Mutant(
        "the-mode-before-everybody-knows",
        "20",
        True,
        (
            SourceEdit(
                CLOSING,
                "(kept if out or along is None else along.latest.majority)",
                "(kept if along is None else along.latest.majority)",
            ),
        ),
        test=_TESTS + "test_the_split_mode_follows_in_a_view_of_everybody",
    ),
    Mutant(
        "a-longer-retention-finds-what-is-remembered",
        "20",
        True,
        (
            SourceEdit(
                KEYS,
                "        return all(min(one.stamp, high) - low <= one.before for one in later)\n",
                "        return bool(later)\n",
            ),
        ),
        test=_TESTS + "test_what_a_longer_retention_finds_forgotten_stays_forgotten",
    ),
)
