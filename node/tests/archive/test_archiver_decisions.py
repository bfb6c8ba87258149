"""What the archiver does with masters that trimmed, lost, lie, or are of another version: masters of a test's own."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from archiver_runs import entries_to, folder, paths_of
from log_pieces import CLUSTER, START, UK, chained, encoded, some

from txlog.archive import archiver as archiver_module
from txlog.archive.archive_errors import FileMissing
from txlog.archive.archiver import PLACE_SURE_S, Archiver, ArchiverSettings
from txlog.archive.block_codec import ArchivedEntry
from txlog.archive.branch_line import BranchLine, PutTimes
from txlog.archive.compaction_plan import CompactionLimits
from txlog.archive.compactor import Compactor
from txlog.archive.file_name import FileName, Node
from txlog.archive.format import AFTER_GAP
from txlog.archive.path import find_missing
from txlog.archive.stream import Stream, StreamId
from txlog.archive.stream_reader import StreamReader
from txlog.backup.folder_target import FolderTarget
from txlog.client import MasterUnreachable
from txlog.model.entry import Position
from txlog.model.errors import LogAhead, LogDiverged, LogNeedsRestore
from txlog.model.view import NO_VIEW
from txlog.telemetry.event_log import EventLog
from txlog.wire.log_page import LogPage, PageEntry


class FakeMaster:
    """A log from ``start`` on. ``change``: what becomes of each page before it is sent."""

    def __init__(self, name: str, entries: Sequence[ArchivedEntry], begin: int = 0) -> None:
        self.url = f"http://{name}"
        self.entries = list(entries)
        self.begin = begin
        self.settled = len(self.entries)
        self.change: Callable[[LogPage], LogPage] = lambda page: page
        self.is_away = self.is_learning = False
        self.pages = 0
        self.asked = 0

    def node(self, index: int) -> Node:
        return START if index == 0 else Node(index, self.entries[index - 1].hash)

    def log_page(self, after: int, at_hash: bytes | None = None, upto: int | None = None, **_: Any) -> LogPage:
        self._answer()
        end = len(self.entries)
        if after > end:
            raise LogAhead(f"index {after} is above {end}")
        if after < self.begin:
            raise LogNeedsRestore(f"index {after} is below {self.begin}")
        mine = self.node(after).hash
        if at_hash is not None and at_hash != mine:
            raise LogDiverged("another branch")
        last = end if upto is None else min(upto, end)
        found = [
            PageEntry(
                *(e.index, e.hash, e.origin.node, e.origin.birth, e.seq, e.stamp, e.kind, e.payload),
                *("key x" if e.is_noop else "", e.key, e.first_stamp),
            )
            for e in self.entries[after:last]
        ]
        self.pages += bool(found)
        stable = Position(1, end, self.node(end).hash)
        return self.change(LogPage(Position(1, after, mine), found, stable, CLUSTER, end, self.settled, (1, 1, "uk-1")))

    def status(self) -> Any:
        self._answer()
        end = self.node(len(self.entries))
        stable = SimpleNamespace(index=end.index, hash=end.hash.hex())
        view = SimpleNamespace(number="" if self.is_learning else "1.1.uk-1")
        return SimpleNamespace(stable=stable, view=view, cluster_id=CLUSTER.hex(), trim={"keptFrom": self.begin})

    def branch(self) -> dict[str, Any]:
        self._answer()
        return {"view": {"order": [1, 1, "uk-1"], "history": []}}

    def _answer(self) -> None:
        self.asked += 1
        if self.is_away:
            raise MasterUnreachable(self.url, "away", sent=False)


class Ship:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.target = FolderTarget(folder(path))
        self.stream = Stream(self.target, StreamId(CLUSTER, "uk"))
        self.now = 0.0
        self.output = io.StringIO()

    def begin(self, *masters: FakeMaster, file_bytes: int = 1 << 20) -> Archiver:
        settings = ArchiverSettings("uk", 1.0, file_bytes)
        log = EventLog("archiver", self.output, 0)
        made: Any = list(masters)
        archiver = Archiver(self.target, made, settings, log, lambda: self.now)
        archiver.start()
        return archiver

    def run(self, archiver: Archiver, rounds: int = 12) -> None:
        for _ in range(rounds):
            archiver.run_round()
            self.now += 0.6

    def events(self, name: str) -> int:
        return self.output.getvalue().count(f'"event":"{name}"')


@pytest.fixture
def ship(tmp_path: Path) -> Ship:
    return Ship(tmp_path / "target")


LOG = some(20)


def test_a_stream_that_begins_on_a_trimmed_log(ship: Ship) -> None:
    masters = FakeMaster("uk-1", LOG, begin=8), FakeMaster("uk-2", LOG, begin=5)
    ship.run(ship.begin(*masters))
    start = ship.stream.read_start()
    assert start == masters[0].node(5), "the lowest log start of all masters"
    assert entries_to(ship.stream, masters[0].node(20)) == LOG[5:]


def test_a_master_that_learns_does_not_say_where_a_stream_begins(ship: Ship) -> None:
    masters = FakeMaster("uk-1", LOG, begin=8), FakeMaster("uk-2", LOG)
    masters[1].is_learning = True
    ship.run(ship.begin(*masters))
    assert ship.stream.read_start() == masters[0].node(8)


def test_a_log_that_was_trimmed_too_early_leaves_a_gap_with_a_name(ship: Ship) -> None:
    ship.run(ship.begin(FakeMaster("uk-1", LOG[:4])))
    late = FakeMaster("uk-1", LOG, begin=10)
    ship.run(ship.begin(late))
    assert ship.stream.read_gaps() == [late.node(10)]
    assert ship.events("ArchiveGap") == 1
    assert entries_to(ship.stream, late.node(20)) == LOG[10:]
    first = paths_of(ship.stream).path_to(late.node(20))[0]
    assert ship.stream.read_file(first).header.flags & AFTER_GAP
    again = ship.begin(late)
    assert again.reported == late.node(20)
    ship.run(again)
    assert (again.files_written, ship.events("ArchiveGap")) == (0, 1)


def test_there_is_no_gap_while_another_master_has_the_entries(ship: Ship) -> None:
    ship.run(ship.begin(FakeMaster("uk-1", LOG[:4])))
    ship.run(ship.begin(FakeMaster("uk-1", LOG, begin=10), FakeMaster("uk-2", LOG, begin=3)))
    assert ship.stream.read_gaps() == []
    assert entries_to(ship.stream, Node(20, LOG[19].hash)) == LOG


def test_a_master_that_is_away_may_have_them_for_a_while(ship: Ship) -> None:
    ship.run(ship.begin(FakeMaster("uk-1", LOG[:4])))
    late, away = FakeMaster("uk-1", LOG, begin=10), FakeMaster("uk-2", LOG, begin=3)
    archiver = ship.begin(late, away)
    away.is_away = True
    ship.run(archiver)
    assert ship.stream.read_gaps() == []
    away.is_away = False
    ship.run(archiver)
    assert ship.stream.read_gaps() == []
    assert archiver.reported == late.node(20)


def test_a_master_that_stays_away_does_not_stop_the_archive_for_ever(ship: Ship) -> None:
    ship.run(ship.begin(FakeMaster("uk-1", LOG[:4])))
    late, away = FakeMaster("uk-1", LOG, begin=10), FakeMaster("uk-2", LOG, begin=3)
    archiver = ship.begin(late, away)
    away.is_away = True
    ship.run(archiver)
    ship.now += archiver_module.GAP_PATIENCE_S
    ship.run(archiver)
    assert ship.stream.read_gaps() == [late.node(10)]
    assert archiver.reported == late.node(20)


def test_masters_that_lost_what_was_final_are_no_rejoin(ship: Ship) -> None:
    ship.run(ship.begin(FakeMaster("uk-1", LOG), file_bytes=150))
    common = Node(10, LOG[9].hash)
    old = FakeMaster("uk-1", [*LOG[:10], *some(4, common, "other")])
    archiver = ship.begin(old)
    ship.run(archiver)
    assert ship.events("ArchiveAhead") >= 1
    (lost,) = ship.stream.read_losses()
    assert lost["head"]["index"] == lost["settled"] == 20
    assert lost["common"]["index"] <= 10
    assert entries_to(ship.stream, old.node(14)) == old.entries
    assert Node(20, LOG[19].hash) in paths_of(ship.stream).reached, "the old head stays"


def test_a_rejoin_above_what_was_final_is_no_loss(ship: Ship) -> None:
    one = FakeMaster("uk-1", LOG)
    one.settled = 10
    ship.run(ship.begin(one, file_bytes=1))
    common = Node(10, LOG[9].hash)
    joined = FakeMaster("uk-1", [*LOG[:10], *some(14, common, "other")])
    archiver = ship.begin(joined, file_bytes=1)
    ship.run(archiver, 20)
    assert ship.stream.read_losses() == []
    assert entries_to(ship.stream, joined.node(24)) == joined.entries


def test_the_log_of_a_shorter_branch_is_archived_too(ship: Ship) -> None:
    common = Node(10, LOG[9].hash)
    short = FakeMaster("uk-2", [*LOG[:10], *some(2, common, "other")])
    archiver = ship.begin(FakeMaster("uk-1", LOG), file_bytes=150)
    ship.run(archiver)
    archiver = ship.begin(FakeMaster("uk-1", LOG), short)
    ship.run(archiver)
    assert entries_to(ship.stream, short.node(12)) == short.entries
    again = ship.begin(FakeMaster("uk-1", LOG), short)
    ship.run(again)
    assert again.files_written == 0


def test_a_branch_that_is_shorter_than_what_was_read_in_this_run(ship: Ship) -> None:
    long = FakeMaster("uk-1", LOG[:10])
    short = FakeMaster("uk-2", LOG[:10])
    archiver = ship.begin(long, short)
    ship.run(archiver)
    common = Node(10, LOG[9].hash)
    long.entries = list(LOG)
    ship.run(archiver)
    short.entries = [*LOG[:10], *some(2, common, "other")]
    ship.run(archiver)
    assert entries_to(ship.stream, short.node(12)) == short.entries
    assert entries_to(ship.stream, long.node(20)) == LOG


def test_a_master_that_is_behind_is_no_branch(ship: Ship) -> None:
    archiver = ship.begin(FakeMaster("uk-1", LOG), FakeMaster("uk-2", LOG[:7]))
    ship.run(archiver)
    ship.run(ship.begin(FakeMaster("uk-1", LOG), FakeMaster("uk-2", LOG[:7])))
    assert ship.events("ArchiveBranched") == 0
    assert entries_to(ship.stream, Node(20, LOG[19].hash)) == LOG
    assert sum(each.name.entries for each in ship.stream.list_files()) == 20, "no entry is archived twice"


def test_the_first_master_may_be_the_one_behind(ship: Ship) -> None:
    ship.run(ship.begin(FakeMaster("uk-1", LOG[:9])))
    ship.run(ship.begin(FakeMaster("uk-1", LOG[:5]), FakeMaster("uk-2", LOG)))
    assert entries_to(ship.stream, Node(20, LOG[19].hash)) == LOG


def replace_entry(page: LogPage, **fields: Any) -> LogPage:
    entries = [msgspec.structs.replace(entry, **fields) for entry in page.entries[:1]] + page.entries[1:]
    return msgspec.structs.replace(page, entries=entries)


LIES: dict[str, Callable[[LogPage], LogPage]] = {
    "payload": lambda page: replace_entry(page, payload=b"DROP ALL"),
    "stamp": lambda page: replace_entry(page, stamp=1),
    "seq": lambda page: replace_entry(page, seq=999),
    "key": lambda page: replace_entry(page, key="other"),
    "kind": lambda page: replace_entry(page, kind=1),
    "origin": lambda page: replace_entry(page, node="uk-9"),
    "hash": lambda page: replace_entry(page, hash=b"x" * 16),
    "not stable": lambda page: msgspec.structs.replace(page, stable_index=0),
    "another place": lambda page: msgspec.structs.replace(page, after=Position(1, page.after.index, b"x" * 16)),
    "another cluster": lambda page: msgspec.structs.replace(page, cluster=b"x" * 16),
    "an older master": lambda page: msgspec.structs.replace(page, view=NO_VIEW),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_page_that_does_not_prove_itself_is_taken_from_another_master(ship: Ship, lie: str) -> None:
    wrong, right = FakeMaster("uk-1", LOG), FakeMaster("uk-2", LOG)
    wrong.change = LIES[lie]
    archiver = ship.begin(wrong)
    ship.run(archiver)
    assert archiver.files_written == 0
    assert '"error":"' in ship.output.getvalue()
    assert "http://uk-1" in ship.output.getvalue()
    archiver = ship.begin(wrong, right)
    ship.run(archiver)
    assert entries_to(ship.stream, right.node(20)) == LOG


def test_two_archivers_of_one_stream_cannot_hurt_each_other(ship: Ship) -> None:
    master = FakeMaster("uk-1", LOG[:6])
    both = ship.begin(master, file_bytes=150), ship.begin(master, file_bytes=400)
    for length in (6, 9, 15, 20):
        master.entries = list(LOG[:length])
        for each in both:
            each.run_round()
        ship.now += 5
        for each in both[::-1]:
            each.run_round()
    for each in both:
        each.flush()
        assert each.reported == master.node(20)
    assert entries_to(ship.stream, master.node(20)) == LOG
    found = paths_of(ship.stream)
    assert (found.unreached, found.heads) == ([], [master.node(20)])
    assert len(ship.stream.list_files()) > len(found.path_to(master.node(20)))
    third = ship.begin(master)
    ship.run(third)
    assert (third.reported, third.files_written) == (master.node(20), 0)


def test_an_idle_log_writes_nothing(ship: Ship) -> None:
    archiver = ship.begin(FakeMaster("uk-1", LOG))
    ship.run(archiver)
    before = list(ship.target.list_nested("_archive"))
    ship.run(archiver, 300)
    assert list(ship.target.list_nested("_archive")) == before
    assert archiver.files_written == len(ship.stream.list_files())


def test_only_one_master_of_a_branch_gives_the_entries(ship: Ship) -> None:
    masters = [FakeMaster(f"uk-{at}", LOG) for at in range(3)]
    ship.run(ship.begin(*masters))
    assert sum(master.pages for master in masters) == 1


def test_a_master_that_is_away_is_asked_now_and_then(ship: Ship) -> None:
    """Each question may take seconds, and the entries of the others wait meanwhile."""
    away, right = FakeMaster("uk-1", LOG), FakeMaster("uk-2", LOG)
    archiver = ship.begin(away, right)
    away.is_away = True
    before, at = away.asked, ship.now
    ship.run(archiver, 100)
    assert 1 <= away.asked - before <= (ship.now - at) / archiver_module.RETRY_MASTER_S + 3
    away.is_away = False
    right.is_away = True
    away.entries = some(30)
    ship.run(archiver, 3)
    assert archiver.reported == away.node(30)


def test_when_a_file_is_due() -> None:
    line = BranchLine(START)
    entries = some(5)
    assert not line.is_due(100.0, 1.0, 0.0, 1000)
    line.add(entries[:2], (1, 1, "uk-1"), 2, 10.0)
    assert not line.is_due(10.5, 1.0, 0.3, 1000)
    assert line.is_due(10.75, 1.0, 0.3, 1000), "so that the write ends in time"
    line.add(entries[2:], (1, 1, "uk-1"), 5, 10.6)
    assert line.is_due(10.6, 1.0, 0.0, line.plain_bytes)
    assert line.take_file(entries[0].plain_bytes) == entries[:1], "at least one"
    line.archived(2, 10.7)
    assert (line.base, line.end, line.entries) == (Node(2, entries[1].hash), Node(5, entries[4].hash), entries[2:])
    assert [line.hash_at(index) for index in (0, 1, 5, 6)] == [START.hash, entries[0].hash, entries[4].hash, None]


def test_how_long_a_write_takes() -> None:
    times = PutTimes()
    assert times.p99 == 0.0
    for at in range(300):
        times.add(at / 100)
    assert times.p99 == 2.98


def test_a_large_transaction_has_a_file_of_its_own(ship: Ship) -> None:
    large = chained([(UK, 1, 0, 2, False, "", b"x" * 5000)] * 3)
    master = FakeMaster("uk-1", large)
    ship.run(ship.begin(master, file_bytes=1000))
    assert entries_to(ship.stream, master.node(3)) == large
    assert len(ship.stream.list_files()) == 3


def _compact_to_one(ship: Ship) -> None:
    """Small files become one at once, and are deleted."""
    small = sorted((ship.path).rglob("log0/*.txl"))
    for at, each in enumerate(small):
        os.utime(each, (1_700_000_000 + at,) * 2)
    log = EventLog("compactor", io.StringIO(), 0)
    for _ in range(2):
        Compactor(ship.stream, log, CompactionLimits(span_s=len(small) - 1, grace_s=0.0)).run()


def test_an_archiver_that_was_stopped_for_long_goes_on_where_files_lead(ship: Ship) -> None:
    """Another one has archived meanwhile, and the place where it stopped is inside a compacted file now."""
    master = FakeMaster("uk-1", LOG[:4])
    stopped = ship.begin(master)
    ship.run(stopped)
    other = ship.begin(master)
    for end in (8, 12, 16):
        master.entries, master.settled = LOG[:end], end
        ship.run(other, 4)
    _compact_to_one(ship)
    assert master.node(4) not in paths_of(ship.stream).reached
    ship.now += PLACE_SURE_S
    master.entries = LOG
    ship.run(stopped)
    assert find_missing(paths_of(ship.stream)) == [], "each of its files is one that a path leads to"
    assert entries_to(ship.stream, master.node(20)) == LOG
    assert stopped.reported == master.node(20)
    assert ship.events("ArchiverOvertaken") == 1
    assert StreamReader(ship.stream).find_timelines().current[0].head == master.node(20)


def test_what_an_archiver_wrote_behind_its_time_is_not_reported(ship: Ship, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is stopped while it writes: the object arrives when no file leads to it any more."""
    master = FakeMaster("uk-1", LOG[:4])
    stopped = ship.begin(master)
    ship.run(stopped)
    create = Stream.create_file

    def late(stream: Stream, name: FileName, data: bytes) -> bool:
        monkeypatch.setattr(Stream, "create_file", create)
        other = ship.begin(master)
        for end in (8, 12, 16):
            master.entries, master.settled = LOG[:end], end
            ship.run(other, 4)
        _compact_to_one(ship)
        ship.now += PLACE_SURE_S
        return create(stream, name, data)

    master.entries = LOG[:6]
    monkeypatch.setattr(Stream, "create_file", late)
    reported = []
    for _ in range(8):
        stopped.run_round()
        reported.append(stopped.reported)
        ship.now += 0.6
    assert master.node(6) not in reported
    assert stopped.places[0] == master.node(16)
    assert find_missing(paths_of(ship.stream)) == [master.node(4)]
    assert StreamReader(ship.stream).find_timelines().current[0].head == master.node(16), "it holds nothing more"


def test_files_that_hold_more_than_the_paths_are_missed(ship: Ship) -> None:
    """Nothing is passed over whose entries no path has: also not those of another order at the same indexes."""
    master = FakeMaster("uk-1", LOG[:4])
    archiver = ship.begin(master)
    for end in (8, 12, 16):
        master.entries, master.settled = LOG[:end], end
        ship.run(archiver, 4)
    _compact_to_one(ship)
    inside = encoded(LOG[5:7], LOG[4].hash)
    ship.stream.create_file(inside.name, inside.data)
    assert StreamReader(ship.stream).find_timelines().current[0].head == master.node(16)
    for entries in (LOG[5:18], some(3, master.node(5), "b")):
        more = encoded(entries, LOG[4].hash)
        ship.stream.create_file(more.name, more.data)
        with pytest.raises(FileMissing, match=str(master.node(5))):
            StreamReader(ship.stream).find_timelines()
        ship.stream.delete_files([more.name])
