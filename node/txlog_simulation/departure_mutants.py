"""Mutants of how a member gets out of its view and what it leaves behind (rules 21 to 33)."""

from __future__ import annotations

from txlog_simulation.mutant import HARM, Mutant
from txlog_simulation.source_patches import SourceEdit

CORE = "txlog/protocol"
STANDING = "txlog/protocol/views/view_state.py"
MEMBERSHIP = "txlog/protocol/views/participant.py"
COORDINATING = "txlog/protocol/views/coordinator.py"
VIEWS = "txlog/protocol/views/view_policy.py"
SURROUNDINGS = "txlog/protocol/replication/failure_detector.py"
CHANGES = "txlog/protocol/views/view_change.py"
CLOSING = "txlog/protocol/views/next_view.py"

_MAJORITY_CHECKS = (
    SourceEdit(
        MEMBERSHIP,
        "few = self.views.majority_required and not self.views.is_majority(",
        "few = False and not self.views.is_majority(",
    ),
    SourceEdit(
        COORDINATING,
        "if self.views.majority_required and not self.views.is_majority(know)",
        "if False and not self.views.is_majority(know)",
    ),
    SourceEdit(
        VIEWS,
        "            self.views.majority_required\n            and not self.views.is_majority(nodes)",
        "            False and not self.views.is_majority(nodes)",
    ),
    SourceEdit(COORDINATING, "few = closed.majority and not", "few = False and not"),
)


