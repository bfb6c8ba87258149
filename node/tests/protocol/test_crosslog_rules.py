"""Transactions over several logs: what entries mean that no run of the model has, and when a master decides."""

from __future__ import annotations

import pytest

from txlog.model.crosslog_entry import DecideKey, FinishedKey, OutcomeKey, PrepareKey
from txlog.model.ids import Origin, Txid
from txlog.protocol.crosslog.decisions import UndecidedPart, find_watermark, next_outcome, recover
from txlog.protocol.crosslog.participant_fold import ParticipantFold
from txlog.protocol.crosslog.system_fold import SystemFold

FIRST = Origin("uk-1", 7)
SECOND = Origin("uk-1", 8)
GID = Txid(FIRST, 3)
LOGS = (0, 2)


def prepare(gid: Txid | None = None, logs: tuple[int, ...] = LOGS) -> PrepareKey:
    return PrepareKey(gid, logs, 180_000)


def outcome(commits: bool = True, gid: Txid = GID) -> OutcomeKey:
    return OutcomeKey(gid, commits, 9)


def test_a_part_takes_effect_at_its_first_outcome() -> None:
    fold = ParticipantFold(0)
    assert fold.apply_prepare(4, GID, prepare())
    concluded = fold.apply_outcome(6, outcome())
    assert concluded is not None
    assert (concluded.part.log_index, concluded.log_index, concluded.commits) == (4, 6, True)
    assert fold.apply_outcome(7, outcome(commits=False)) is None
    assert fold.concluded[GID].commits


def test_an_outcome_before_its_prepare_means_nothing() -> None:
    fold = ParticipantFold(2)
    assert fold.apply_outcome(3, outcome()) is None
    assert fold.apply_prepare(4, Txid(SECOND, 1), prepare(GID))
    assert GID in fold.open
    assert fold.idle_count == 1


@pytest.mark.parametrize(
    ("log", "key"),
    [(3, prepare(GID)), (2, prepare()), (0, prepare(GID))],
    ids=["another-repository", "own-behind-the-first", "another-in-the-first"],
)
def test_a_prepare_at_the_wrong_place_means_nothing(log: int, key: PrepareKey) -> None:
    fold = ParticipantFold(log)
    assert not fold.apply_prepare(4, Txid(SECOND, 1), key)
    assert (fold.open, fold.idle_count) == ({}, 1)


def test_a_log_that_was_truncated_has_its_parts_open_again_in_their_order() -> None:
    fold = ParticipantFold(0)
    for index, seq in enumerate((3, 4, 5), 1):
        assert fold.apply_prepare(index, Txid(FIRST, seq), prepare())
    fold.apply_outcome(4, outcome())
    fold.mark_final(2)
    fold.truncate(2)
    assert list(fold.open) == [Txid(FIRST, 3), Txid(FIRST, 4)]
    assert not fold.concluded
    assert fold.apply_outcome(3, outcome(commits=False)) is not None


def test_a_log_start_is_before_the_first_open_part() -> None:
    fold = ParticipantFold(0)
    assert fold.find_log_start(10) == 10
    for index, seq in ((4, 3), (6, 4)):
        fold.apply_prepare(index, Txid(FIRST, seq), prepare())
    assert fold.find_log_start(10) == 3
    fold.apply_outcome(8, outcome())
    assert fold.find_log_start(10) == 5


def test_the_first_decision_counts_and_nothing_forgotten_is_decided_again() -> None:
    system = SystemFold()
    assert system.apply_decide(1, DecideKey(GID, False, LOGS)) is not None
    assert system.apply_decide(2, DecideKey(GID, True, LOGS)) is None
    assert not system.decisions[GID].commits
    assert system.apply_finished(FinishedKey(FIRST, 3)) == [GID]
    assert system.apply_decide(4, DecideKey(GID, True, LOGS)) is None
    assert system.apply_finished(FinishedKey(FIRST, 2)) == []
    assert system.is_finished(GID)
    assert not system.is_finished(Txid(SECOND, 1))


