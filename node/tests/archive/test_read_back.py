"""Files are read back before they count as verified, and what is damaged is written again from the masters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from archiver_runs import entries_to
from log_pieces import some
from test_archiver_decisions import FakeMaster, Ship

from txlog.archive.archiver import Archiver
from txlog.archive.file_name import FileName, Node
from txlog.archive.path import find_paths
from txlog.archive.read_back import REPAIR_RETRY_S, ReadBack
from txlog.telemetry.event_log import EventLog

LOG = some(20)


@pytest.fixture
def ship(tmp_path: Path) -> Ship:
    return Ship(tmp_path / "target")


def begun(ship: Ship, master: FakeMaster, known: list[Node] | None = None, floor: int = 0) -> tuple[Archiver, ReadBack]:
    """An archiver that writes one file for each entry."""
    archiver = ship.begin(master, file_bytes=1)
    masters: Any = [master]
    back = ReadBack(masters, EventLog("archiver", ship.output, 0), lambda: ship.now)
    back.begin(ship.stream, archiver._paths(), [], known or [], floor)
    archiver.on_file = back.add
    return archiver, back


def damage(ship: Ship, name: FileName, path: Path) -> None:
    file = next(each for each in path.rglob(f"{name}"))
    raw = bytearray(file.read_bytes())
    raw[-20] ^= 1
    file.write_bytes(raw)


def names(ship: Ship) -> list[FileName]:
    return [each.name for each in ship.stream.list_files()]


def test_a_file_counts_once_it_was_read_back(ship: Ship) -> None:
    master = FakeMaster("a", LOG[:5])
    archiver, back = begun(ship, master)
    ship.run(archiver)
    assert archiver.reported == master.node(5)
    assert back.verified == [master.node(0)]
    back.step()
    assert back.verified == [master.node(5)]


def test_a_flipped_bit_is_found_and_the_file_is_written_again(ship: Ship, tmp_path: Path) -> None:
    master = FakeMaster("a", LOG[:5])
    archiver, back = begun(ship, master)
    ship.run(archiver)
    damage(ship, names(ship)[2], tmp_path)
    back.step()
    assert ship.events("ArchiveFileRepaired") == 1
    assert back.verified == [master.node(5)]
    assert [each.attempt for each in names(ship) if each.first == 3] == [0, 1]
    assert [e.index for e in entries_to(ship.stream, master.node(5))] == [1, 2, 3, 4, 5]


def test_what_no_master_has_stays_unverified_and_is_tried_again(ship: Ship, tmp_path: Path) -> None:
    master = FakeMaster("a", LOG[:5])
    archiver, back = begun(ship, master)
    ship.run(archiver)
    damage(ship, names(ship)[2], tmp_path)
    master.is_away = True
    back.step()
    assert back.verified == [master.node(2)]
    master.is_away = False
    back.step()
    assert back.verified == [master.node(2)]  # not yet
    ship.now += REPAIR_RETRY_S
    back.step()
    assert back.verified == [master.node(5)]


@pytest.mark.parametrize("is_trimmed", [False, True])
def test_what_no_master_has_any_more_holds_nothing_back(ship: Ship, tmp_path: Path, is_trimmed: bool) -> None:
    """Trimmed, or of a side whose order is over. Masters would keep the log for it until their disks are full."""
    master = FakeMaster("a", LOG[:4])
    archiver, back = begun(ship, master)
    ship.run(archiver)
    back.step()
    master.entries = LOG[:8] if is_trimmed else [*LOG[:4], *some(4, master.node(4), "b")]
    ship.run(archiver)
    damage(ship, next(each for each in names(ship) if each.first == 6), tmp_path)
    if is_trimmed:
        master.begin = 7
    else:
        master.entries = LOG[:8]
    back.step()
    assert ship.events("ArchiveFileLost") == 1
    assert ship.events("ArchiveFileRepaired") == 0
    ship.run(archiver, 20)
    back.step()
    assert back.verified[0] == master.node(8), "what follows counts again"
    assert ship.events("ArchiveFileLost") == 1


def test_a_restart_reads_only_what_masters_do_not_know_to_be_verified(ship: Ship, tmp_path: Path) -> None:
    master = FakeMaster("a", LOG[:5])
    archiver, _ = begun(ship, master)
    ship.run(archiver)
    damage(ship, names(ship)[0], tmp_path)
    _, back = begun(ship, master, known=[master.node(3)])
    assert back.verified == [master.node(3)]
    back.step()
    assert back.verified == [master.node(5)]
    assert ship.events("ArchiveFileRepaired") == 0
    _, back = begun(ship, master, floor=1)  # it is trimmed: no master could write it again
    assert back.verified == [master.node(1)]
    _, back = begun(ship, master)
    back.step()
    assert ship.events("ArchiveFileRepaired") == 1
    assert back.verified == [master.node(5)]


def test_each_branch_has_its_own_place(ship: Ship) -> None:
    master = FakeMaster("a", LOG[:6])
    archiver, back = begun(ship, master)
    ship.run(archiver)
    back.step()
    other = some(4, master.node(3), "b")
    master.entries = [*LOG[:3], *other]
    ship.run(archiver, 20)
    assert find_paths(names(ship), [master.node(0)]).heads == [master.node(7), Node(6, LOG[5].hash)]
    back.step()
    assert back.verified == [master.node(7), Node(6, LOG[5].hash)]
    assert master.node(7) in archiver.places
