"""Safeguards of synchronous transactions (S4 to S13), one each taken out. Imports nothing of ``txlog``.

Tests kill those of the pure rules: the runs of the model, in which the rules of the masters are asked in every step,
and directed ones. Runs of whole masters and tests of these kill the others.
"""

from __future__ import annotations

from txlog_simulation.mutant import HARM, Mutant
from txlog_simulation.source_patches import SourceEdit

ANCHORS = "txlog/protocol/views/anchors.py"
DECISIONS = "txlog/protocol/views/decisions.py"
WRITER = "txlog/protocol/views/decision_writer.py"
SCHEDULE = "txlog/protocol/replication/post_schedule.py"
LIMBO = "txlog/protocol/log/limbo.py"
EFFECTS = "txlog/protocol/log/synchronous_effects.py"
QUORATE = "txlog/protocol/views/quorate_view.py"
UNDECIDED = "txlog/protocol/views/undecided.py"
NEXT_VIEW = "txlog/protocol/views/next_view.py"
_MODEL = "node/tests/protocol/test_synchronous_rules_model.py::test_masters_and_model_say_the_same_in_random_runs"
_EARLY = (
    "node/tests/protocol/test_synchronous_rules_model.py"
    "::test_masters_and_model_say_the_same_where_a_decision_precedes_what_it_names"
)
_FOLD = "node/tests/protocol/test_synchronous_s07_limbo.py::"
_DOOM = "node/tests/protocol/test_synchronous_s09_doom.py"
_ANSWERS = "node/tests/protocol/test_synchronous_s10_answers.py"


_MASTERS = "node/tests/protocol/test_synchronous_masters.py::"


def _mutant(name: str, rule: str, file: str, old: str, new: str, test: str = _MODEL) -> Mutant:
    return Mutant(f"synchronous-{name}", rule, True, (SourceEdit(file, old, new),), test=test)


def _seen_in_runs(name: str, rule: str, file: str, old: str, new: str) -> Mutant:
    return Mutant(f"synchronous-{name}", rule, True, (SourceEdit(file, old, new),), profile="synchronous", counts=HARM)


