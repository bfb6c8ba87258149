"""Safeguards of operators' orders (protocol section 3, ``txlog found`` and ``force-view``), each taken out of the
shipped code.

Without a row: that an order is forgotten when the member is reached again (whoever hears it refuses the view).
See ``view_mutants.py``. Imports nothing of ``txlog``.
"""

from __future__ import annotations

from txlog_simulation.mutant import HARM, Mutant
from txlog_simulation.source_patches import SourceEdit

STANDING = "txlog/protocol/views/view_state.py"
CLOSING = "txlog/protocol/views/next_view.py"
FETCHING = "txlog/protocol/views/backfill.py"
VIEW = "txlog/model/view.py"
FOUNDING = "txlog/protocol/membership/bootstrap.py"

_TESTS = "node/tests/protocol/test_orders.py::"
_BOOTSTRAP_TESTS = "node/tests/protocol/test_bootstrap_by_order.py::"
_STAMPS = "node/tests/protocol/test_stamps_of_views.py::"
_SEEDS = "node/tests/simulation/test_seeds.py::test_what_was_wrong_once_in_a_mix_is_right"

ORDER_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "learner-bootstraps-another-cluster",
        "2",
        True,
        (
            SourceEdit(
                FOUNDING,
                "        if accepted is None and (self._recovered_learner or self.views.log_state is not None):\n",
                "        if False:\n",
            ),
        ),
        test="node/tests/protocol/test_lost_journals.py"
        "::test_a_learner_takes_no_part_in_the_bootstrap_of_another_cluster",
    ),
    Mutant(
        "order-asks-for-no-majority",
        "20",
        False,
        (
            SourceEdit(
                STANDING,
                "        if view is None or not has_override(gone):\n            return False\n",
                "        if view is None or not has_override(gone) or jointly:\n"
                "            return has_override(gone)\n",
            ),
        ),
        test=_TESTS + "test_an_order_lets_go_of_whom_it_names_and_of_nobody_else",
    ),
    Mutant(
        "order-about-one-that-answers",
        "21",
        False,
        (
            SourceEdit(
                STANDING,
                "            if self.is_reachable(member):\n                where",
                "            if False:\n                where",
            ),
        ),
        profile="orders",
        counts=HARM,
    ),
    Mutant(
        "order-not-durable",
        "25",
        False,
        (SourceEdit(STANDING, "            self.outbox.append(now)\n", "            pass\n"),),
        test=_TESTS + "test_an_order_leads_to_its_view_also_when_its_master_ends_right_behind_the_answer",
    ),
    Mutant(
        "order-to-begin-not-durable",
        "25",
        False,
        (SourceEdit(FOUNDING, "        self.views.record_overrides()\n", ""),),
        test=_BOOTSTRAP_TESTS + "test_an_order_to_begin_is_kept_over_a_crash_right_behind_the_answer",
    ),
    Mutant(
        "order-given-again-at-every-start",
        "25",
        False,
        (
            SourceEdit(
                "txlog/model/records.py",
                "[one for one in self.excluded_members if view.has_member(Origin(one[0], one[1]))]",
                "self.excluded_members",
            ),
        ),
        test=_TESTS + "test_an_order_leads_to_its_view_also_when_its_master_ends_right_behind_the_answer",
    ),
    Mutant(
        "order-puts-nobody-apart",
        "26",
        False,
        (
            SourceEdit(
                CLOSING,
                '    ordered = any(one.why == "ordered" for one in gone) or winner.is_forced\n',
                "    ordered = False\n",
            ),
        ),
        profile="orders",
        counts=HARM,
    ),
    Mutant(
        "order-wins-over-a-majority",
        "25",
        False,
        (SourceEdit(VIEW, "return (not ordered, ", "return (False, "),),
        test=_TESTS + "test_what_an_order_put_beside_a_majority_gives_way",
    ),
    Mutant(
        "a-later-order-wins-over-more-of-a-majority",
        "25",
        False,
        (SourceEdit(VIEW, "self.diverged_at(installed) if ordered else 0, self.number", "0, self.number"),),
        test=_TESTS + "test_of_two_orders_the_one_whose_line_had_a_majority_for_longer_goes_on",
    ),
    Mutant(
        "an-order-moves-what-is-settled-elsewhere",
        "25",
        False,
        (SourceEdit(CLOSING, "keeping = branches_with_all_final_entries(forks, own)", "keeping = forks"),),
        test=_TESTS + "test_an_order_beside_one_that_nobody_is_apart_from_comes_behind_it[Smart]",
    ),
    Mutant(
        "stamps-of-another-view-count",
        "14",
        False,
        (SourceEdit(FETCHING, "            if inside and not same:\n", "            if False:\n"),),
        test=_STAMPS + "test_what_stands_elsewhere_with_other_stamps_is_not_taken_into_the_view_at_work",
    ),
    Mutant(
        "stamps-of-the-view-ahead-beside-those-of-the-view-at-work",
        "34",
        False,
        (
            SourceEdit(
                FETCHING,
                "        if self.views.newer_view is not None "
                "and self.views.newer_view.number > self.views.promised:\n",
                "        if False:\n",
            ),
        ),
        test=_STAMPS + "test_rule_34_who_takes_stamps_of_the_view_ahead_has_stopped_its_own_for_good",
    ),
    Mutant(
        "a-stopped-master-tells-stamps-as-those-of-its-view",
        "14",
        False,
        (SourceEdit(STANDING, "return self.promised if self.is_stopped else self.number", "return self.number"),),
        test=_STAMPS + "test_what_a_stopped_master_holds_is_not_told_with_the_stamps_of_its_view",
    ),
    Mutant(
        "order-leaves-nobody-who-may-come",
        "32",
        False,
        (SourceEdit(STANDING, "        if view is None or gone:\n", "        if True:\n"),),
        test=_TESTS + "test_disks_that_are_lost_come_back_after_the_order",
    ),
    Mutant(
        "order-that-came-about-nowhere-is-over",
        "32",
        False,
        (
            SourceEdit(
                STANDING,
                "(view.is_forced(installed) or (view.excluded_by_override and not installed))",
                "view.is_forced(installed)",
            ),
        ),
        test=_TESTS + "test_an_order_that_came_about_nowhere_is_begun_again",
    ),
    Mutant(
        "order-heals-by-what-nobody-installed",
        "32",
        False,
        (SourceEdit(STANDING, "if not (view.is_forced(installed) or", "if not (view.is_forced(True) or"),),
        test=_SEEDS + "[orders-205908]",
    ),
    Mutant(
        "order-waits-for-a-view-that-nobody-has",
        "32",
        False,
        (SourceEdit(STANDING, "        if not self.newer_view_members:\n", "        if False:\n"),),
        test=_TESTS + "test_nobody_waits_for_a_view_that_was_lost_with_the_only_disk_that_had_it",
    ),
    Mutant(
        "founded-beside-a-promise",
        "34",
        True,
        (SourceEdit(FOUNDING, " or views.promised > view.number", ""),),
        test=_SEEDS + "[members-204748]",
    ),
    Mutant(
        "founded-by-a-few",
        "20",
        False,
        (
            SourceEdit(
                FOUNDING,
                "if self.local.settings.majority "
                "and not bootstrap_configuration(self.local.settings).has_majority(named):",
                "if False:",
            ),
        ),
        profile="foundings",
    ),
    Mutant(
        "two-foundings-of-one-word",
        "27",
        False,
        (
            SourceEdit(FOUNDING, "        if self._is_bound:\n", "        if False:\n"),
            SourceEdit(
                FOUNDING,
                " or self.cluster or self._is_bound or self.must_learn:",
                " or self.cluster or self.must_learn:",
            ),
        ),
        test=_BOOTSTRAP_TESTS + "test_who_has_accepted_a_founding_begins_no_other",
    ),
    Mutant(
        "founding-that-nobody-hears-of",
        "32",
        False,
        (SourceEdit(FOUNDING, "            ballot = above  #", "            pass  #"),),
        test=_BOOTSTRAP_TESTS + "test_a_founding_is_proposed_above_what_an_order_began",
    ),
)
