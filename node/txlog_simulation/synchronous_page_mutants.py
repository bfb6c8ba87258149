"""Safeguards of synchronous transactions outside of the protocol, one each taken out: pages, workers, the front door,
answers. Imports nothing of ``txlog``. A test of the room kills each."""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

PAGES = "txlog/server/feed/synchronous_pages.py"
DOOR = "txlog/server/frontdoor/synchronous_door.py"
REPLIES = "txlog/server/frontdoor/synchronous_answers.py"
_PAGES = "node/tests/server/test_synchronous_pages.py"
_ANSWERS = "node/tests/server/test_synchronous_answers.py"
_RULES = "node/tests/config/test_graph_rules.py"


def _mutant(name: str, rule: str, file: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(f"synchronous-{name}", rule, False, (SourceEdit(file, old, new),), test=test)


SYNCHRONOUS_PAGE_MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "executed-at-its-own-place",
        "S7",
        PAGES,
        "if self._effects.takes_effect_at_own_place(entry.index) else []",
        "",
        _PAGES,
    ),
    _mutant(
        "skipped-one-takes-effect", "S7", PAGES, "        if self._is_skipped(txid):\n", "        if False:\n", _PAGES
    ),
    _mutant(
        "skip-inside-a-commit-is-forgotten",
        "S7",
        "txlog/model/entry_effects.py",
        "return any(effect.kind == KIND_SKIP for effect in decode_effects(entry.payload))",
        "return False",
        _PAGES,
    ),
    _mutant(
        "last-operation-is-refused",
        "30",
        "txlog/apply/entry_operations.py",
        "            refused, refusal = middle, answer\n",
        "            accepted = middle\n",
        "node/tests/apply/test_several_effects.py::test_the_first_refused_operation_is_found_in_few_trials",
    ),
    _mutant(
        "batch-loads-the-quads-of-a-commit-with-updates",
        "S7",
        "txlog/pipeline/batch/log_range_reader.py",
        "if any(effect.kind == KIND_UPDATE for effect in effects):",
        "if entry.kind == KIND_UPDATE:",
        "node/tests/pipeline/test_batch_catching_up.py::test_transactions_of_one_commit",
    ),
    _mutant(
        "pending-is-success-to-a-plain-client",
        "S10",
        REPLIES,
        "(SynchronousAnswer.PENDING, False): (504, UNDECIDED),",
        '(SynchronousAnswer.PENDING, False): (202, ""),',
        _ANSWERS,
    ),
    _mutant(
        "accepted-is-done",
        "S10",
        REPLIES,
        "if level is Durability.ACCEPTED and known is SynchronousAnswer.COMMITTED:",
        "if level is None and known is SynchronousAnswer.COMMITTED:",
        _ANSWERS,
    ),
    _mutant(
        "default-of-accepted-waits-for-nothing",
        "S10",
        DOOR,
        "if asked.level is Durability.ACCEPTED and not asked.names_level:",
        "if asked.level is None:",
        _ANSWERS,
    ),
    _mutant("rules-of-other-graphs", "S1", DOOR, "if rules else NO_GRAPH", "if not rules else NO_GRAPH", _ANSWERS),
    _mutant(
        "a-rejoin-decides-what-was-decided-before",
        "S12",
        "txlog/server/admin/rejoin_decisions.py",
        " if txid not in named][:NAMED_MAX]",
        "][:NAMED_MAX]",
        "node/tests/server/test_rejoin_decisions.py::test_what_a_decision_in_the_queue_names_is_decided",
    ),
    _mutant(
        "a-patch-commits-what-is-skipped",
        "S7",
        "txlog/wire/change_feed.py",
        '("skip" if each.kind == "skip" else "commits", each.txid)',
        '("commits", each.txid)',
        "node/tests/wire/test_feed.py::test_what_is_skipped_inside_a_commit_is_no_part_of_the_patch",
    ),
)
