"""The capture store and its change log: what a kill, a torn tail, damage and an undo leave."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyoxigraph as ox
import pytest
from random_entries import execute_as_worker, held, random_entries

from txlog.changesets import EntryRefused, capture_store
from txlog.changesets.capture_store import CaptureStore, LogStep
from txlog.changesets.change_log import FILE_MS, ChangeLog
from txlog.changesets.change_log_errors import (
    CaptureStoreInUse,
    ChangeLogDamaged,
    ChangeNotKept,
    ChangesGone,
    UnknownChangeLog,
)
from txlog.changesets.change_record import CapturedEntry, FileHead
from txlog.changesets.change_set import ChangeSet
from txlog.model.entry import KIND_QUADS, KIND_SKIP, KIND_UPDATE, Position
from txlog.model.entry_effects import EntryEffect, encode_effects
from txlog.model.synchronous_entry import KIND_DECISION
from txlog.workers.adapter import StoreOperation

HASH = b"h" * 16
START = Position(0, 0, HASH)
Quads = Mapping[bytes, ox.Quad] | None


class Killed(BaseException):
    """The process ends here."""


def _steps(entries: list[StoreOperation], first: int = 1) -> list[LogStep]:
    return [
        LogStep(CapturedEntry(index, index.to_bytes(16, "big"), f"m.1.{index}", 0, entry.kind), entry.payload)
        for index, entry in enumerate(entries, first)
    ]


def _expected(entries: list[StoreOperation]) -> frozenset[bytes]:
    worker = ox.Store()
    for entry in entries:
        execute_as_worker(worker, entry)
    return held(worker)


def _files(folder: Path) -> list[Path]:
    return sorted((folder / "changes").glob("*.changes"))


def _kill(store: CaptureStore) -> None:
    """What the operating system does when a process is killed: its files are closed, nothing else."""
    os.close(store._log._fd)
    os.close(store._lock)
    del store._store


def test_it_follows_the_log_over_restarts_and_goes_back(tmp_path: Path) -> None:
    entries = list(random_entries(5, 40))
    store = CaptureStore(tmp_path, START)
    for at in range(0, 40, 7):
        store.apply(_steps(entries[at : at + 7], at + 1))
        store.close()
        store = CaptureStore(tmp_path, START)
        assert held(store.quads) == _expected(entries[: at + 7])
    undone = store.undo_to(11)
    assert [record.entry.index for record in undone] == list(range(12, len(entries) + 1))[: len(undone)]
    assert store.end.index == 11
    assert held(store.quads) == _expected(entries[:11])
    again = store.apply(_steps(entries[11:30], 12))
    assert [record.change_set for record in store.entries(11)] == again
    assert held(store.quads) == _expected(entries[:30])
    store.close()


@pytest.mark.parametrize("seed", range(3))
def test_a_kill_at_any_point_loses_nothing(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed before a random application of a change set, or in the middle of one; then started again."""
    chance = random.Random(seed)
    entries = list(random_entries(seed, 40))
    apply_change = capture_store.apply_change
    left = 0

    def breaks(store: ox.Store, change: ChangeSet, quads: Quads = None) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            half = ChangeSet(change.deletes[: len(change.deletes) // 2], ())
            apply_change(store, chance.choice((ChangeSet(), half)))
            raise Killed
        apply_change(store, change)

    monkeypatch.setattr(capture_store, "apply_change", breaks)
    monkeypatch.setattr("txlog.changesets.operations.apply_change", breaks)
    store, kills = CaptureStore(tmp_path, START), 0
    while store.end.index < len(entries):
        left = chance.randint(1, 6)
        at, is_killed = store.end.index, False
        try:
            if chance.random() < 0.2:
                store.undo_to(max(0, at - 3))
            else:
                store.apply(_steps(entries[at : at + 5], at + 1))
        except Killed:
            is_killed = True
        if is_killed:  # not in the handler: while it runs, the frames of the error hold the store open
            kills += 1
            _kill(store)
            left = 0
            store = CaptureStore(tmp_path, START)
            assert held(store.quads) == _expected(entries[: store.end.index])
    assert kills > 3
    assert held(store.quads) == _expected(entries)
    chain, left = store.end.chain, 0
    store.close()
    other = CaptureStore(tmp_path / "other", START)
    other.apply(_steps(entries))
    assert other.end.chain == chain
    other.close()


def _recorded_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records reach the operating system only after the store has changed."""
    flush, apply = ChangeLog.flush, CaptureStore.apply
    late: set[int] = set()

    def applied(self: CaptureStore, steps: Sequence[LogStep]) -> list[ChangeSet]:
        late.add(id(self._log))
        try:
            made = apply(self, steps)
        finally:
            late.clear()
        flush(self._log)
        return made

    monkeypatch.setattr(ChangeLog, "flush", lambda self: None if id(self) in late else flush(self))
    monkeypatch.setattr(CaptureStore, "apply", applied)


def _parts_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts of an entry that is not whole are not taken back."""
    monkeypatch.setattr(ChangeSet, "inverse", lambda _: ChangeSet())


def _nothing_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start does not apply the entries above the checkpoint again."""
    entries = ChangeLog.entries
    monkeypatch.setattr(
        ChangeLog, "entries", lambda self, after: entries(self, after) if hasattr(self, "started") else ()
    )
    recover = CaptureStore._recover

    def started(self: CaptureStore) -> None:
        recover(self)
        self._log.started = True  # type: ignore[attr-defined]

    monkeypatch.setattr(CaptureStore, "_recover", started)


@pytest.mark.parametrize("mutate", [_recorded_late, _parts_kept, _nothing_repeated])
def test_each_rule_taken_away_shows(
    tmp_path: Path, mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    with pytest.raises((AssertionError, ChangeLogDamaged)):
        _kill_with_seeds(tmp_path, monkeypatch)


def _kill_with_seeds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(10):
        with monkeypatch.context() as patch:
            test_a_kill_at_any_point_loses_nothing(folder / str(seed), seed, patch)


def _lose_power(folder: Path, entries: list[StoreOperation], chance: random.Random) -> int:
    """Execute entries; then the change log loses a part of what was not synced, and the store nothing. Returns the
    index of the checkpoint."""
    store = CaptureStore(folder, START)
    store.apply(_steps(entries[:15]))
    store.close()
    store = CaptureStore(folder, START)
    synced = store._log._size
    for at in range(15, 30, 3):
        store.apply(_steps(entries[at : at + 3], at + 1))
    _kill(store)
    [path] = _files(folder)
    data = bytearray(path.read_bytes())
    assert len(data) > synced
    at = chance.randrange(synced, len(data))
    data[at] ^= 255
    path.write_bytes(data[: chance.randrange(at + 1, len(data) + 1)])
    return 15


@pytest.mark.parametrize("seed", range(5))
def test_a_loss_of_power_loses_only_what_was_not_synced(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = list(random_entries(seed, 30))
    kept = _lose_power(tmp_path, entries, random.Random(seed))
    monkeypatch.setattr(capture_store, "read_boot_id", lambda: "another boot")
    store = CaptureStore(tmp_path, START)
    assert kept <= store.end.index < 30
    assert held(store.quads) == _expected(entries[: store.end.index])
    store.apply(_steps(entries[store.end.index : 30], store.end.index + 1))
    assert held(store.quads) == _expected(entries[:30])
    store.close()


def test_without_the_copy_a_loss_of_power_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_store, "_restore_copy", lambda kept, folder: None)
    with pytest.raises(AssertionError):
        _power_with_seeds(tmp_path, monkeypatch)


def _power_with_seeds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(10):
        with monkeypatch.context() as patch:
            test_a_loss_of_power_loses_only_what_was_not_synced(folder / str(seed), seed, patch)


def test_entries_without_effect_and_refused_ones(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path, START)
    quad = b"A <x:a> <x:p> <x:o> .\n"
    steps = [
        LogStep(CapturedEntry(1, HASH, kind=KIND_QUADS), quad),
        LogStep(CapturedEntry(2, HASH, kind=KIND_QUADS, noop="skip"), quad.replace(b"x:o", b"x:n")),
        LogStep(CapturedEntry(3, HASH, kind=KIND_SKIP, key="m.1.2"), b"refused"),
        LogStep(
            CapturedEntry(4, HASH, kind=KIND_UPDATE), b"DELETE WHERE { ?s ?p ?o } ;\nINSERT { ?s ?p } WHERE { ?s ?p }"
        ),
    ]
    with pytest.raises(EntryRefused):
        store.apply(steps)
    assert store.end.index == 3
    assert len(held(store.quads)) == 1
    assert [len(record.change_set) for record in store.entries(0)] == [1, 0, 0]
    store.close()


def test_one_process_owns_a_folder(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path, START)
    with pytest.raises(CaptureStoreInUse):
        CaptureStore(tmp_path, START)
    store.close()
    CaptureStore(tmp_path, START).close()


def test_it_begins_at_a_copy_of_a_worker(tmp_path: Path) -> None:
    quads = [ox.Quad(ox.NamedNode("x:a"), ox.NamedNode("x:p"), ox.Literal("1"))]
    store = CaptureStore(tmp_path, Position(1, 41, HASH), quads)
    assert (store.end.index, store.end.hash, store.begin.index) == (41, HASH, 41)
    assert len(held(store.quads)) == 1
    with pytest.raises(ChangesGone, match="from index 42 on"):
        next(iter(store.entries(12)))
    store.close()


def test_what_is_too_large_is_executed_and_not_kept(tmp_path: Path) -> None:
    """The last entry is refused when its first effect has changed the store already."""
    large = b"INSERT { GRAPH <x:g> { ?s <x:q> ?o } GRAPH <x:h> { ?s <x:q> ?o } } WHERE { ?s ?p ?o }"
    first = EntryEffect("m", 1, 2, KIND_UPDATE, b"INSERT { ?s <x:r> ?o . ?o <x:t> ?s } WHERE { ?s ?p ?o }")
    refused = EntryEffect("m", 1, 3, KIND_UPDATE, b"INSERT { ?s ?p } WHERE { }")
    entries = [
        StoreOperation(KIND_QUADS, b"A <x:a> <x:p> <x:1> .\nA <x:a> <x:p> <x:2> .\n"),
        StoreOperation(KIND_UPDATE, large),
        StoreOperation(KIND_QUADS, b"A <x:b> <x:p> <x:1> .\n"),
        StoreOperation(KIND_DECISION, encode_effects([first, refused])),
    ]
    store = CaptureStore(tmp_path, START, quads_max=2)
    with pytest.raises(EntryRefused):
        store.apply(_steps(entries))
    assert (store.end.index, held(store.quads)) == (3, _expected(entries[:3]))
    assert [list(record.change_set.graphs) for record in store.entries(0)] == [[], ["x:g", "x:h"], []]
    with pytest.raises(ChangeNotKept, match="entry 2"):
        store.undo_to(1)
    assert held(store.quads) == _expected(entries[:3])
    store.undo_to(2)
    assert held(store.quads) == _expected(entries[:2])
    store.close()


def test_what_is_old_goes_also_where_few_entries_come(tmp_path: Path) -> None:
    now = 0
    store = CaptureStore(tmp_path, START, clock_ms=lambda: now)
    entries = [StoreOperation(KIND_QUADS, b"A <x:a> <x:p> <x:%d> .\n" % at) for at in range(4)]
    for at in range(4):
        now = at * FILE_MS
        store.apply(_steps(entries[at : at + 1], at + 1))
    store.prune(keep_ms=4 * FILE_MS)
    assert store.begin.index == 0
    store.prune(keep_ms=FILE_MS)
    assert (store.begin.index, store.end.index) == (2, 4)
    with pytest.raises(ChangesGone):
        store.undo_to(1)
    _kill(store)
    store = CaptureStore(tmp_path, START)
    assert (store.end.index, held(store.quads)) == (4, _expected(entries))
    store.close()


def _log_of(folder: Path, count: int, file_bytes: int = 1 << 20) -> ChangeLog:
    log = ChangeLog.create(folder, FileHead(0, HASH, HASH), file_bytes)
    for index in range(1, count + 1):
        log.append(CapturedEntry(index, HASH), ChangeSet((), (b"<x:%d> <x:p> <x:o> ." % index,)), index)
    log.sync()
    return log


def test_a_torn_tail_is_cut_at_every_length(tmp_path: Path) -> None:
    log = _log_of(tmp_path, 4)
    log.close()
    [path] = tmp_path.glob("*.changes")
    whole = path.read_bytes()
    log = ChangeLog(tmp_path)
    log.truncate(3)
    log.close()
    before = len(path.read_bytes())
    for size in range(before, len(whole)):
        path.write_bytes(whole[:size])
        torn = ChangeLog(tmp_path)
        assert torn.end.index == 3
        torn.append(CapturedEntry(4, HASH), ChangeSet(), 0)
        torn.close()
    path.write_bytes(whole[:before] + bytes(300))
    zeros = ChangeLog(tmp_path)
    assert zeros.end.index == 3
    zeros.close()


def test_damage_is_refused_by_name(tmp_path: Path) -> None:
    _log_of(tmp_path, 30, file_bytes=600).close()
    paths = sorted(tmp_path.glob("*.changes"))
    assert len(paths) > 3
    _log_of(tmp_path / "one", 30).close()
    [alone] = (tmp_path / "one").glob("*.changes")
    for path, offset in ((paths[0], 100), (alone, 60), (alone, 100)):
        sound = path.read_bytes()
        path.write_bytes(sound[:offset] + bytes([sound[offset] ^ 1]) + sound[offset + 1 :])
        with pytest.raises(ChangeLogDamaged, match=path.name):
            list(ChangeLog(path.parent).entries(0))
        path.write_bytes(sound)
    sound = paths[0].read_bytes()
    paths[0].write_bytes(sound[:8] + b"\x03" + sound[9:])
    with pytest.raises(UnknownChangeLog, match="version 3"):
        ChangeLog(tmp_path)
    paths[0].write_bytes(b"something else of at least one head, and that is all")
    with pytest.raises(UnknownChangeLog, match="no change log"):
        ChangeLog(tmp_path)


def test_old_files_go_and_what_is_below_is_refused(tmp_path: Path) -> None:
    log = _log_of(tmp_path, 30, file_bytes=600)
    log.prune(below=30, before_ms=0)
    assert log.begin.index == 0
    log.prune(below=12, before_ms=1000)
    assert 0 < log.begin.index <= 12
    kept = log.begin.index
    log.prune(below=30, before_ms=kept + 2)
    assert log.begin.index == kept
    with pytest.raises(ChangesGone):
        next(log.entries(kept - 1))
    assert [record.entry.index for record in log.entries(kept)] == list(range(kept + 1, 31))
    log.truncate(kept + 1)
    assert log.end.index == kept + 1
    log.close()
    assert ChangeLog(tmp_path).end.index == kept + 1