SYNCHRONOUS_MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "lost-disks-vote-at-once", "S4", ANCHORS, " for each in reports if each.has_voted]", " for each in reports]"
    ),
    _mutant("electorates-apart", "S4", ANCHORS, "under = [] if is_seen else previous.under", "under = []"),
    _mutant("electorate-of-who-is-out", "S4", ANCHORS, "if may_elect else previous.electorate", "if True else []"),
    _mutant("any-anchor", "S5", ANCHORS, "previous = max(", "previous = min("),
    _mutant("committed-in-any-view", "S6", DECISIONS, "    if not quorate:\n", "    if not anchor.members:\n"),
    _mutant(
        "doomed-is-committed",
        "S8",
        DECISIONS,
        "        if txid in known.doomed:\n",
        "        if txid in known.doomed and not anchor.members:\n",
    ),
    _mutant(
        "absent-hold-nothing",
        "S8",
        ANCHORS,
        "for node, _ in previous.members if node not in lacking]",
        "for node, _ in previous.members if any(node == e.node for e in reports) and node not in lacking]",
    ),
    _mutant(
        "late-is-rolled-back",
        "S8",
        ANCHORS,
        "is_late(counter) or _may_be_held(txid, previous, reports):",
        "is_late(counter):",
    ),
    _mutant("doomed-again", "S9", ANCHORS, "if txid.seq <= known.get(txid.origin, 0):", "if txid in doomed:", _DOOM),
    _mutant(
        "last-decision-counts",
        "S7",
        LIMBO,
        "for txid in others if txid not in self.early and not",
        "for txid in others if not",
        test=_FOLD + "test_a_decision_that_precedes_it_counts_at_its_own_place",
    ),
    _mutant(
        "truncation-forgets-what-was-open",
        "S7",
        LIMBO,
        "            self.open[one.txid] = one\n            self.rolled_back.pop(one.txid, None)\n",
        "            self.rolled_back.pop(one.txid, None)\n",
        test=_FOLD + "test_a_log_that_was_truncated_and_grew_again_was_never_longer",
    ),
    _mutant(
        "key-as-old-as-its-entry",
        "S11",
        LIMBO,
        "Effect(one, max(one.stamp, stamp), False)",
        "Effect(one, one.stamp, False)",
        test=_FOLD + "test_the_age_of_its_key_counts_from_the_later_stamp_of_it_and_its_commit",
    ),
    _mutant(
        "synced-in-any-view",
        "S10",
        DECISIONS,
        "<= progress.stable and progress.quorate",
        "<= progress.stable",
        test=_ANSWERS,
    ),
    _mutant(
        "rolled-back-before-it-is-stable",
        "S10",
        DECISIONS,
        "if 0 < progress.rollback_index <= progress.stable:",
        "if 0 < progress.rollback_index:",
        test=_ANSWERS,
    ),
    _mutant(
        "trimmed-though-open",
        "S13",
        LIMBO,
        "[served_from, *(one.log_index - 1 for one in at_served.open)]",
        "[served_from]",
    ),
    _mutant(
        "start-without-what-is-open", "S13", LIMBO, "LimboSnapshot(tuple(self.open.values()),", "LimboSnapshot((),"
    ),
    _mutant("start-without-early-decisions", "S13", LIMBO, "tuple(self.early.items()),", "(),", test=_EARLY),
    _mutant("start-forgets-what-was-rolled-back", "S13", LIMBO, "tuple(self.rolled_back.items()))", "())"),
    _mutant(
        "taken-by-who-is-away",
        "S2",
        UNDECIDED,
        "here = frozenset(self.present(state))",
        "here = frozenset(m.node for m in view.members)",
        test=_MASTERS + "test_it_is_refused_where_its_quorum_does_not_answer",
    ),
    _mutant(
        "every-view-decides",
        "S4",
        ANCHORS,
        "if not all(_is_majority(electorate, voters) for electorate in (previous.electorate, *under)):",
        "if not previous.members:",
        test="node/tests/protocol/test_synchronous_voters.py",
    ),
    _mutant(
        "first-births-do-not-vote",
        "S4",
        QUORATE,
        "voters=births)",
        "voters=[])",
        test="node/tests/protocol/test_synchronous_voters.py",
    ),
    _mutant(
        "voters-are-forgotten",
        "S4",
        QUORATE,
        "msgspec.structs.replace(found.anchor, voters=sorted(voters))",
        "msgspec.structs.replace(found.anchor, voters=anchors[0].voters)",
        test="node/tests/protocol/test_synchronous_voters.py",
    ),
    _seen_in_runs(
        "held-by-who-has-not-said-so",
        "S6",
        UNDECIDED,
        "if slot < len(known) and txid.seq <= known[slot]:",
        "if slot < len(known):",
    ),
    _seen_in_runs(
        "in-effect-at-its-own-place",
        "S7",
        EFFECTS,
        "kind != KIND_DECISION and index not in self.limbo.early_commits",
        "kind != KIND_DECISION and index in self.limbo.early_commits",
    ),
    _mutant(
        "decided-again-behind-a-log-start",
        "S13",
        EFFECTS,
        "if entry.log_index <= self.known_until:",
        "if entry.log_index < 0:",
        test="node/tests/protocol/test_synchronous_s13_log_start.py",
    ),
    _seen_in_runs("effects-stay-when-the-log-is-cut", "S7", EFFECTS, "        self.limbo.truncate(known)\n", ""),
    _mutant(
        "rolled-back-keeps-its-key",
        "S11",
        EFFECTS,
        "for one in named:",
        "for one in named[:0]:",
        test=_MASTERS + "test_what_only_a_minority_held_is_rolled_back_when_it_is_late",
    ),
    _mutant(
        "branch-by-votes",
        "S12",
        NEXT_VIEW,
        "if len(forks) > 1 and decided",
        "if len(forks) < 1 and decided",
        test="node/tests/protocol/test_synchronous_s12_branches.py",
    ),
    _mutant(
        "any-anchor-leads",
        "S12",
        "txlog/protocol/views/decided_branch.py",
        "any(number < other for other in theirs) or all(number == other for other in theirs)",
        "not theirs",
        test="node/tests/protocol/test_synchronous_s12_branches.py",
    ),
    _seen_in_runs(
        "trimmed-before-its-commit",
        "S13",
        EFFECTS,
        "return min([find_log_start(served_from, LimboSnapshot(open_there)), *(first - 1 for first in later)])",
        "return served_from",
    ),
    _mutant(
        "log-start-says-nothing",
        "S13",
        EFFECTS,
        "            [_record_of(one) for one in limbo.open.values()],\n",
        "            [],\n",
        test="node/tests/protocol/test_synchronous_s13_log_start.py",
    ),
    _mutant(
        "without-limit",
        "S15",
        UNDECIDED,
        "if counted[0] >= settings.synchronous_transactions_max or",
        "if",
        test=_MASTERS + "test_too_many_undecided_ones_are_refused",
    ),
    _mutant(
        "first-anchor-without-all",
        "S16",
        QUORATE,
        "not own.may_begin or older or not is_whole:",
        "not own.may_begin or older:",
        test=_MASTERS + "test_no_anchor_is_made_while_a_configured_master_is_out",
    ),
    _mutant(
        "older-programs-work-with-anchors",
        "S16",
        QUORATE,
        "not own.may_begin or older or not is_whole:",
        "not own.may_begin or not is_whole:",
        test=_MASTERS + "test_no_anchor_is_made_with_an_older_program",
    ),
    _mutant(
        "given-up-votes-count",
        "S4",
        QUORATE,
        "electorates = [[m for m in each if m.node not in given_up] for each in",
        "electorates = [[m for m in each if m.node] for each in",
        test=_MASTERS + "test_votes_that_are_lost_for_good_can_be_given_up",
    ),
    _mutant(
        "taken-where-one-master-has-half",
        "S3",
        UNDECIDED,
        "half = known.half_of_votes",
        "half = known.half_of_votes and None",
        test=_MASTERS + "test_it_is_refused_where_one_master_of_three_has_half_of_the_votes",
    ),
    _mutant(
        "votes-of-who-lives-are-given-up",
        "S4",
        UNDECIDED,
        "if node == views.local.node or node in views.failure_detector.reachable():",
        "if node == views.local.node:",
        test=_MASTERS + "test_votes_that_are_lost_for_good_can_be_given_up",
    ),
    _mutant(
        "commits-never-wait-for-a-write",
        "S6",
        WRITER,
        "        if self.are_awaited:\n            return 0\n",
        "        if own_held:\n            return 0\n",
        test=_MASTERS + "test_a_commit_that_no_request_awaits_goes_with_a_later_write",
    ),
    _mutant(
        "commits-wait-for-a-write-without-end",
        "S6",
        WRITER,
        "return now_ms if has_company else since_ms + DECISION_DELAY_MS",
        "return now_ms if has_company else FOREVER_MS",
        test=_MASTERS + "test_a_commit_that_no_request_awaits_goes_with_a_later_write",
    ),
    _mutant(
        "commits-go-with-the-first-write",
        "S6",
        WRITER,
        "now_ms - since_ms >= DECISION_GATHER_MS",
        "now_ms - since_ms >= 0",
        test=_MASTERS + "test_a_commit_that_no_request_awaits_goes_with_a_later_write",
    ),
    _mutant(
        "the-last-one-that-a-quorum-holds-is-passed-over",
        "S6",
        UNDECIDED,
        "held.items() if last >= seq])):\n                return seq",
        "held.items() if last >= seq])):\n                return seq - 1",
        test=_MASTERS + "test_the_last_one_that_a_quorum_holds",
    ),
    _mutant(
        "commits-wait-for-answers",
        "S6",
        SCHEDULE,
        " and not self._pushes_decisions(agreement, peer):",
        ":",
        test=_MASTERS + "test_a_commit_waits_for_no_answer_to_an_earlier_post",
    ),
    _mutant(
        "others-are-never-judged-again",
        "S6",
        WRITER,
        "are_all_judged = now_ms >= self._foreign_ms",
        "are_all_judged = now_ms == self._foreign_ms",
        test=_MASTERS + "test_another_member_commits_what_its_origin_cannot",
    ),
    _mutant(
        "answered-by-what-is-not-certain",
        "S10",
        UNDECIDED,
        "certain, anchor = not rollback and effects.is_commit_known(txid), self.quorate_anchor",
        "certain, anchor = False, self.quorate_anchor",
        test="node/tests/runtime/test_synchronous_levels.py",
    ),
)
