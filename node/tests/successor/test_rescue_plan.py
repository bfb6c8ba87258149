"""What is given again, and what is not: by plain values."""

from __future__ import annotations

import random

import pytest

from txlog.client import MasterUnreachable
from txlog.client.responses import WriteResult
from txlog.model.bulk_entry import BulkReference, encode_bulk_load
from txlog.model.entry import KIND_CONFIG, KIND_QUADS, KIND_SKIP, KIND_UPDATE
from txlog.model.errors import BadInput, JournalDamaged, KeyTaken
from txlog.model.ids import Origin, Txid
from txlog.model.namespaces import NamespaceChange, encode_namespace_change
from txlog.model.restore_points import encode_restore_point
from txlog.model.synchronous_entry import KIND_DECISION, KIND_SYNCHRONOUS_QUADS
from txlog.successor.rescue import find_last_known, give_again, lacks_nothing
from txlog.successor.rescue_plan import (
    RescueCandidate,
    RescueRow,
    RescueState,
    choose_rows,
    plan_rescue,
    wanted_keys,
)

UK = Origin("uk-1", 7)


def txid(seq: int) -> Txid:
    return Txid(UK, seq)


def candidate(seq: int, key: str = "", kind: int = KIND_QUADS, fault: str = "") -> RescueCandidate:
    return RescueCandidate(txid(seq), kind, key, 9, fault)


def states(rows: list[RescueRow]) -> list[RescueState]:
    return [row.state for row in rows]


def test_each_is_judged_by_its_key_and_what_was_skipped() -> None:
    candidates = [candidate(1, "a"), candidate(2), candidate(3, "b"), candidate(4), candidate(5), candidate(1, "a")]
    used = {"b": "us-1.0000000000000009.4", f"rescue.{txid(4)}": "us-1.0000000000000009.5"}
    rows = plan_rescue(candidates, {str(txid(5))}, used)
    assert [(row.candidate.txid.seq, row.state.value, row.new) for row in rows] == [
        (1, "lacking", ""),
        (2, "lacking", ""),
        (3, "present", used["b"]),
        (4, "present", used[f"rescue.{txid(4)}"]),
        (5, "skipped", ""),
    ]
    assert wanted_keys(candidates) == {"a", "b", *(f"rescue.{txid(seq)}" for seq in (2, 4, 5))}


def test_of_one_key_the_first_counts() -> None:
    rows = plan_rescue([candidate(1, "a"), candidate(2, "a"), candidate(3)], (), {})
    assert states(rows) == [RescueState.LACKING, RescueState.LEFT, RescueState.LACKING]
    assert str(txid(1)) in rows[1].note


def test_what_cannot_be_given_as_it_is_says_why() -> None:
    candidates = [
        candidate(1, "N/2+1 1000 a", KIND_SYNCHRONOUS_QUADS),
        candidate(2, "commit uk-1", KIND_DECISION),
        candidate(3, "master", KIND_CONFIG),
        candidate(4, encode_namespace_change(NamespaceChange("a", "urn:a"), "x"), KIND_SKIP),
        candidate(5, encode_restore_point("before", "x"), KIND_SKIP),
        candidate(6, "uk-1.0000000000000007.9", KIND_SKIP),
        candidate(7, fault="unreadable: a record"),
        candidate(8, kind=77),
        candidate(9, "first \u2713"),
    ]
    rows = plan_rescue(candidates, (), {})
    assert set(states(rows)) == {RescueState.LEFT}
    words = (
        "synchronous",
        "configuration",
        "namespaces",
        "point before",
        "it skips",
        "unreadable",
        "kind 77",
        "none that a client",
    )
    for row, word in zip(rows, words, strict=True):
        assert word in row.note


def test_a_person_chooses_among_what_is_lacking() -> None:
    rows = plan_rescue([candidate(1), candidate(2), candidate(3, "b")], (), {"b": "x"})
    left = RescueState.EXCLUDED
    assert states(choose_rows(rows, {str(txid(2))}, ())) == [left, RescueState.LACKING, RescueState.PRESENT]
    assert states(choose_rows(rows, None, {str(txid(2))})) == [RescueState.LACKING, left, RescueState.PRESENT]
    for only, excluded in (({str(txid(9))}, set()), (None, {str(txid(3))})):
        with pytest.raises(BadInput, match="not among the 2 transactions"):
            choose_rows(rows, only, excluded)


