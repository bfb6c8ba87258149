"""Safeguards of synchronous transactions in the administration and in clients, one each taken out. Imports nothing of
``txlog``. A test of the room kills each."""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

ADMIN = "txlog/server/admin/synchronous_view.py"
LOSS = "txlog/server/admin/quorum_loss.py"
RETRYING = "txlog/client/retrying_write.py"
EVALUATED = "txlog/server/frontdoor/evaluated_updates.py"
DOOR = "txlog/server/frontdoor/synchronous_door.py"
_REPEATS = "node/tests/server/test_synchronous_repeats.py"
_WRITES = "node/tests/server/test_synchronous_writes.py"
_VOTES = "node/tests/server/test_lost_votes.py"
_LOSS = "node/tests/server/test_quorum_loss.py"
_CLIENT = "node/tests/client/test_writes_go_on.py"


def _mutant(name: str, rule: str, file: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(f"synchronous-{name}", rule, False, (SourceEdit(file, old, new),), test=test)


SYNCHRONOUS_ADMIN_MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "timeout-of-a-line-drops-the-quorum",
        "S1",
        "txlog/server/frontdoor/ndjson_writes.py",
        "        return refine_request(default, asked)\n",
        "        return asked\n",
        f"{_WRITES}::test_json_lines",
    ),
    _mutant(
        "commit-drops-the-quorum-of-its-beginning",
        "S1",
        "txlog/server/frontdoor/rdf4j_transactions.py",
        "synchronous=refine_request(begun, asked.synchronous)",
        "synchronous=asked.synchronous if asked.synchronous is not NO_REQUEST else begun",
        f"{_WRITES}::test_a_transaction_of_rdf4j",
    ),
    _mutant(
        "repeat-of-a-pending-one-was-not-logged",
        "S10",
        DOOR,
        "        return answer.reason in _NOTHING_LOGGED\n",
        "        return False\n",
        f"{_REPEATS}::test_a_repeat_of_what_is_pending_is_not_answered_that_nothing_was_logged",
    ),
    _mutant(
        "another-body-is-answered-as-a-repeat",
        "S10",
        DOOR,
        "isinstance(answer, Unavailable) and one.content.startswith(first.content):\n",
        "isinstance(answer, Unavailable):\n",
        f"{_REPEATS}::test_a_body_whose_hash_begins_alike_is_told_from_the_first",
    ),
    _mutant(
        "beginning-of-a-hash-is-a-body-without-a-quorum",
        "S10",
        DOOR,
        "    if item is None and isinstance(answer, Unavailable) and one",
        "    if isinstance(answer, Unavailable) and one",
        f"{_REPEATS}::test_a_body_whose_hash_begins_alike_is_told_from_the_first",
    ),
    _mutant(
        "repeat-asks-for-the-very-terms-of-the-first",
        "S1",
        DOOR,
        "not implies_quorum(terms.quorum, request.quorum):",
        "terms.quorum != request.quorum:",
        f"{_REPEATS}::test_a_repeat_that_asks_for_less_is_answered_about_the_first",
    ),
    _mutant(
        "declined-repeat-takes-another-key",
        "S1",
        DOOR,
        "    if request == NO_REQUEST or request.declined:\n",
        "    if request.declined:\n        return False\n    if request == NO_REQUEST:\n",
        f"{_REPEATS}::test_a_repeat_that_asks_for_less_is_answered_about_the_first",
    ),
    _mutant(
        "repeated-line-waits-for-less-than-its-quorum",
        "S10",
        "txlog/server/frontdoor/ndjson_writes.py",
        "                    level = batch.synchronous_level\n",
        "                    pass\n",
        f"{_REPEATS}::test_a_line_that_repeats_a_synchronous_transaction_waits_for_its_quorum",
    ),
    _mutant(
        "refused-commit-forgets-the-one-before",
        "S10",
        "txlog/server/frontdoor/rdf4j_transactions.py",
        "            one.committing = before  #",
        "            one.committing = False  #",
        f"{_REPEATS}::test_a_commit_that_is_pending_is_never_answered_as_rolled_back",
    ),
    _mutant(
        "wrong-commit-counts-as-handed-over",
        "S10",
        "txlog/server/frontdoor/rdf4j_transactions.py",
        "        except (BadInput, Refused):\n            one.committing",
        "        except Refused:\n            one.committing",
        f"{_REPEATS}::test_a_commit_that_is_refused_as_wrong_may_be_rolled_back",
    ),
    _mutant(
        "namespaces-of-a-refused-transaction",
        "S2",
        "txlog/server/frontdoor/write_handler.py",
        "            if before:\n",
        "            if False:\n",
        f"{_REPEATS}::test_namespaces_do_not_go_with_a_synchronous_transaction",
    ),
    _mutant(
        "rolled-back-evaluated-update-is-unknown",
        "S10",
        "txlog/server/frontdoor/write_handler.py",
        "        if txid is not None and self._is_rolled_back(txid):\n",
        "        if False:\n",
        f"{_WRITES}::test_an_update_that_is_evaluated_once_is_answered_as_rolled_back",
    ),
    _mutant(
        "decision-is-skipped-as-a-whole",
        "S7",
        "txlog/server/admin/skip_transaction.py",
        "        self._refuse_decision(txid)\n",
        "",
        f"{_WRITES}::test_a_decision_is_not_skipped",
    ),
    _mutant(
        "recovery-that-is-passed-over-is-accepted",
        "S14",
        "txlog/server/admin/settings.py",
        'if wanted == "None" and now is not None and now.graphs:',
        "if False:",
        "node/tests/server/test_rules_of_the_cluster.py::test_a_split_recovery_that_would_be_passed_over_is_refused",
    ),
    _mutant(
        "votes-given-up-without-a-majority-of-the-rest",
        "S4",
        ADMIN,
        "        if not meets_needs(needs, rest, here):\n",
        "        if False:\n",
        _VOTES,
    ),
    _mutant(
        "order-about-votes-is-not-logged",
        "S4",
        ADMIN,
        '        site.log.info("VotesGivenUp", view=view, without=without)\n',
        "",
        _VOTES,
    ),
    _mutant(
        "removal-takes-the-quorum",
        "S14",
        "txlog/server/admin/configuration.py",
        "        self._keep_quorum(wanted)\n",
        "",
        _LOSS,
    ),
    _mutant(
        "masters-that-leave-keep-their-votes",
        "S14",
        LOSS,
        "stay = {master.node for master in wanted.masters if master.role != LEAVING}",
        "stay = {master.node for master in wanted.masters}",
        _LOSS,
    ),
    _mutant(
        "masters-that-are-out-count-after-a-removal",
        "S14",
        LOSS,
        "[node for node in members if node in stay]",
        "list(stay)",
        _LOSS,
    ),
    _mutant(
        "evaluated-update-does-not-see-its-commit",
        "S7",
        EVALUATED,
        "                await copy.apply_operations(_operations(effects[:at]), copy.position)\n",
        "                pass\n",
        f"{_WRITES}::test_an_update_that_is_evaluated_once_behind_another_one_of_its_commit",
    ),
    _mutant(
        "lag-is-not-counted",
        "S6",
        "txlog/protocol/log/synchronous_effects.py",
        "        self.commits.add(stamp_ms(effect.stamp) - stamp_ms(one.stamp))\n",
        "",
        f"{_WRITES}::test_metrics_of_decisions",
    ),
    _mutant(
        "client-takes-pending-for-done",
        "S10",
        RETRYING,
        "        if written.synchronous == PENDING and self._durability is not Durability.ACCEPTED:\n",
        "        if False:\n",
        _CLIENT,
    ),
    _mutant(
        "client-takes-one-rollback-for-all-tries",
        "S11",
        RETRYING,
        "            if not self.outcome_unknown:\n                raise\n            # Another",
        "            if True:\n                raise\n            # Another",
        _CLIENT,
    ),
)
