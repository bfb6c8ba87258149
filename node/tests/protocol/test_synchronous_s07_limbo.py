"""S7: a synchronous transaction takes effect at the first decision that names it; the fold of the log says where."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from txlog.model.errors import BadInput
from txlog.model.ids import Origin, Txid
from txlog.model.quorum import MAJORITY
from txlog.model.synchronous_entry import (
    KIND_DECISION,
    KIND_SYNCHRONOUS_QUADS,
    DecisionKind,
    SynchronousKey,
    decide,
    encode_decision,
    encode_synchronous_key,
)
from txlog.protocol.log.limbo import Effect, Limbo, LimboEntry, LimboSnapshot, OpenSynchronous, find_log_start

ORIGIN = Origin("uk-1", 7)
WRITER = Origin("uk-2", 8)
KEY = SynchronousKey(MAJORITY, 30_000, "k")


class Names(NamedTuple):
    """A decision of a made log: ``stamp`` is its own."""

    verdict: DecisionKind
    seqs: frozenset[int]


Made = list[int | Names]
"""A log: the seq of a synchronous transaction, or a decision."""


patient = settings(suppress_health_check=[HealthCheck.too_slow])
"""How fast examples are made says more about the machine than about the code."""


def txid(seq: int) -> Txid:
    return Txid(ORIGIN, seq)


def commit(*seqs: int) -> Names:
    return Names(DecisionKind.COMMIT, frozenset(seqs))


def rollback(*seqs: int) -> Names:
    return Names(DecisionKind.ROLLBACK, frozenset(seqs))


def entries_of(made: Made) -> list[LimboEntry]:
    """Stamps: 100 less the seq for a transaction, so that a later one may have a lesser one; the index for a
    decision."""
    found = []
    for index, one in enumerate(made, 1):
        if isinstance(one, int):
            key = encode_synchronous_key(KEY)
            found.append(LimboEntry(index, txid(one), KIND_SYNCHRONOUS_QUADS, key, 100 - one, bytes([one])))
        else:
            key = encode_decision(decide(one.verdict, map(txid, one.seqs)))
            found.append(LimboEntry(index, Txid(WRITER, index), KIND_DECISION, key, index, b""))
    return found


def fold(made: Made, limbo: Limbo | None = None, after: int = 0) -> tuple[Limbo, dict[int, list[Effect]]]:
    """The fold of the entries after an index, and the effects by index. The log is there before it is folded."""
    entries = entries_of(made)
    places = {entry.txid: entry.log_index for entry in entries}
    found = limbo or Limbo()
    effects = {}
    for entry in entries[after:]:
        if several := found.apply(entry, lambda name: places.get(name, 0)):
            effects[entry.log_index] = several
    return found, effects


def seqs_by_index(effects: dict[int, list[Effect]]) -> dict[int, list[int]]:
    return {index: [one.transaction.txid.seq for one in several] for index, several in effects.items()}


def state_of(limbo: Limbo) -> tuple[object, ...]:
    return (
        list(limbo.open.values()),
        limbo.early,
        limbo.rolled_back,
        limbo.idle_names,
        limbo.early_commits,
    )


def test_it_is_open_and_without_effect_until_a_decision_names_it() -> None:
    limbo, effects = fold([1, 2])
    assert not effects
    assert list(limbo.open) == [txid(1), txid(2)]
    assert limbo.open[txid(1)] == OpenSynchronous(1, txid(1), KIND_SYNCHRONOUS_QUADS, KEY, 99, bytes([1]))


def test_one_commit_is_of_many_in_the_order_of_the_log() -> None:
    limbo, effects = fold([2, 3, 1, commit(1, 2)])
    assert seqs_by_index(effects) == {4: [2, 1]}
    assert list(limbo.open) == [txid(3)]


def test_the_first_decision_counts() -> None:
    limbo, effects = fold([1, 2, rollback(1), commit(1, 2), rollback(2)])
    assert seqs_by_index(effects) == {4: [2]}
    assert limbo.rolled_back == {txid(1): 3}
    assert limbo.idle_names == {4: {txid(1)}, 5: {txid(2)}}


def test_a_decision_that_precedes_it_counts_at_its_own_place() -> None:
    limbo, effects = fold([commit(1), rollback(1, 2), 1, 2])
    assert seqs_by_index(effects) == {3: [1]}
    assert effects[3][0].is_early
    assert limbo.rolled_back == {txid(2): 4}
    assert not limbo.open
    assert not limbo.early


def test_the_age_of_its_key_counts_from_the_later_stamp_of_it_and_its_commit() -> None:
    _, effects = fold([1, commit(1), 99, commit(99), commit(98), 98])
    assert [effects[index][0].stamp for index in (2, 4, 6)] == [99, 4, 5]


def test_a_decision_about_an_earlier_transaction_of_the_log_foresees_nothing() -> None:
    limbo, _ = fold([1, commit(1), commit(1)])
    assert not limbo.early


def test_keys_that_no_master_makes_change_nothing() -> None:
    limbo, _ = fold([1])
    before = state_of(limbo)
    for kind, key in ((KIND_DECISION, "commit"), (KIND_SYNCHRONOUS_QUADS, "all")):
        with pytest.raises(BadInput):
            limbo.apply(LimboEntry(2, txid(2), kind, key, 1, b""), lambda _: 0)
    assert state_of(limbo) == before


def test_what_is_final_is_never_truncated() -> None:
    limbo, _ = fold([1, commit(1)])
    limbo.mark_final(2)
    with pytest.raises(AssertionError):
        limbo.truncate(1)


def test_the_log_begins_before_what_is_open_where_it_serves_from() -> None:
    limbo, _ = fold([1, 2, commit(1), 3])
    assert find_log_start(4, limbo.snapshot()) == 1
    assert find_log_start(4, LimboSnapshot()) == 4


@st.composite
def logs(draw: st.DrawFn) -> Made:
    """Some of eight transactions, each once, and decisions about any of them, in any order."""
    seqs = draw(st.lists(st.integers(1, 8), unique=True))
    names = st.builds(Names, st.sampled_from(list(DecisionKind)), st.frozensets(st.integers(1, 8), min_size=1))
    decisions = draw(st.lists(names, max_size=6))
    return draw(st.permutations([*seqs, *decisions]))


def expected_of(made: Made) -> tuple[dict[int, list[int]], set[int], set[int]]:
    """By the sentence of the rule, without a state: effects by index, what is rolled back, what is open."""
    places = {one: index for index, one in enumerate(made, 1) if isinstance(one, int)}
    effects: dict[int, list[int]] = {}
    rolled_back, still_open = set(), set()
    for seq in sorted(places, key=places.__getitem__):
        first = next(
            ((index, one) for index, one in enumerate(made, 1) if isinstance(one, Names) and seq in one.seqs), None
        )
        if first is None:
            still_open.add(seq)
        elif first[1].verdict is DecisionKind.ROLLBACK:
            rolled_back.add(seq)
        else:
            effects.setdefault(max(first[0], places[seq]), []).append(seq)
    return dict(sorted(effects.items())), rolled_back, still_open


@patient
@given(logs())
def test_the_fold_says_what_the_rule_says(made: Made) -> None:
    limbo, effects = fold(made)
    by_index, rolled_back, still_open = expected_of(made)
    assert seqs_by_index(effects) == by_index
    assert {name.seq for name in limbo.rolled_back} == rolled_back
    assert {name.seq for name in limbo.open} == still_open
    assert list(limbo.open.values()) == sorted(limbo.open.values())


@patient
@given(logs())
def test_a_page_names_the_same_effects_without_folding_again(made: Made) -> None:
    limbo, effects = fold(made)
    places = {entry.txid: entry.log_index for entry in entries_of(made)}
    shown: dict[int, list[int]] = {}
    for index, one in enumerate(made, 1):
        if isinstance(one, Names):
            decision = decide(one.verdict, map(txid, one.seqs))
            committed = limbo.committed_at(index, decision, lambda name: places.get(name, 0))
            if committed:
                shown[index] = [name.seq for name in committed]
        elif index in limbo.early_commits:
            shown[index] = [one]
    assert shown == seqs_by_index(effects)


@patient
@given(logs(), st.data())
def test_a_log_that_was_truncated_and_grew_again_was_never_longer(made: Made, data: st.DataObject) -> None:
    limbo, _ = fold(made)
    final = data.draw(st.integers(0, len(made)))
    cut = data.draw(st.integers(final, len(made)))
    limbo.mark_final(final)
    limbo.truncate(cut)
    never_longer, _ = fold(made[:cut])
    assert state_of(limbo) == state_of(never_longer)
    other = [*made[:cut], *reversed(made[cut:])]
    again, effects = fold(other, limbo, cut)
    whole, expected = fold(other)
    assert state_of(again) == state_of(whole)
    assert effects == {index: several for index, several in expected.items() if index > cut}


@patient
@given(logs(), st.data())
def test_a_log_that_begins_later_has_the_same_effects_and_payloads(made: Made, data: st.DataObject) -> None:
    served_from = data.draw(st.integers(0, len(made)))
    start = find_log_start(served_from, fold(made[:served_from])[0].snapshot())
    trimmed = Limbo.restored(fold(made[:start])[0].snapshot(), start)
    again, effects = fold(made, trimmed, start)
    whole, expected = fold(made)
    assert effects == {index: several for index, several in expected.items() if index > start}
    whole.trim(start)
    assert state_of(again) == state_of(whole)
    for index, several in effects.items():
        assert index <= served_from or all(one.transaction.log_index > start for one in several)
