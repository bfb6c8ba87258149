"""S10: what a client hears of a synchronous transaction, and when."""

from __future__ import annotations

import itertools

import pytest

from txlog.model.anchor import Anchor
from txlog.model.configuration import Master
from txlog.model.durability import Durability
from txlog.model.ids import Origin, Txid
from txlog.model.quorum import ALL, MAJORITY
from txlog.model.synchronous_entry import join_spans
from txlog.protocol.views.decisions import Progress, SynchronousAnswer, UndecidedTransaction, find_answer, judge

PENDING = Progress(certain=False, commit_index=0, rollback_index=0, stable=5, applied=5, quorate=True)


def answers(progress: Progress) -> dict[Durability, SynchronousAnswer]:
    return {level: find_answer(level, progress) for level in Durability}


def test_what_a_quorum_holds_is_committed_for_who_asked_for_a_quorum_and_pending_for_others() -> None:
    found = answers(PENDING._replace(certain=True))
    assert found[Durability.QUORUM] is SynchronousAnswer.COMMITTED
    assert found[Durability.SYNCED] is found[Durability.APPLIED] is SynchronousAnswer.PENDING


@pytest.mark.parametrize("level", [Durability.SYNCED, Durability.APPLIED, Durability.APPLIED_ALL])
def test_a_commit_that_is_stable_in_a_view_that_is_not_quorate_is_pending(level: Durability) -> None:
    commit = PENDING._replace(certain=True, commit_index=4)
    assert find_answer(level, commit) is SynchronousAnswer.COMMITTED
    assert find_answer(level, commit._replace(quorate=False)) is SynchronousAnswer.PENDING
    assert find_answer(level, commit._replace(stable=3)) is SynchronousAnswer.PENDING


def test_applied_waits_for_the_commit_to_be_executed() -> None:
    assert find_answer(Durability.APPLIED, PENDING._replace(commit_index=4, applied=3)) is SynchronousAnswer.PENDING


def test_rolled_back_is_answered_once_the_rollback_is_stable() -> None:
    rollback = PENDING._replace(rollback_index=5)
    assert set(answers(rollback).values()) == {SynchronousAnswer.ROLLED_BACK}
    assert set(answers(rollback._replace(stable=4)).values()) == {SynchronousAnswer.PENDING}


def test_a_transaction_with_a_commit_is_never_answered_rolled_back() -> None:
    for stable, applied, quorate in itertools.product(range(6), range(6), (True, False)):
        found = answers(Progress(True, 4, 0, stable, applied, quorate))
        assert SynchronousAnswer.ROLLED_BACK not in found.values()


def test_the_quorum_of_each_is_counted_in_the_electorate_of_the_view() -> None:
    names = [Txid(Origin("uk-1", 7), seq) for seq in (1, 2, 3)]
    electorate = [Master(node, "dc", 1) for node in ("a", "b", "c")]
    anchor = Anchor((3, 0, "a"), [("a", 1), ("b", 1), ("c", 1)], electorate, doomed=join_spans([names[2]]))
    undecided = [
        UndecidedTransaction(names[0], MAJORITY),
        UndecidedTransaction(names[1], ALL),
        UndecidedTransaction(names[2], MAJORITY),
    ]

    found = judge(undecided, anchor, lambda _: frozenset("abd"), quorate=True)
    assert (found.certain, found.doomed) == ([names[0]], [names[2]])
    found = judge(undecided, anchor, lambda _: frozenset("ade"), quorate=True)
    assert (found.certain, found.doomed) == ([], [names[2]])
    assert judge(undecided, anchor, lambda _: frozenset("abc"), quorate=False) == ([], [])
