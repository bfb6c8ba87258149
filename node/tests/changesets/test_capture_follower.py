"""Which entries a capture store executes, and what it does at one that it cannot execute."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from txlog.changesets import CapturedEntrySkipped, CaptureStore, EntryRefused, follow_step
from txlog.changesets.capture_follower import executable_index
from txlog.cli.changes_view import entry_event
from txlog.client import JsonMarker, JsonPosition, StatusResponse, WorkerStatus
from txlog.model.entry import KIND_QUADS, KIND_SKIP, KIND_UPDATE, Position
from txlog.model.entry_effects import NOOP_SYNCHRONOUS, EntryEffect
from txlog.model.errors import LogAhead, LogDiverged
from txlog.model.namespaces import NamespaceChange, encode_namespace_change
from txlog.model.synchronous_entry import KIND_DECISION, KIND_SYNCHRONOUS_QUADS
from txlog.wire.log_page import LogPage, PageEntry

START = Position(0, 0, b"s" * 16)


class ListedLog:
    """A master with a list of entries. ``branch``: the letter of its hashes above ``parted``."""

    def __init__(self, payloads: Sequence[tuple[int, bytes]], parted: int = 99, branch: bytes = b"b") -> None:
        self.entries = [
            PageEntry(at, (b"a" if at <= parted else branch) * 15 + bytes([at]), "m", 1, at, at, kind, payload, "")
            for at, (kind, payload) in enumerate(payloads, 1)
        ]
        self.workers: list[WorkerStatus] = []
        self.settled = 0
        self.applied: int | None = None

    def _hash(self, index: int) -> bytes:
        return self.entries[index - 1].hash if index else START.hash

    def status(self) -> StatusResponse:
        end = len(self.entries)
        place = JsonPosition(1, end, self._hash(end).hex())
        return StatusResponse("m", "Joined", place, place, workers=self.workers, applied=self.applied)

    def log_page(
        self,
        after: int,
        at_hash: bytes | None = None,
        upto: int | None = None,
        max_bytes: int | None = None,
        unordered: Sequence[tuple[int, bytes]] = (),
        *,
        keys: bool = False,
    ) -> LogPage:
        if after > len(self.entries):
            raise LogAhead("ask again later")
        if at_hash != self._hash(after):
            raise LogDiverged("another branch")
        stable = Position(1, len(self.entries), self._hash(len(self.entries)))
        return LogPage(Position(1, after, at_hash), self.entries[after:upto], stable, settled=self.settled)


def _worker(index: int, state: str = "Working") -> WorkerStatus:
    return WorkerStatus("w", position=JsonMarker(1, index, "", 0), state=state)


def _quads(count: int, letter: str = "a") -> list[tuple[int, bytes]]:
    return [(KIND_QUADS, b"A <x:%s%d> <x:p> <x:o> .\n" % (letter.encode(), at)) for at in range(count)]


def test_an_entry_waits_for_a_worker_that_works(tmp_path: Path) -> None:
    log, store = ListedLog(_quads(9)), CaptureStore(tmp_path, START)
    assert executable_index(log.status()) == 9
    log.workers = [_worker(4), _worker(2), _worker(8, "Diverged"), _worker(7, "Blocked")]
    assert len(follow_step(store, log).changes) == 4
    assert follow_step(store, log).changes == []
    log.workers.append(_worker(6))
    assert len(follow_step(store, log, upto=5).changes) == 1
    assert follow_step(store, log, settled=True).changes == []
    log.settled = 8
    assert len(follow_step(store, log, settled=True).changes) == 1
    store.close()


def test_masters_prove_how_far_a_worker_is(tmp_path: Path) -> None:
    """A worker of another branch may be at any index."""
    log, store = ListedLog(_quads(9)), CaptureStore(tmp_path, START)
    log.workers, log.applied = [_worker(8)], 3
    assert len(follow_step(store, log).changes) == 3
    log.applied = 0
    assert follow_step(store, log).changes == []
    store.close()


def test_an_entry_that_is_skipped_after_it_was_executed_asks_for_another_store(tmp_path: Path) -> None:
    log = ListedLog([*_quads(3), *[(KIND_SKIP, b"by hand")] * 4])
    names = [str(entry.txid) for entry in log.entries]
    for at, key in (
        (3, encode_namespace_change(NamespaceChange("p", "urn:p"), "u")),
        (4, "point a"),
        (5, names[2]),
        (6, names[1]),
    ):
        log.entries[at] = msgspec.structs.replace(log.entries[at], key=key)
    log.entries[2] = msgspec.structs.replace(log.entries[2], noop="skip")  # it was skipped before
    store = CaptureStore(tmp_path, START)
    assert len(follow_step(store, log, upto=6).changes) == 6
    with pytest.raises(CapturedEntrySkipped, match=names[1]):
        follow_step(store, log)
    assert store.end.index == 6
    store.close()
    late = CaptureStore(tmp_path / "late", Position(1, 6, log._hash(6)))
    with pytest.raises(CapturedEntrySkipped, match="first data"):
        follow_step(late, log)
    late.close()
    again = CaptureStore(tmp_path / "again", START)
    log.entries[1] = msgspec.structs.replace(log.entries[1], noop="skip")
    assert len(follow_step(again, log).changes) == 7
    assert len(list(again.quads)) == 1
    again.close()


def test_what_takes_effect_at_a_commit_is_its_change_set(tmp_path: Path) -> None:
    key = "N/2+1 30000 "
    log = ListedLog([*_quads(1), (KIND_SYNCHRONOUS_QUADS, b"A <x:late> <x:p> <x:o> .\n"), (KIND_DECISION, b"")])
    effects = [
        EntryEffect("m", 1, 2, KIND_QUADS, b"A <x:late> <x:p> <x:o> .\n"),
        EntryEffect("m", 1, 9, KIND_UPDATE, b"DELETE WHERE { <x:late> <x:p> ?o } ; INSERT DATA { <x:n> <x:p> 1 }"),
        EntryEffect("m", 1, 10, KIND_SKIP, b""),
    ]
    log.entries[1] = msgspec.structs.replace(log.entries[1], noop=NOOP_SYNCHRONOUS, key=key)
    log.entries[2] = msgspec.structs.replace(log.entries[2], key="commit m.0000000000000001.2", effects=effects)
    store = CaptureStore(tmp_path, START)
    ordinary, passed_over, commit = follow_step(store, log).changes
    assert len(ordinary.change.adds) == 1
    assert not len(passed_over.change)
    assert commit.change.encode() == b'A <x:n> <x:p> "1"^^<http://www.w3.org/2001/XMLSchema#integer> .\n'
    event = entry_event(commit.entry, commit.change, b"b" * 16, 3)
    assert (event.kind, event.payload, event.noop) == ("quads", commit.change.encode().decode(), "")
    store.undo_to(2)
    assert store.end.index == 2
    store.close()


def test_what_comes_before_a_refused_entry_counts(tmp_path: Path) -> None:
    log = ListedLog([*_quads(2), (KIND_UPDATE, b"INSERT { ?s ?p } WHERE { ?s ?p }")])
    store = CaptureStore(tmp_path, START)
    assert len(follow_step(store, log).changes) == 2
    with pytest.raises(EntryRefused):
        follow_step(store, log)
    assert store.end.index == 2
    store.close()


@pytest.mark.parametrize(("parted", "length"), [(at, length) for length in (4, 9) for at in range(min(6, length))])
def test_it_goes_back_to_where_the_branches_part(tmp_path: Path, parted: int, length: int) -> None:
    """The log of today may be shorter than the branch that was given up."""
    store = CaptureStore(tmp_path, START)
    follow_step(store, ListedLog(_quads(6), parted, b"o"))
    today = ListedLog([*_quads(6)[:parted], *_quads(length - parted, "n")], parted, b"n")
    step = follow_step(store, today)
    assert step.left is not None
    assert (step.left.index, store.end.index, store.end.hash) == (6, parted, today._hash(parted))
    assert len(list(store.quads)) == parted
    assert len(follow_step(store, today).changes) == length - parted
    assert len(list(store.quads)) == length
    store.close()


def test_a_master_that_lags_moves_nothing(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path, START)
    follow_step(store, ListedLog(_quads(6)))
    with pytest.raises(LogAhead):
        follow_step(store, ListedLog(_quads(4)))
    assert store.end.index == 6
    store.close()


def test_a_store_of_another_cluster_is_refused(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path, START)
    log = ListedLog(_quads(3))
    follow_step(store, log)
    other = ListedLog(_quads(5), 0, b"x")
    other._hash = lambda index: other.entries[index - 1].hash if index else b"t" * 16  # type: ignore[method-assign]
    with pytest.raises(LogDiverged, match="another cluster"):
        follow_step(store, other)
    assert store.end.index == 3
    store.close()
