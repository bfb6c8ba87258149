"""Synchronous transactions and decisions in pages: what takes effect at each index, in a store that follows them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "workers"))
sys.path.insert(0, str(Path(__file__).parents[1] / "apply"))

from log_in_memory import MemoryLog
from oxigraph_process import ADAPTER, OxigraphProcess

from txlog.apply import WorkerState, apply_up_to
from txlog.model.entry import KIND_QUADS, KIND_UPDATE, LogEntry, Position, RunItem
from txlog.model.entry_effects import (
    NOOP_ROLLED_BACK,
    NOOP_SYNCHRONOUS,
    EntryEffect,
    decode_effects,
    find_effects,
    skips_effect,
)
from txlog.model.errors import BadInput
from txlog.model.ids import Origin, Txid
from txlog.model.quorum import MAJORITY
from txlog.model.synchronous_entry import (
    KIND_DECISION,
    KIND_SYNCHRONOUS_QUADS,
    KIND_SYNCHRONOUS_UPDATE,
    DecisionKind,
    SynchronousKey,
    decide,
    decode_decision,
    encode_decision,
    encode_synchronous_key,
)
from txlog.model.view import NO_VIEW
from txlog.server.feed.synchronous_pages import SynchronousEntries
from txlog.wire.log_page import LogPage, PageEntry, decode_page, encode_page, page_to_json

ORIGIN = Origin("uk-1", 7)
KEY = encode_synchronous_key(SynchronousKey(MAJORITY, 30_000, "once"))


class WrittenLog:
    """Entries of one origin, whose seqs are their indexes, and where they take effect."""

    def __init__(self) -> None:
        self.items: list[RunItem] = []
        self.early: set[int] = set()
        self.rolled_back_early: set[int] = set()
        self.repeats: set[Txid] = set()
        self.skipped: set[Txid] = set()

    def add(self, kind: int, payload: bytes, key: str = "") -> Txid:
        self.items.append(RunItem(len(self.items) << 16, kind, key, payload, 5))
        return Txid(ORIGIN, len(self.items))

    def commit(self, *names: Txid) -> Txid:
        return self.add(KIND_DECISION, b"", encode_decision(decide(DecisionKind.COMMIT, names)))

    def takes_effect_at_own_place(self, index: int) -> bool:
        return index in self.early

    def is_rolled_back_before(self, index: int, txid: Txid) -> bool:
        return index in self.rolled_back_early

    def effects_at(self, index: int, key: str) -> Sequence[Txid]:
        decision = decode_decision(key)
        if decision.verdict is DecisionKind.ROLLBACK:
            return ()
        return [name for name in decision.names() if name not in self.repeats and name.seq not in self.early]

    def entries(self, *, keys: bool = False, names_only: bool = False) -> list[PageEntry]:
        served = SynchronousEntries(self, lambda txid: self.items[txid.seq - 1], self.skipped.__contains__)
        found = []
        for index, item in enumerate(self.items, 1):
            noop = "skip" if Txid(ORIGIN, index) in self.skipped else ""
            fields = (item.stamp, item.kind, item.payload, noop, item.key, item.first_stamp)
            entry = PageEntry(index, bytes([index]) * 16, *ORIGIN, index, *fields)
            is_ordinary = item.kind in (KIND_UPDATE, KIND_QUADS)
            serve = served.serve_names if names_only else partial(served.serve, keys=keys)
            found.append(entry if is_ordinary else serve(entry))
        return found

    def page(self) -> list[LogEntry]:
        """As a reader of the wire gets them."""
        entries = [msgspec.structs.replace(e, key="", first_stamp=0) for e in self.entries()]
        sent = LogPage(Position(1, 0, b"h" * 16), entries, Position(1, len(entries), b"s" * 16))
        return decode_page("uk-1", encode_page(sent)).log_entries()


def quad(name: str) -> bytes:
    return b"A <urn:%b> <urn:p> <urn:o> .\n" % name.encode()


@pytest.fixture
def log() -> WrittenLog:
    return WrittenLog()


def test_each_takes_effect_at_its_commit_and_nowhere_else(log: WrittenLog) -> None:
    one = log.add(KIND_SYNCHRONOUS_QUADS, quad("one"), KEY)
    log.add(KIND_QUADS, quad("ordinary"))
    two = log.add(KIND_SYNCHRONOUS_UPDATE, b"CLEAR DEFAULT", KEY)
    log.commit(one)
    log.commit(two, log.add(KIND_SYNCHRONOUS_QUADS, quad("three"), KEY))
    found = log.page()
    assert [(e.kind, e.noop) for e in found[:3]] == [
        (KIND_SYNCHRONOUS_QUADS, NOOP_SYNCHRONOUS),
        (KIND_QUADS, ""),
        (KIND_SYNCHRONOUS_UPDATE, NOOP_SYNCHRONOUS),
    ]
    assert [e.payload for e in found if e.noop] == [b"", b"", b""], "the payload travels once"
    alone, several = found[3], found[5]
    assert (alone.txid, alone.kind, alone.payload, alone.noop) == (one, KIND_QUADS, quad("one"), "")
    assert (several.txid, several.kind) == (Txid(ORIGIN, 6), KIND_DECISION)
    assert find_effects(several) == [
        EntryEffect(*ORIGIN, 3, KIND_UPDATE, b"CLEAR DEFAULT"),
        EntryEffect(*ORIGIN, 5, KIND_QUADS, quad("three")),
    ]


def test_a_rollback_a_repeated_key_and_a_skip_have_no_effect(log: WrittenLog) -> None:
    names = [log.add(KIND_SYNCHRONOUS_QUADS, quad(name), KEY) for name in "abcd"]
    log.add(KIND_DECISION, b"", encode_decision(decide(DecisionKind.ROLLBACK, names[:1])))
    log.repeats, log.skipped = {names[1]}, {names[2]}
    log.commit(*names[1:])
    rolled_back, commit = log.page()[4:]
    assert (rolled_back.noop, find_effects(rolled_back)) == (NOOP_SYNCHRONOUS, [])
    assert [effect.txid for effect in find_effects(commit)] == names[3:]
    assert (skips_effect(rolled_back), skips_effect(commit)) == (False, True)


def test_a_commit_of_which_all_is_skipped(log: WrittenLog) -> None:
    names = [log.add(KIND_SYNCHRONOUS_QUADS, quad(name), KEY) for name in "ab"]
    log.skipped = set(names)
    log.commit(*names)
    commit = log.page()[2]
    assert (commit.noop, find_effects(commit), skips_effect(commit)) == ("skip", [], True)


def test_a_skip_of_the_decision_itself_leaves_all_of_it_out(log: WrittenLog) -> None:
    log.skipped = {log.commit(log.add(KIND_SYNCHRONOUS_QUADS, quad("a"), KEY))}
    assert [e.noop for e in log.page()] == [NOOP_SYNCHRONOUS, "skip"]


def test_a_commit_that_precedes_its_transaction(log: WrittenLog) -> None:
    log.commit(Txid(ORIGIN, 2))
    log.add(KIND_SYNCHRONOUS_QUADS, quad("late"), KEY)
    log.early = {2}
    commit, own = log.page()
    assert commit.noop == NOOP_SYNCHRONOUS
    assert (own.kind, own.payload, own.noop) == (KIND_QUADS, quad("late"), "")


def test_a_page_with_keys_has_the_entries_of_the_log_and_their_effects(log: WrittenLog) -> None:
    one = log.add(KIND_SYNCHRONOUS_QUADS, quad("one"), KEY)
    log.commit(one)
    found = log.entries(keys=True)
    for entry, item in zip(found, log.items, strict=True):
        assert (entry.kind, entry.key, entry.payload) == (item.kind, item.key, item.payload)
    assert [entry.effects for entry in found] == [[], [EntryEffect(*ORIGIN, 1, KIND_QUADS, quad("one"))]]
    sent = LogPage(Position(1, 0, b"h" * 16), found, Position(1, 2, b"s" * 16), view=(1, 1, "uk-1"))
    assert decode_page("uk-1", encode_page(sent)) == sent
    shown = page_to_json(sent)["entries"]
    assert isinstance(shown, list)
    assert shown[1]["kind"] == "decision"
    assert shown[1]["effects"] == [{"txid": str(one), "kind": "quads", "payload": quad("one").decode()}]


def test_a_page_for_an_archive_has_the_names_of_what_takes_effect(log: WrittenLog) -> None:
    """Also of what is skipped: an archive has the skip as an entry, which may have left the log later."""
    names = [log.add(KIND_SYNCHRONOUS_QUADS, quad(name), KEY) for name in "abc"]
    log.repeats, log.skipped = {names[1]}, {names[0], Txid(ORIGIN, 4)}
    log.commit(*names)
    log.add(KIND_SYNCHRONOUS_QUADS, quad("early"), KEY)
    log.early = {5}
    found = log.entries(names_only=True)
    assert [[effect.txid for effect in entry.effects] for entry in found] == [
        [],
        [],
        [],
        [names[0], names[2]],
        [Txid(ORIGIN, 5)],
    ]
    assert {effect.payload for entry in found for effect in entry.effects} == {b""}
    assert [(entry.noop, entry.payload) for entry in found[:3]] == [
        ("skip", quad("a")),
        (NOOP_SYNCHRONOUS, quad("b")),
        (NOOP_SYNCHRONOUS, quad("c")),
    ]


def test_what_is_rolled_back_before_it_is_there_says_so(log: WrittenLog) -> None:
    log.add(KIND_DECISION, b"", encode_decision(decide(DecisionKind.ROLLBACK, [Txid(ORIGIN, 2)])))
    log.add(KIND_SYNCHRONOUS_QUADS, quad("a"), KEY)
    log.rolled_back_early = {2}
    for found in (log.entries(keys=True), log.entries(names_only=True)):
        assert [entry.noop for entry in found] == [NOOP_SYNCHRONOUS, NOOP_ROLLED_BACK]
    assert [entry.noop for entry in log.page()] == [NOOP_SYNCHRONOUS, NOOP_SYNCHRONOUS]


def test_several_effects_are_shown_to_people(log: WrittenLog) -> None:
    log.commit(*[log.add(KIND_SYNCHRONOUS_QUADS, quad(name), KEY) for name in "ab"])
    sent = LogPage(Position(1, 0, b"h" * 16), log.entries(), Position(1, 3, b"s" * 16), view=NO_VIEW)
    shown = page_to_json(sent)["entries"]
    assert isinstance(shown, list)
    assert "effects" not in shown[0]
    assert (shown[2]["payload"], len(shown[2]["effects"])) == ("", 2)


@pytest.mark.parametrize("payload", [b"\xc1", b"\x91\x01", msgspec.msgpack.encode([["uk-1", 7, 1, 4, b""]])])
def test_bytes_that_are_no_effects_are_refused(payload: bytes) -> None:
    with pytest.raises(BadInput, match="not the effects of a decision"):
        decode_effects(payload)


def test_a_store_that_follows_such_pages(log: WrittenLog, tmp_path: Path) -> None:
    names = [log.add(KIND_SYNCHRONOUS_QUADS, quad(name), KEY) for name in "abc"]
    log.add(KIND_QUADS, quad("ordinary"))
    log.commit(names[2], names[0])
    log.add(KIND_DECISION, b"", encode_decision(decide(DecisionKind.ROLLBACK, names[1:2])))
    followed = MemoryLog()
    for entry in log.page():
        followed.append(entry.kind, entry.payload, entry.noop)
    store = OxigraphProcess(tmp_path / "worker")
    try:
        before = apply_up_to(ADAPTER, store.transport, followed, 4)
        assert (before.state, store.quads()) == (WorkerState.WORKING, ["<urn:ordinary> <urn:p> <urn:o> ."])
        after = apply_up_to(ADAPTER, store.transport, followed, 6)
        assert (after.state, len(store.quads())) == (WorkerState.WORKING, 3)
    finally:
        store.kill()