def test_a_commit_with_a_key_that_another_has_is_an_abort() -> None:
    system, other = SystemFold(), Txid(SECOND, 1)
    found = system.apply_decide(1, DecideKey(GID, True, LOGS, "k"), key_owner=other)
    assert found is not None
    assert (found.commits, found.key_owner) == (False, other)
    own = SystemFold().apply_decide(1, DecideKey(GID, True, LOGS, "k"), key_owner=GID)
    assert own is not None
    assert own.commits


def test_what_is_forgotten_and_still_open_is_aborted() -> None:
    fold, system = ParticipantFold(2), SystemFold()
    system.apply_finished(FinishedKey(FIRST, 3))
    assert next_outcome(GID, fold, system) is None
    fold.apply_prepare(4, Txid(SECOND, 1), prepare(GID))
    assert next_outcome(GID, fold, system) == OutcomeKey(GID, False, 0)
    fold.apply_outcome(5, OutcomeKey(GID, False, 0))
    assert next_outcome(GID, fold, system) is None


@pytest.mark.parametrize(
    ("waited_ms", "prepared", "is_coordinator_down", "expected"),
    [
        (9_999, True, True, None),
        (10_000, True, False, True),
        (10_000, False, False, None),
        (9_999, False, True, None),
        (10_000, False, True, False),
        (179_999, False, False, None),
        (180_000, False, False, False),
        (180_000, True, False, True),
    ],
)
def test_when_another_master_decides(
    waited_ms: int, prepared: bool, is_coordinator_down: bool, expected: bool | None
) -> None:
    assert recover(UndecidedPart(waited_ms, 180_000, prepared, is_coordinator_down), 10_000) is expected


@pytest.mark.parametrize(
    ("settled_seq", "prepared", "decided", "forgettable", "expected"),
    [
        (0, [], [], [], 0),
        (7, [], [], [], 7),
        (7, [4], [], [], 3),
        (7, [5], [5], [], 4),
        (7, [5, 6], [5, 6], [5, 6], 7),
        (7, [], [8, 9, 11], [8, 9, 11], 9),
        (7, [5], [6, 8], [6, 8], 4),
        (2, [], [3, 4, 5], [3, 5], 3),
    ],
)
def test_how_far_decisions_are_forgotten(
    settled_seq: int, prepared: list[int], decided: list[int], forgettable: list[int], expected: int
) -> None:
    fold, system = ParticipantFold(0), SystemFold()
    for index, seq in enumerate(prepared, 1):
        fold.apply_prepare(index, Txid(FIRST, seq), prepare())
    for index, seq in enumerate(decided, 1):
        system.apply_decide(index, DecideKey(Txid(FIRST, seq), True, LOGS))
    found = find_watermark(FIRST, settled_seq, fold, system, [Txid(FIRST, seq) for seq in forgettable])
    assert found == expected
    assert find_watermark(SECOND, settled_seq, ParticipantFold(0), system, []) == settled_seq


def test_a_part_that_is_concluded_without_a_decision_here_is_not_forgotten() -> None:
    """Others have seen the decision, and its outcomes elsewhere may not be there yet."""
    fold, system = ParticipantFold(0), SystemFold()
    fold.apply_prepare(1, GID, prepare())
    fold.apply_outcome(2, outcome())
    assert find_watermark(FIRST, 7, fold, system, []) == GID.seq - 1
    system.apply_decide(9, DecideKey(GID, True, LOGS))
    assert find_watermark(FIRST, 7, fold, system, [GID]) == 7


def test_what_comes_below_the_watermark_does_not_hold_it() -> None:
    fold, system = ParticipantFold(0), SystemFold()
    system.apply_finished(FinishedKey(FIRST, 3))
    fold.apply_prepare(1, GID, prepare())
    assert find_watermark(FIRST, 7, fold, system, []) == 7
