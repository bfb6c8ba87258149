"""Safeguards of the changes of views (protocol section 3), each taken out of the shipped code.

Splits and orders have tables of their own (``split_mutants.py``, ``override_mutants.py``).

Without a row: that a coordinator's own number is above every one seen (whoever promised more refuses, and the promise
is asserted). Without it, 50 seeds saw nothing: the other safeguard does the same.

A mutant names the profile whose mix of faults tries its rule; see ``mutant_table.py`` for the rest. Imports nothing of
``txlog``.
"""

from __future__ import annotations

from txlog_simulation.mutant import HARM, Mutant
from txlog_simulation.source_patches import SourceEdit

CORE = "txlog/protocol"
AGREEMENT = "txlog/protocol/log/log_state.py"
BASE_LOG = "txlog/protocol/log/base_log.py"
QUEUES = "txlog/protocol/log/incoming_queue.py"
STANDING = "txlog/protocol/views/view_state.py"
MEMBERSHIP = "txlog/protocol/views/participant.py"
COORDINATING = "txlog/protocol/views/coordinator.py"
VIEWS = "txlog/protocol/views/view_policy.py"
BASES = "txlog/protocol/views/log_merge.py"
BRANCHES = "txlog/protocol/views/branch_selection.py"
CLOSING = "txlog/protocol/views/next_view.py"
EXECUTOR = "txlog/runtime/executor.py"
_UNORDERED = "node/tests/protocol/test_unordered.py::"

_NO_ORDER_ASSERTION = SourceEdit(AGREEMENT, "assert first > self.log_key, f", "assert first, f")
_NO_RISING_STAMPS_CHECK = SourceEdit(
    QUEUES,
    "            if item.stamp <= last_stamp:\n",
    "            if item.stamp < 0:\n",
)
_NO_CHECK_OF_UNNAMED_STAMPS = SourceEdit(
    BASE_LOG, "        if not _grows_above(", "        if False and not _grows_above("
)
_NO_SETTLED_CHECK = (
    SourceEdit(MEMBERSHIP, "sound = agreement.final_index <= accept.cut <=", "sound = 0 <= accept.cut <="),
    SourceEdit(AGREEMENT, "        assert self.final_index <= cut <=", "        assert 0 <= cut <="),
)


def _before_durable(kind: str) -> tuple[SourceEdit, ...]:
    """Messages of this kind leave before the records that they speak of are durable."""
    return (
        SourceEdit(
            EXECUTOR,
            "    def _defer_until_durable(self, effects: Effects) -> None:\n",
            "    def _defer_until_durable(self, effects: Effects) -> None:\n"
            f"        early = [s for s in effects.sends if type(s.message).__name__ == '{kind}']\n"
            "        if early:\n"
            "            self._ready.append(Effects([], early))\n"
            "            effects = effects._replace(sends=[s for s in effects.sends if s not in early])\n",
        ),
    )


