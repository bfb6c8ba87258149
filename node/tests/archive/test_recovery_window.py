"""Files go only when no moment of the recovery window needs them, at whatever call a retention ends."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from archived_history import Branch, History
from archiver_runs import folder
from log_pieces import CLUSTER
from test_compaction import EndingTarget

from txlog.archive import window_retention
from txlog.archive.file_name import Node
from txlog.archive.moment import parse_moment
from txlog.archive.moment_restore import to_base
from txlog.archive.restore_plan import BaseBackup, BaseChoice, RestorePlan, make_plan, may_hold_skipped
from txlog.archive.stream import Stream, StreamId
from txlog.archive.stream_check import check_stream
from txlog.archive.stream_reader import StreamReader
from txlog.archive.window_plan import WindowBase, WindowPlan, plan_window
from txlog.archive.window_retention import hold_stream, retire_files
from txlog.backup.archive_floor import read_archive_floor
from txlog.backup.backup_errors import TargetUnreachable
from txlog.backup.backup_manifest import BackupManifest, ManifestPosition
from txlog.backup.catalogue import COMPLETE, CatalogueEntry, catalogue
from txlog.backup.retention import expired_backups
from txlog.backup.target import BackupTarget
from txlog.model.errors import Conflict
from txlog.model.stamp import stamp_ms


def milliseconds(branch: Branch, index: int) -> int:
    return stamp_ms(branch.entries[index - 1].stamp) if index else 0


def base(branch: Branch, index: int, engine: str = "oxigraph", *, held: bool = False) -> WindowBase:
    """A backup that was finished when its last entry was ordered."""
    backup = BaseBackup(f"{engine}-{index}", branch.node(index), engine, b"", 1, 1)
    return WindowBase(backup, milliseconds(branch, index), held)


def plan(history: History, bases: Sequence[WindowBase], begin_ms: int) -> WindowPlan:
    reader = StreamReader(history.stream)
    timelines = reader.find_timelines()
    return plan_window(list(reader.sizes), reader.starts, timelines, bases, begin_ms, reader.read)


def carry_out(history: History, found: WindowPlan) -> None:
    history.stream.delete_files(found.branches)
    history.stream.record_begins(found.floor, found.begins)
    history.stream.delete_files(history.stream.retired_files())


def assert_restorable(history: History, bases: Sequence[BaseBackup], begin_ms: int) -> int:
    """Every place of every timeline that ended in the window, and the last one before it. Returns their number."""
    reader = StreamReader(history.stream)
    timelines = reader.find_timelines()
    places = 0
    for branch in (history.final, history.losing):
        if milliseconds(branch, branch.end.index) <= begin_ms:
            continue
        for index in range(1, branch.end.index + 1):
            following = milliseconds(branch, index + 1) if index < branch.end.index else begin_ms + 1
            if following <= begin_ms:
                continue  # the state of a moment before the window
            moment = parse_moment(f"position:{index}:{branch.node(index).hash.hex()}")
            made = make_plan(timelines, CLUSTER, moment, BaseChoice(bases), reader.read)
            assert read_plan(reader, made) == branch.entries[made.after.index : index]
            places += 1
    assert timelines.current[0].head == history.final.end
    assert check_stream(history.stream).is_sound
    return places


def read_plan(reader: StreamReader, made: RestorePlan) -> list[object]:
    entries = [entry for file in made.files for entry in reader.read(file.name)]
    return [entry for entry in entries if made.after.index < entry.index <= made.place.index]


def usable(history: History, indexes: Sequence[int]) -> list[int]:
    """The places at which a backup is a base on every timeline: nothing that it holds is skipped later."""
    reader = StreamReader(history.stream)
    timelines = reader.find_timelines()
    every = (*timelines.current, *timelines.superseded)
    found = []
    for index in indexes:
        backup = BaseBackup("b", history.final.node(index), "oxigraph", b"", 1, 1)
        on = [one for one in every if one.has(backup.node, reader.read)]
        if not any(may_hold_skipped(one, backup, one.skips(), reader.read) for one in on):
            found.append(index)
    return found


def history_with_two_bases(path: Path) -> tuple[History, int, int]:
    """A backup before the branches part, and one near the end."""
    for seed in range(50):
        history = History(path / f"target-{seed}", seed, updates=False, length=30)
        end = history.final.end.index
        early, late = usable(history, range(4, history.common)), usable(history, range(end - 6, end - 1))
        if early and late:
            return history, early[0], late[-1]
    raise AssertionError("no history fits")


@pytest.mark.parametrize("seed", range(10))
def test_every_moment_of_the_window_stays_restorable(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path / "target", seed, length=30)
    chance = random.Random(seed)
    indexes = usable(history, sorted(chance.sample(range(1, history.final.end.index), 8)))
    bases = [base(history.final, index) for index in indexes]
    begin_ms = milliseconds(history.final, chance.randrange(1, history.final.end.index + 1))
    found = plan(history, bases, begin_ms)
    if found.reason:
        assert found.files == found.branches == ()
        return
    carry_out(history, found)
    kept = [each.backup for each in bases if each.backup.node.index >= found.floor]
    assert assert_restorable(history, kept, begin_ms) > 0
    assert all(each.name.last > found.floor for each in history.stream.list_files())
    again = plan(history, bases, begin_ms)
    assert (again.files, again.branches) == ((), ())


def test_something_goes(tmp_path: Path) -> None:
    history, early, late = history_with_two_bases(tmp_path)
    final = history.final
    found = plan(history, [base(final, early), base(final, late)], milliseconds(final, late) + 1)
    assert (found.reason, found.floor, found.bases) == ("", late, (f"oxigraph-{late}",))
    carry_out(history, found)
    assert len(history.stream.list_files()) < 6
    assert history.stream.read_starts() is not None


def test_without_a_backup_before_the_window_nothing_goes(tmp_path: Path) -> None:
    history, early, late = history_with_two_bases(tmp_path)
    final = history.final
    begin_ms = milliseconds(final, late)
    assert "there is no backup" in plan(history, [], begin_ms).reason
    assert "no backup of oxigraph from before" in plan(history, [base(final, late)], begin_ms - 1).reason
    assert plan(history, [base(final, early)], begin_ms).floor == early
    found = plan(history, [base(final, early), base(final, late, "fuseki")], begin_ms - 1)
    assert "no backup of fuseki" in found.reason


def test_a_backup_that_is_on_no_timeline_is_no_base(tmp_path: Path) -> None:
    history, _, late = history_with_two_bases(tmp_path)
    stranger = BaseBackup("x", Node(late, b"?" * 16), "oxigraph", b"", 1, 1)
    found = plan(history, [WindowBase(stranger, 0)], milliseconds(history.final, history.final.end.index))
    assert "no backup of oxigraph" in found.reason


def test_a_backup_that_holds_what_is_skipped_later_is_no_base(tmp_path: Path) -> None:
    for seed in range(20):
        history = History(tmp_path / str(seed), seed, updates=False, length=30)
        final = history.final
        places = {str(entry.txid): entry.index for entry in final.entries}
        held = [places[txid] for txid, at in final.skips.items() if places.get(txid, at) < at - 1]
        if held:
            found = plan(history, [base(final, held[0])], milliseconds(final, final.end.index))
            assert "no backup of oxigraph" in found.reason
            return
    raise AssertionError("no history has a skip of what was executed before")


def test_what_a_held_backup_needs_stays(tmp_path: Path) -> None:
    history, early, late = history_with_two_bases(tmp_path)
    final = history.final
    bases = [base(final, early, held=True), base(final, late)]
    assert plan(history, bases, milliseconds(final, late) + 1).floor == early


def test_an_order_that_ended_in_the_window_keeps_its_base(tmp_path: Path) -> None:
    history, early, late = history_with_two_bases(tmp_path)
    final, losing = history.final, history.losing
    bases = [base(final, early), base(final, late)]
    begin_ms = milliseconds(losing, losing.end.index) - 1
    bases[1] = bases[1]._replace(finished_ms=begin_ms)  # a worker's clock was behind
    found = plan(history, bases, begin_ms)
    assert (found.floor, found.branches) == (early, ())


# -- on a target


@pytest.fixture
def old_backups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Backups were finished when the last entry that they hold was ordered."""

    def aged(target: BackupTarget) -> list[CatalogueEntry]:
        found = []
        for each in catalogue(target):
            assert each.manifest is not None
            finished = 1_600_000_000.0 + each.manifest.place.index
            found.append(each._replace(manifest=msgspec.structs.replace(each.manifest, finished=finished)))
        return found

    monkeypatch.setattr(window_retention, "catalogue", aged)


