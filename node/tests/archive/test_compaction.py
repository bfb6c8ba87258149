"""Small files become one: nothing that was archived is lost, wherever it ends, and each order stays what it was."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from archived_history import Branch, History
from archiver_runs import entries_to, folder, paths_of
from log_pieces import CLUSTER, META, START, some

from txlog.archive.block_codec import ArchivedEntry
from txlog.archive.compaction_plan import CompactionLimits, covered_files, plan_deletions, plan_merges
from txlog.archive.compactor import CompactionResult, Compactor
from txlog.archive.file_name import FileName, Node
from txlog.archive.format import AFTER_GAP, COMPACTED, encode_file
from txlog.archive.path import find_missing, find_paths
from txlog.archive.stream import Stream, StreamId
from txlog.archive.stream_check import check_stream
from txlog.archive.stream_reader import StreamReader
from txlog.archive.upkeep import StreamUpkeep
from txlog.archive.window_plan import WindowPlan
from txlog.backup.backup_errors import TargetUnreachable
from txlog.backup.folder_target import FolderTarget
from txlog.telemetry.event_log import EventLog

LIMITS = CompactionLimits(span_s=45.0, bytes_max=1 << 20, entries_max=1000, grace_s=1000.0)
FIRST_AT = 1_700_000_000.0
STEP_S = 10.0
"""Between two files."""


def compactor(stream: Stream, limits: CompactionLimits = LIMITS) -> Compactor:
    return Compactor(stream, EventLog("compactor", io.StringIO(), 0), limits)


def age_files(path: Path, later_s: float = 0.0) -> None:
    """Small files are :data:`STEP_S` apart, compacted ones as old as the newest of these. ``later_s``: so much later
    the newest file was written."""
    small = sorted(path.rglob("log0/*.txl"))
    for at, each in enumerate(small):
        os.utime(each, (FIRST_AT + STEP_S * at,) * 2)
    newest = FIRST_AT + STEP_S * len(small)
    for each in path.rglob("log1/*.txl"):
        os.utime(each, (newest, newest))
    for each in [*path.rglob("log1/*.txl"), *small][-1:]:
        os.utime(each, (newest + later_s,) * 2)


def compact(history: History, path: Path, times: int = 2) -> list[CompactionResult]:
    """Again and again, with more than the grace between."""
    found = []
    for _ in range(times):
        age_files(path, 2 * LIMITS.grace_s)
        found.append(compactor(history.stream).run())
    return found


def assert_whole(history: History) -> None:
    for branch in (history.final, history.losing):
        assert entries_to(history.stream, branch.end) == branch.entries
    assert find_missing(paths_of(history.stream)) == []


@pytest.mark.parametrize("seed", range(12))
def test_both_orders_stay_what_they_were(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path / "target", seed, length=40)
    before = StreamReader(history.stream).find_timelines()
    count = len(history.stream.list_files())
    first, second = compact(history, tmp_path)
    assert first.written
    assert first.deleted == [], "the grace is not over"
    assert set(second.deleted) == set(first.merged)
    assert_whole(history)
    assert len(history.stream.list_files()) < count
    after = StreamReader(history.stream).find_timelines()
    assert [each.head for each in after.current] == [each.head for each in before.current] == [history.final.end]
    assert [each.head for each in after.superseded] == [history.losing.end]
    assert [one.skips() for one in after.current] == [one.skips() for one in before.current]
    assert [one.settled for one in (*after.current, *after.superseded)] == [
        one.settled for one in (*before.current, *before.superseded)
    ]
    assert check_stream(history.stream).is_sound
    (third,) = compact(history, tmp_path, 1)
    assert third == CompactionResult([], [], [])


def test_small_files_stay_until_the_grace_is_over(tmp_path: Path) -> None:
    """A reader that listed the small files before the merge has so long to read them."""
    history = History(tmp_path / "target", 1, length=40)
    (first,) = compact(history, tmp_path, 1)
    assert first.written
    newest = max(each.modified for each in history.stream.list_files() if not each.name.level)
    for path in tmp_path.rglob("log1/*.txl"):
        os.utime(path, (newest - LIMITS.grace_s + 1,) * 2)
    assert compactor(history.stream).run().deleted == []
    for path in tmp_path.rglob("log1/*.txl"):
        os.utime(path, (newest - LIMITS.grace_s,) * 2)
    assert set(compactor(history.stream).run().deleted) == set(first.merged)


@pytest.mark.parametrize("seed", range(3))
def test_every_place_keeps_its_view(tmp_path: Path, seed: int) -> None:
    """The epoch of a restored marker is that of the view in which its place was stable."""
    history = History(tmp_path / "target", seed, length=40)

    def views(branch: Branch) -> list[object]:
        timelines = StreamReader(history.stream).find_timelines()
        found = next(one for one in (*timelines.current, *timelines.superseded) if one.head == branch.end)
        files = [found.ranges[-1].find_file(entry.index) for entry in branch.entries]
        return [file.view for file in files if file is not None]

    before = [views(branch) for branch in (history.final, history.losing)]
    compact(history, tmp_path)
    assert [views(branch) for branch in (history.final, history.losing)] == before


class EndingTarget(FolderTarget):
    """Ends with an error before, or after, its n-th change or read."""

    def __init__(self, root: Path, at: int, *, after: bool) -> None:
        super().__init__(root)
        self._left = at
        self._after = after

    def _step(self, *, after: bool) -> None:
        if after == self._after:
            self._left -= 1
            if self._left == 0:
                raise TargetUnreachable("it is gone")

    def create(self, key: str, data: bytes) -> bool:
        self._step(after=False)
        made = super().create(key, data)
        self._step(after=True)
        return made

    def read(self, key: str, bytes_max: int) -> bytes:
        self._step(after=False)
        return super().read(key, bytes_max)

    def delete(self, keys: list[str]) -> None:
        for key in keys:  # a store deletes one after the other
            self._step(after=False)
            super().delete([key])
            self._step(after=True)


@pytest.mark.parametrize("after", [False, True])
def test_wherever_it_ends_nothing_is_missing(tmp_path: Path, after: bool) -> None:
    at = 0
    while True:
        at += 1
        path = tmp_path / str(at)
        history = History(path, 5, updates=False, length=14)
        ended = False
        for _ in range(2):
            age_files(path, 2 * LIMITS.grace_s)
            stream = Stream(EndingTarget(path, at, after=after), StreamId(CLUSTER, "uk"))
            try:
                compactor(stream).run()
            except TargetUnreachable:
                ended = True
            assert_whole(history)
        if not ended:
            break
        compact(history, path, 3)
        assert_whole(history)
        assert len(list(path.rglob("log0/*.txl"))) < 10
        assert StreamReader(history.stream).find_timelines().current[0].head == history.final.end
    assert at > 10


def test_a_damaged_small_file_is_not_merged_and_what_is_around_it_is(tmp_path: Path) -> None:
    history = History(tmp_path / "target", 1, length=60)
    target = sorted((tmp_path / "target").rglob("log0/*.txl"))[8]
    spoilt = target.read_bytes()
    target.write_bytes(spoilt[:-40] + b"?" + spoilt[-39:])
    compact(history, tmp_path)
    assert target.exists(), "no other file has its entries"
    assert len(list(tmp_path.rglob("log0/*.txl"))) < 20
    target.write_bytes(spoilt)
    assert_whole(history)


def test_nothing_is_deleted_for_a_compacted_file_that_is_damaged_later(tmp_path: Path) -> None:
    history = History(tmp_path / "target", 2, length=40)
    (first,) = compact(history, tmp_path, 1)
    for path in tmp_path.rglob("log1/*.txl"):
        path.write_bytes(path.read_bytes()[:-1])
    (second,) = compact(history, tmp_path, 1)
    assert second.deleted == []
    assert_whole(history)
    assert first.merged


def test_a_compacted_file_that_the_target_spoils_is_written_again(tmp_path: Path) -> None:
    class Spoiling(FolderTarget):
        def create(self, key: str, data: bytes) -> bool:
            is_first = "/log1/" in key and ".1.txl" not in key
            return super().create(key, data[:100] + b"?" + data[101:] if is_first else data)

    history = History(tmp_path / "target", 2, length=20)
    age_files(tmp_path)
    result = compactor(Stream(Spoiling(tmp_path / "target"), StreamId(CLUSTER, "uk"))).run()
    assert result.written
    assert {name.attempt for name in result.written} == {1}
    compact(history, tmp_path)
    assert_whole(history)


def ship(stream: Stream, entries: Sequence[ArchivedEntry], after: Node, lengths: Sequence[int]) -> list[FileName]:
    """Files of these numbers of entries."""
    made, at, before = [], 0, after.hash
    for length in lengths:
        part = entries[at : at + length]
        file = encode_file(part, before, META, settled=10_000, writer=1)
        stream.create_file(file.name, file.data)
        made.append(file.name)
        at, before = at + length, part[-1].hash
    return made


def new_stream(path: Path) -> Stream:
    stream = Stream(FolderTarget(folder(path)), StreamId(CLUSTER, "uk"))
    stream.create(START)
    return stream


def test_files_of_two_archivers(tmp_path: Path) -> None:
    stream = new_stream(tmp_path / "target")
    entries = some(24)
    ship(stream, entries, START, [3] * 8)
    ship(stream, entries, START, [2] * 12)
    for _ in range(4):
        age_files(tmp_path, 2 * LIMITS.grace_s)
        compactor(stream).run()
        end = Node(24, entries[-1].hash)
        assert entries_to(stream, end) == entries
        assert find_missing(paths_of(stream)) == []
    assert len(list(tmp_path.rglob("log0/*.txl"))) < 8


def test_the_same_indexes_on_another_branch_are_no_reason(tmp_path: Path) -> None:
    stream = new_stream(tmp_path / "target")
    one, other = some(20), some(20, text="b")
    ship(stream, one, START, [2] * 10)
    mine = ship(stream, other, START, [2] * 10)
    nodes = {START, *(Node(entry.index, entry.hash) for entry in one)}
    assert covered_files(mine, nodes) == []
    for _ in range(3):
        age_files(tmp_path, 2 * LIMITS.grace_s)
        compactor(stream).run()
    for entries in (one, other):
        assert entries_to(stream, Node(20, entries[-1].hash)) == entries


def test_what_is_not_final_stays_as_it_is(tmp_path: Path) -> None:
    """A log may leave the path between two files there, and then needs the place between them."""
    entries = some(20)
    names, before = [], START.hash
    for at in range(0, 20, 2):
        names.append(encode_file(entries[at : at + 2], before, META, settled=8, writer=1).name)
        before = entries[at + 1].hash
    paths = find_paths(names, [START])
    modified = {name: FIRST_AT + at for at, name in enumerate(names)}
    limits = LIMITS._replace(span_s=5.0)
    planned = plan_merges(paths, modified, {paths.heads[0]: 8}, limits, dict.fromkeys(names, 100))
    assert planned == [tuple(names[:4])]
    assert plan_merges(paths, modified, {}, limits, dict.fromkeys(names, 100)) == []


def test_a_group_ends_at_its_bounds(tmp_path: Path) -> None:
    entries = some(20)
    names, before = [], START.hash
    for at in range(0, 20, 2):
        names.append(encode_file(entries[at : at + 2], before, META, settled=20, writer=1).name)
        before = entries[at + 1].hash
    paths = find_paths(names, [START])
    modified = {name: FIRST_AT + at for at, name in enumerate(names)}
    sizes = dict.fromkeys(names, 100)

    def lengths(**more: float) -> list[int]:
        limits = CompactionLimits(**{"span_s": 1000.0, "bytes_max": 10_000, "entries_max": 1000, **more})  # type: ignore[arg-type]
        return [len(group) for group in plan_merges(paths, modified, {paths.heads[0]: 20}, limits, sizes)]

    assert lengths() == [], "the newest may still grow"
    assert lengths(span_s=4.0) == [4, 4]
    assert lengths(bytes_max=300) == [3, 3, 3]
    assert lengths(entries_max=6) == [3, 3, 3]


def test_a_place_from_which_another_file_goes_on_stays(tmp_path: Path) -> None:
    def name(first: Node, last: Node, level: int = 0) -> FileName:
        return FileName(first.index + 1, last.index, first.hash, last.hash, level=level)

    a, b, c, d = (Node(index, bytes([index]) * 16) for index in (2, 4, 6, 8))
    other = Node(9, b"x" * 16)
    small = [name(START, a), name(a, b), name(b, c)]
    whole, more, branch = name(START, c, 1), name(c, d), name(b, other)
    inside = {START, a, b, c}
    assert plan_deletions([*small, whole, more], [START], small, inside) == small[::-1]
    kept = plan_deletions([*small, whole, more, branch], [START], small, inside)
    assert kept == [small[2]]
    # What an interrupted deletion left ends inside of the compacted file.
    assert plan_deletions([small[0], whole, more], [START], [small[0]], inside) == [small[0]]


def test_a_compacted_file_behind_a_gap_says_so(tmp_path: Path) -> None:
    stream = new_stream(tmp_path / "target")
    begin = Node(5, b"g" * 16)
    stream.record_gap(START, begin, "uk-1")
    entries, before = some(12, begin), begin.hash
    for at in range(0, 12, 2):
        flags = 0 if at else AFTER_GAP
        file = encode_file(entries[at : at + 2], before, META, settled=100, writer=1, flags=flags)
        stream.create_file(file.name, file.data)
        before = entries[at + 1].hash
    age_files(tmp_path, 2 * LIMITS.grace_s)
    result = compactor(stream).run()
    assert [stream.read_header(name).flags & ~12 for name in result.written] == [COMPACTED | AFTER_GAP]
    age_files(tmp_path, 2 * LIMITS.grace_s)
    compactor(stream).run()
    assert entries_to(stream, Node(17, entries[-1].hash)) == entries


def test_a_restore_that_runs_meanwhile_finds_the_compacted_file(tmp_path: Path) -> None:
    history = History(tmp_path / "target", 3, length=40)
    reader = StreamReader(history.stream)
    compact(history, tmp_path)

    def read_all() -> list[ArchivedEntry]:
        found = reader.find_timelines().current[0]
        return [entry for file in found.files() for entry in reader.read(file.name)]

    assert reader.with_sound_files(read_all) == history.final.entries


def test_a_check_of_a_stream_that_is_compacted_meanwhile(tmp_path: Path) -> None:
    history = History(tmp_path / "target", 3, length=40)
    compact(history, tmp_path, 1)
    age_files(tmp_path, 2 * LIMITS.grace_s)
    seen: list[int] = []

    def on_file(done: int, of: int) -> None:
        if not seen:
            assert compactor(history.stream).run().deleted
        seen.append(done)

    found = check_stream(history.stream, on_file)
    assert (found.faults, found.is_sound) == ([], True)
    assert found.entries == len({*history.final.entries, *history.losing.entries})


def test_upkeep_goes_on_after_an_error_of_the_target_and_says_what_it_did(tmp_path: Path) -> None:
    history = History(tmp_path / "target", 2, updates=False, length=40)
    age_files(tmp_path, 2 * LIMITS.grace_s)
    stream = Stream(EndingTarget(tmp_path / "target", 1, after=False), StreamId(CLUSTER, "uk"))
    asked: list[bool] = []

    def retire() -> WindowPlan:
        asked.append(True)
        return WindowPlan("", 3, files=(history.stream.list_files()[0].name,))

    upkeep = StreamUpkeep(stream, EventLog("upkeep", io.StringIO(), 0), LIMITS, 0.01, retire)
    found: list[CompactionResult] = []
    until = time.monotonic() + 60
    while not (any(each.written for each in found) and any(each.deleted for each in found)):
        assert time.monotonic() < until, found
        time.sleep(0.02)
        found += upkeep.take_results()
    upkeep.stop()
    assert asked == [True], "once an hour"