DEPARTURE_MUTANTS: tuple[Mutant, ...] = (
    # How a member gets out
    Mutant(
        "leave-of-a-later-view",
        "27",
        False,
        (SourceEdit(STANDING, "        if leaving.view <= self.number:  # one", "        if True:  # one"),),
        test="node/tests/protocol/test_members_leave.py::test_a_leave_of_a_later_view_than_this_master_knows_is_none_here",
    ),
    Mutant(
        "proof-that-comes-late-names-no-reason",
        "27",
        False,
        (
            SourceEdit(
                "txlog/server/admin/views.py",
                "            self._loop.departures.record_proof(node)\n",
                "            pass\n",
            ),
        ),
        test="node/tests/server/test_leaving.py::test_a_proof_that_comes_after_the_view_still_names_the_reason",
    ),
    Mutant(
        "proof-that-comes-late-to-a-further-log-names-no-reason",
        "27",
        False,
        (
            SourceEdit(
                "txlog/server/process_notices.py",
                "                service.loop.departures.record_proof(node)\n",
                "                pass\n",
            ),
        ),
        test="node/tests/server/test_proofs_for_further_logs.py::test_a_proof_counts_in_each_log",
    ),
    Mutant(
        "told-of-neighbours-alone",
        "22",
        True,
        (
            SourceEdit(
                "txlog/protocol/replication/failure_detector.py",
                "if node not in near and age_ms <= self._timeout_ms:",
                "if node in near and age_ms < 0:",
            ),
        ),
        test="node/tests/protocol/test_chains.py::test_a_chain_changes_its_view[1-Majority-6]",
    ),
    Mutant(
        "refused-for-one-beyond",
        "22",
        False,
        (
            SourceEdit(
                "txlog/protocol/views/participant.py",
                "\n                    and not self._unreachable_from_coordinator(member.node, proposal)",
                "",
            ),
        ),
        test="node/tests/protocol/test_chains.py::test_two_halves_of_a_chain_of_four_become_one[Smart]",
    ),
    Mutant(
        "silent-before-the-view-and-let-go-in-it",
        "24",
        False,
        (
            SourceEdit(
                "txlog/protocol/views/participant.py",
                "        self.views.failure_detector.on_view_accepted([m.node for m in accept.view.members])\n",
                "",
            ),
        ),
        test="node/tests/protocol/test_silence_that_is_over.py::"
        "test_who_has_just_agreed_to_a_view_is_not_silent[ab-None]",
    ),
    Mutant(
        "failed-and-first-again",
        "32",
        False,
        (
            SourceEdit(
                "txlog/protocol/views/view_state.py",
                "if self.accepted is not None and "
                "all(self.accepted.has_member(m.origin) for m in self.failed_members):",
                "if True:",
            ),
        ),
        test="node/tests/protocol/test_who_cannot_close.py::"
        "test_what_is_settled_beside_an_order_is_named_by_who_holds_it[Smart]",
    ),
    Mutant(
        "failed-and-no-more-patient",
        "32",
        False,
        (SourceEdit(VIEWS, "(2 * len(nodes) if last else 0)", "(len(nodes) if last else 0)"),),
        test="node/tests/simulation/test_seeds.py::test_what_was_wrong_once_is_right[49586]",
    ),
    Mutant(
        "who-was-overtaken-is-not-answered",
        "22",
        False,
        (
            SourceEdit(
                "txlog/protocol/replication/post_receiver.py",
                "if post.ask and sender.replica_state is not None and",
                "if False and",
            ),
        ),
        test="node/tests/protocol/test_members_leave.py::test_a_post_that_a_later_one_overtook_is_answered_all_the_same",
    ),
    Mutant(
        "return-without-those-who-went-on",
        "27",
        False,
        (
            SourceEdit(
                MEMBERSHIP,
                "if self.views.left == NO_VIEW or self.views.left != self.views.number:",
                "if self.views.left == NO_VIEW or self.views.left != self.views.number or accept:",
            ),
        ),
        test="node/tests/protocol/test_view_changes.py::test_refused_left_when_nobody_knows_what_followed",
    ),
    Mutant(
        "unvouched-proof",
        "27",
        False,
        (
            SourceEdit(
                COORDINATING,
                "unvouched = change.unconfirmed_departure() if needs_word else None",
                "unvouched = None",
            ),
        ),
        profile="successions",
        counts=HARM,
    ),
    Mutant(
        "one-left-behind-before-vouches",
        "27",
        False,
        (SourceEdit(CHANGES, "            if latest.has_member(Origin(report.node, report.birth))\n", ""),),
        test="node/tests/protocol/test_proofs.py::test_rule_27_one_that_was_left_behind_before_vouches_for_nobody",
    ),
    Mutant(
        "accept-after-a-leave",
        "27",
        False,
        (
            SourceEdit(
                "txlog/protocol/message_dispatcher.py",
                "case wire.ProposeView() | wire.AcceptView() if departure.has_left:",
                "case wire.ProposeView() if departure.has_left:",
            ),
        ),
        test="node/tests/protocol/test_members_leave.py::test_a_master_that_has_left_accepts_no_view_any_more",
    ),
    Mutant(
        "left-out-without-a-word",
        "21",
        False,
        (
            SourceEdit(
                CLOSING, "if (m.node, m.birth) not in spoken]", "if (m.node, m.birth) not in spoken and not m.node]"
            ),
        ),
        test="node/tests/protocol/test_masters_change_views.py"
        "::test_one_that_a_lagging_coordinator_knows_nothing_of_may_have_gone_on",
    ),
    Mutant(
        "stale-proof",
        "24",
        False,
        (
            SourceEdit(
                CHANGES,
                '    return departure.why not in ("left", "down") or departure.start >= heard_start\n',
                "    return True\n",
            ),
            SourceEdit(STANDING, "        if heard > start:\n", "        if False:\n"),
            SourceEdit(STANDING, "        if departure.start < start:\n", "        if False:\n"),
            SourceEdit(
                CHANGES,
                'and (gone.why == "lost" or start == gone.start)',
                "and start",
            ),
        ),
        test="node/tests/protocol/test_members_leave.py::test_a_proof_of_an_earlier_process_is_refused_to_the_supervisor",
    ),
    Mutant(
        "member-heard-both-ways-left-out",
        "21",
        False,
        (
            SourceEdit(
                MEMBERSHIP,
                "heard = self.views.failure_detector.is_bidirectional(member.node) "
                "and not self.views.is_identity_lost(\n                member.origin\n            )",
                "heard = False",
            ),
        ),
        test="node/tests/protocol/test_view_changes.py::test_refused_heard_both_ways",
    ),
    Mutant("no-majority-needed", "20", True, _MAJORITY_CHECKS, profile="majority,outbids", counts=HARM),
    Mutant(
        "weight-of-a-wiped-master-counts",
        "2",
        True,
        (
            SourceEdit(
                COORDINATING,
                "know = [r.node for r in reports if r.view is not None]",
                "know = [r.node for r in reports]",
            ),
        ),
        test="node/tests/protocol/test_lost_journals.py::test_rule_2_a_learner_counts_for_no_majority",
    ),
    Mutant(
        "change-messages-not-relayed",
        "22",
        True,
        (
            SourceEdit(
                CORE,
                "        if self._failure_detector.is_bidirectional(node) "
                "or node not in self._failure_detector.reachable():\n",
                "        if node:\n",
            ),
        ),
        profile="chain",
    ),
    Mutant(
        "deaf-one-is-there-for-whom-others-hear",
        "22",
        True,
        (
            SourceEdit(
                SURROUNDINGS,
                "while back := {node for node in heard if self._hears_any_of(node, found)}:",
                "while back := set(heard):",
            ),
        ),
        profile="deaf",
    ),
)