@pytest.mark.usefixtures("old_backups")
@pytest.mark.parametrize("after", [False, True])
def test_wherever_a_retention_ends_the_window_is_whole(tmp_path: Path, after: bool) -> None:
    at = 0
    first = History(folder(tmp_path / "0"), 4, updates=False, length=8)
    index = usable(first, range(10, first.final.end.index))[0]
    while True:
        at += 1
        path = folder(tmp_path / str(at))
        history = History(path, 4, updates=False, length=8)
        manifest = history.back_up(history.final, index)
        stream = Stream(EndingTarget(path, at, after=after), StreamId(CLUSTER, "uk"))
        ended = False
        try:
            retire_files(stream, history.target, 1e-3)
        except TargetUnreachable:
            ended = True
        end_ms = milliseconds(history.final, history.final.end.index)
        assert_restorable(history, [to_base(manifest)], end_ms - 1)
        if not ended:
            break
        for each in path.rglob("retiring/*.json"):
            each.unlink()
        assert retire_files(history.stream, history.target, 1e-3).reason == ""
        assert_restorable(history, [to_base(manifest)], end_ms - 1)
        assert history.stream.retired_files() == []
        assert all(each.name.last > index for each in history.stream.list_files())
    assert at > 8


@pytest.mark.usefixtures("old_backups")
def test_a_restore_and_a_retention_give_way_to_each_other(tmp_path: Path) -> None:
    history = History(tmp_path / "target", 4, updates=False, length=12)
    index = usable(history, range(16, history.final.end.index))[0]
    history.back_up(history.final, index)
    before = len(history.stream.list_files())
    with hold_stream(history.stream):
        assert "a restore reads the stream" in retire_files(history.stream, history.target, 1e-3).reason
        assert len(history.stream.list_files()) == before
    key = history.stream.announce("retiring", "other")
    with pytest.raises(Conflict, match="try again"), hold_stream(history.stream, wait_s=0.1):
        raise AssertionError
    history.stream.withdraw(key)
    assert retire_files(history.stream, history.target, 1e-3).reason == ""
    assert len(history.stream.list_files()) < before
    assert not list((tmp_path / "target").rglob("lease/*.json"))
    assert not list((tmp_path / "target").rglob("retiring/*.json"))