VIEW_MUTANTS: tuple[Mutant, ...] = (
    # A report is a promise (rule 34)
    Mutant(
        "accept-below-a-promise",
        "34",
        True,
        (
            SourceEdit(
                MEMBERSHIP,
                "        if number != self.views.promised:\n            self._refuse(",
                "        if number < self.views.number:\n            self._refuse(",
            ),
            SourceEdit(
                MEMBERSHIP,
                "        if number != self.views.promised:\n            self.views.pending_accept = None\n"
                "            return None\n",
                "",
            ),
            _NO_ORDER_ASSERTION,
        ),
        profile="outbids",
        counts=HARM,
    ),
    Mutant(
        "promise-not-durable",
        "34",
        True,
        (SourceEdit(STANDING, "        self.outbox.append(ViewPromised(*number))\n", ""),),
        profile="outbids",
        counts=HARM,
    ),
    Mutant(  # seeds see nothing: before others accept, their coordinator has accepted, durably
        "proposed-before-its-number-is-durable",
        "34",
        True,
        _before_durable("ProposeView"),
        test="node/tests/protocol/test_numbers_of_proposals.py"
        "::test_rule_34_a_number_whose_promise_was_lost_in_a_crash_was_heard_by_nobody",
    ),
    Mutant("report-before-durable", "34", True, _before_durable("ViewReport"), profile="outbids", counts=HARM),
    Mutant(
        "install-after-a-stop",
        "34",
        True,
        (
            SourceEdit(
                STANDING,
                "        if self.installed or self.promised != self.number or self.log_state is None:\n"
                "            return\n",
                "        if self.installed or self.log_state is None:\n            return\n"
                "        self.promised = self.number\n",
            ),
            SourceEdit(
                COORDINATING, "if change.unaccepted or self.views.promised != change.number:", "if change.unaccepted:"
            ),
            SourceEdit(  # else the view that was promised is refused now
                MEMBERSHIP,
                "        if number != self.views.promised:\n            self._refuse(",
                "        if number < self.views.promised:\n            self._refuse(",
            ),
            SourceEdit(
                MEMBERSHIP,
                "        if number != self.views.promised:\n            self.views.pending_accept = None\n",
                "        if number < self.views.promised:\n            self.views.pending_accept = None\n",
            ),
            *_NO_SETTLED_CHECK,
        ),
        profile="outbids",
        counts=HARM,
    ),
    Mutant(
        "stopped-view-resumed",
        "34",
        True,
        (
            SourceEdit(
                VIEWS,
                "        self.coordinator.try_accept()\n",
                "        views = self.views\n"
                "        late = now_ms > views.propose_after_ms - views.proposal_timeout_ms // 2\n"
                "        if views.installed and views.promised > views.number and views.change is None and late:\n"
                "            if views.pending_accept is None:\n"
                "                views.promised = views.number\n"
                "        self.coordinator.try_accept()\n",
            ),
        ),
        profile="outbids",
        counts=HARM,
    ),
    Mutant(
        "late-merge",
        "21",
        True,
        (
            SourceEdit(
                CORE,
                "        return views.is_active\n\n    def _on_runs",
                "        return True\n\n    def _on_runs",
            ),
            SourceEdit(
                CORE,
                " or not views.is_active or views.newer_view is not None:\n            return AppendRule.NOT_NOW\n",
                " or not views.installed:\n            return AppendRule.NOT_NOW\n",
            ),
            _NO_ORDER_ASSERTION,
        ),
        profile="flaps,splits",
        counts=HARM,
    ),
    Mutant(
        "stamp-while-stopped",
        "21",
        True,
        (
            SourceEdit(
                CORE,
                "return SubmissionTerms(self.views.is_stopped, marks, refusal)",
                "return SubmissionTerms(False, marks, refusal)",
            ),
            _NO_ORDER_ASSERTION,
            _NO_RISING_STAMPS_CHECK,
            _NO_CHECK_OF_UNNAMED_STAMPS,
        ),
        profile="views",
        counts=HARM,
    ),
    Mutant(
        "late-ones-below-what-the-accept-has",
        "21",
        True,
        (
            SourceEdit(
                AGREEMENT,
                "        self.last_stamp = max([self.last_stamp, view.floor, *(q.last_stamp for q in self.queues)])\n",
                "        self.last_stamp = max(self.last_stamp, self.own.last_stamp)\n"
                "        stamped += self._stamp_unstamped()\n"
                "        self.last_stamp = max([self.last_stamp, view.floor, *(q.last_stamp for q in self.queues)])\n",
            ),
            _NO_ORDER_ASSERTION,
            _NO_RISING_STAMPS_CHECK,
        ),
        test="node/tests/protocol/test_accepting.py::"
        "test_what_comes_while_the_view_is_stopped_gets_its_stamp_at_the_accept_above_everything[False]",
    ),
    # Workers execute up to the stable index, in every state (rule 33); ``None`` apart
    Mutant(
        "executes-to-the-end-in-every-strategy",
        "33",
        True,
        (
            SourceEdit(
                CORE, 'if view is None or view.strategy != "None" or self.views.majority_required', "if view is None"
            ),
        ),
        profile="splits",
        counts=HARM,
    ),
    Mutant(
        "executes-to-the-end-while-nobody-is-silent",
        "33",
        True,
        (
            SourceEdit(
                CORE,
                "            return False\n        return any(not self.is_present(p) for p in self.peers)\n",
                "            return False\n        return True\n",
            ),
        ),
        test=_UNORDERED + "test_while_a_member_is_silent_workers_execute_to_the_logs_end",
    ),
    # An accepted view is the latest, and nothing of it is used before the install (rule 21)
    Mutant("accepted-before-durable", "21", True, _before_durable("ViewAcceptedReply"), profile="duels", counts=HARM),
    Mutant(
        "only-installed-views-count",
        "21",
        True,
        (
            SourceEdit(
                BRANCHES,
                "    return max(ends, key=lambda one: one[0].precedence(one[1]))[0] if ends else None\n",
                "    return max(known, key=lambda one: (one[1], one[0].number))[0]\n",
            ),
        ),
        profile="majority",
        counts=HARM,
    ),
    Mutant(
        "accept-taken-for-install",
        "21",
        True,
        (
            SourceEdit(
                MEMBERSHIP,
                "        return number\n\n    def send_acceptance",
                "        self.views.installed = True\n"
                "        agreement.install_view()\n"
                "        return number\n\n    def send_acceptance",
            ),
            *_NO_SETTLED_CHECK,
        ),
        profile="duels",
        counts=HARM,
    ),
    # A view is closed before the next is opened
    Mutant(
        "view-not-closed",
        "21",
        True,
        (
            SourceEdit(
                BASES,
                "    base.append_all(base.queued_in_key_order(cells, branch.view.floor), cells)\n    return base\n",
                "    return base\n",
            ),
        ),
        profile="views",
        counts=HARM,
    ),
    Mutant(
        "outsiders-close-the-view",
        "21",
        True,
        (
            SourceEdit(
                CLOSING,
                "else branch_log(own, winner, known_to[0])\n",
                "else branch_log(own, winner, collect_transactions([p for r in reports for p in r.pending]))\n",
            ),
            *_NO_SETTLED_CHECK,
        ),
        profile="views",
        counts=HARM,
    ),
    Mutant(
        "new-stamps-below-counters",
        "21",
        False,
        (
            SourceEdit(
                CLOSING,
                "floor = max([*(r.counter for r in reports), *(r.view.floor for r in reports if r.view is not None), "
                "base.highest])",
                "floor = base.highest",
            ),
            _NO_ORDER_ASSERTION,
        ),
        profile="views",
        counts=HARM,
    ),
    Mutant(
        "ceiling-not-raised-by-an-accept",
        "4",
        True,
        (
            SourceEdit(
                AGREEMENT,
                "self.last_stamp = max([self.last_stamp, view.floor, *(q.last_stamp for q in self.queues)])",
                "self.last_stamp = max(self.last_stamp, 0)",
            ),
            SourceEdit(
                AGREEMENT,
                "self.last_stamp = max(recovered.ceiling, recovered.log_stamp, view.floor)",
                "self.last_stamp = max(recovered.ceiling, recovered.log_stamp)",
            ),
            _NO_ORDER_ASSERTION,
            _NO_RISING_STAMPS_CHECK,
        ),
        profile="views",
        counts=HARM,
    ),
    Mutant(
        "counters-carried-over",
        "10",
        True,
        (
            SourceEdit(
                CORE,
                "        for peer in self.peers:\n            peer.assume_held(shared)\n",
                "        for peer in self.peers:\n"
                "            peer.assume_held(shared)\n"
                "            peer.usable_counter = before.get(peer.origin, 0)\n",
            ),
            SourceEdit(
                CORE,
                "        shared = self._own_seq_held_by_all()\n",
                "        shared = self._own_seq_held_by_all()\n"
                "        before = {p.origin: p.usable_counter for p in self.peers}\n",
            ),
            _NO_ORDER_ASSERTION,
        ),
        # no seed can: every stamp of a view lies above all counters that its members reported
        test="node/tests/protocol/test_accepting.py::test_no_counter_of_the_old_view_is_usable_in_the_next",
    ),
    Mutant(
        "parked-ones-enter-the-queue",
        "21",
        True,
        (
            SourceEdit(
                AGREEMENT,
                "UNBOUNDED if queue.origin in members or not self.view.known_seqs else self.view.known_seqs[slot]",
                "UNBOUNDED",
            ),
            _NO_ORDER_ASSERTION,
        ),
        profile="flaps",
        counts=HARM,
    ),
    Mutant(
        "gap-in-the-new-queue",
        "26",
        True,
        (
            SourceEdit(
                CLOSING,
                "            if seq != base.last_seq(origin) + 1:\n                continue  # after a gap",
                "            if seq < 0:\n                continue  # after a gap",
            ),
        ),
        test="node/tests/protocol/test_closing.py::test_what_stands_behind_a_gap_waits_for_who_fills_it",
    ),
)