def test_the_last_known_one_is_found_without_asking_for_each() -> None:
    for seed in range(100):
        draw = random.Random(seed)
        highest = {Origin("uk-1", each): draw.randrange(1, 1000) for each in range(3)}
        truth = {origin: draw.randrange(last + 1) for origin, last in highest.items()}
        asked: list[Txid] = []

        def has(one: Txid, asked: list[Txid] = asked, truth: dict[Origin, int] = truth) -> bool:
            asked.append(one)
            return one.seq <= truth[one.origin]

        assert find_last_known(highest, has) == truth
        assert len(asked) <= 30


class Held:
    """Payloads in memory. ``broken``: seqs that cannot be read."""

    def __init__(self, *broken: int, bulk: int = 0) -> None:
        self.broken = broken
        self.bulk = bulk

    def highest(self) -> dict[Origin, int]:
        return {}

    def skipped(self) -> set[str]:
        return set()

    def candidates(self, known: object) -> list[RescueCandidate]:
        return []

    def payload(self, one: Txid) -> bytes:
        if one.seq in self.broken:
            raise JournalDamaged("a record")
        if one.seq == self.bulk:
            return encode_bulk_load(BulkReference("0" * 32, "1" * 64, 12))
        return b"A <urn:s> <urn:p> <urn:%d> .\n" % one.seq


class Giver:
    """A master. ``answers``: by seq, before it takes one."""

    def __init__(self, **answers: list[Exception | str | None]) -> None:
        self.answers = answers
        self.given: list[tuple[str, str]] = []

    def give(self, txid: str, kind: int, key: str, payload: bytes, wait_s: float) -> WriteResult:
        left = self.answers.get(f"seq{txid.rpartition('.')[2]}", [])
        if left:
            found = left.pop(0)
            if isinstance(found, Exception):
                raise found
            return WriteResult("new-1.0000000000000001.9", None, found)
        self.given.append((txid, key))
        return WriteResult(f"new-1.0000000000000001.{len(self.given)}", None, "synced")


def give(source: Held, *givers: Giver, count: int = 3, kind: int = KIND_QUADS) -> list[RescueRow]:
    rows = plan_rescue([candidate(seq, kind=kind) for seq in range(1, count + 1)], (), {})
    return give_again(rows, source, givers, lambda done, of: None, give_s=0.5)


def test_they_are_given_in_order_and_the_next_master_is_tried() -> None:
    gone = Giver(seq2=[MasterUnreachable("http://a", "gone", sent=True)], seq3=["accepted"])
    rows = give(Held(), gone)
    assert states(rows) == [RescueState.GIVEN] * 3
    assert [name.rpartition(".")[2] for name, _ in gone.given] == ["1", "2", "3"]
    assert lacks_nothing(rows)


def test_behind_one_that_is_not_known_nothing_is_given() -> None:
    """It would be overtaken, and what depends on it would come first."""
    slow = Giver(seq2=["accepted"] * 1000)
    rows = give(Held(), slow)
    assert states(rows) == [RescueState.GIVEN, RescueState.UNKNOWN, RescueState.LACKING]
    assert not lacks_nothing(rows)


def test_what_is_refused_or_unreadable_is_named_and_the_rest_goes_on() -> None:
    rows = give(Held(1), Giver(seq2=[KeyTaken("another one: uk-1.0000000000000007.1")]))
    assert states(rows) == [RescueState.LEFT, RescueState.REFUSED, RescueState.GIVEN]
    assert "KeyTaken" in rows[1].note
    assert not lacks_nothing(rows)


def test_a_bulk_load_is_left() -> None:
    giver = Giver()
    rows = give(Held(bulk=2), giver, kind=KIND_UPDATE)
    assert states(rows) == [RescueState.GIVEN, RescueState.LEFT, RescueState.GIVEN]
    assert "12 quads" in rows[1].note
    assert len(giver.given) == 2