def test_the_retention_of_backups_leaves_the_base_of_the_window(tmp_path: Path) -> None:
    """The newest backup from before the window is of a side whose order is over, so it is no base."""
    history, early, late = history_with_two_bases(tmp_path)
    losing = history.losing.node(history.common + 1)
    begin_ms = milliseconds(history.final, late - 1)
    bases = [base(history.final, early), base(history.final, late)]
    bases.insert(1, WindowBase(BaseBackup("losing", losing, "oxigraph", b"", 1, 1), begin_ms - 1))
    found = plan(history, bases, begin_ms)
    assert found.bases == (bases[0].backup.name,)
    history.stream.record_begins(found.floor, found.begins)
    floor = read_archive_floor(history.target, CLUSTER.hex(), "uk")
    listed = [
        CatalogueEntry(each.backup.name, COMPLETE, _manifest(each), 1, 0.0, False)
        for each in [*bases, base(history.final, history.final.end.index)]
    ]
    assert expired_backups(listed, CLUSTER.hex(), "uk", 1, None, 1e12, floor) == []
    assert set(expired_backups(listed, CLUSTER.hex(), "uk", 1, None, 1e12, early + 1)) == {bases[0].backup.name}


def _manifest(of: WindowBase) -> BackupManifest:
    node, at = of.backup.node, of.finished_ms / 1000
    return BackupManifest(
        name=of.backup.name,
        cluster=CLUSTER.hex(),
        data_center="uk",
        worker="w",
        engine="oxigraph",
        place=ManifestPosition(1, node.index, node.hash.hex()),
        quads=1,
        graphs=0,
        digest="",
        parts=[],
        started=at,
        finished=at,
        why="schedule",
        retention="normal",
        version="0",
    )
