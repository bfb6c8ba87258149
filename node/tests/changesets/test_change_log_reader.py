"""Pages of a change log that its owner goes on to write, to cut and to prune."""

from __future__ import annotations

from pathlib import Path

import pytest

from txlog.changesets import CapturedEntry, ChangeLogReader, ChangeSet, ChangesGone
from txlog.changesets.change_log import ChangeLog
from txlog.changesets.change_record import FileHead, encode_large
from txlog.model.errors import LogAhead, LogDiverged, Unavailable

HASH = b"h" * 16


def hash_of(index: int, branch: int = 0) -> bytes:
    return bytes([branch]) + index.to_bytes(15, "big") if index else HASH


def append(log: ChangeLog, begin: int, end: int, branch: int = 0) -> None:
    for index in range(begin, end + 1):
        log.append_part(CapturedEntry(index, hash_of(index, branch)), ChangeSet(), index)
        change = ChangeSet((), (b"<x:%d> <x:p> <x:%d> ." % (index, branch),))
        log.append(CapturedEntry(index, hash_of(index, branch)), change, index)
    log.flush()


def made(folder: Path, count: int) -> tuple[ChangeLog, ChangeLogReader]:
    log = ChangeLog.create(folder, FileHead(0, HASH, HASH), 600)
    append(log, 1, count)
    return log, ChangeLogReader(folder)


def indexes(reader: ChangeLogReader, after: int, value: bytes | None, upto: int = 1 << 60, size: int = 1) -> list[int]:
    return [each.entry.index for each in reader.read(after, value, upto, size)[1]]


def test_pages_follow_each_other_over_files(tmp_path: Path) -> None:
    log, reader = made(tmp_path, 30)
    assert len(list(tmp_path.glob("*.changes"))) > 3
    seen: list[int] = []
    value = HASH
    while len(seen) < 30:
        found, records = reader.read(len(seen), value, 30, 60)
        assert found == value
        assert 1 <= len(records) <= 3
        seen += [each.entry.index for each in records]
        value = records[-1].entry.hash
    assert seen == list(range(1, 31))
    assert indexes(reader, 30, value) == []
    append(log, 31, 32)
    assert indexes(reader, 30, value, size=1 << 20) == [31, 32]
    assert indexes(reader, 12, None, upto=14, size=1 << 20) == [13, 14]
    log.close()


def test_what_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    log, reader = made(tmp_path, 30)
    with pytest.raises(LogAhead, match="above 30"):
        indexes(reader, 31, None)
    with pytest.raises(LogDiverged):
        indexes(reader, 7, hash_of(7, 1))
    log.prune(below=20, before_ms=1000)
    begin = log.begin.index
    assert 0 < begin <= 20
    with pytest.raises(ChangesGone, match=f"from index {begin + 1} on"):
        indexes(reader, begin - 1, None)
    assert indexes(reader, begin, hash_of(begin))[0] == begin + 1
    log.close()
    with pytest.raises(Unavailable):
        indexes(ChangeLogReader(tmp_path / "none"), 0, None)


def test_a_cut_log_gives_nothing_of_the_branch_that_was_given_up(tmp_path: Path) -> None:
    log, reader = made(tmp_path, 30)
    assert indexes(reader, 24, hash_of(24), size=1 << 20)[-1] == 30  # a reader at each of these places
    log.truncate(22)
    append(log, 23, 28, branch=1)
    for at in range(23, 31):
        with pytest.raises((LogDiverged, LogAhead)):
            indexes(reader, at, hash_of(at))
    found = reader.read(22, hash_of(22), 1 << 60, 1 << 20)[1]
    assert [each.entry.hash for each in found] == [hash_of(index, 1) for index in range(23, 29)]
    log.close()


def test_a_large_change_names_its_graphs_alone(tmp_path: Path) -> None:
    log, reader = made(tmp_path, 3)
    entry = CapturedEntry(4, hash_of(4))
    log.begin_large(entry, 4)
    log.append_large(entry, encode_large(ChangeSet((), (b"<x:a> <x:p> <x:o> .",)), {"x:g", ""}), 4)
    append(log, 5, 5)
    [large, small] = reader.read(3, hash_of(3), 9, 1 << 20)[1]
    assert (large.large_graphs, len(large.change_set), large.change_set.graphs) == (["", "x:g"], 0, ("", "x:g"))
    assert (small.large_graphs, len(small.change_set)) == ([], 1)
    other = ChangeLog.create(tmp_path / "other", FileHead(0, HASH, HASH))
    append(other, 1, 3)
    other.append_large(entry, encode_large(ChangeSet((), (b"<x:a> <x:p> <x:z> .",)), {"x:g", ""}), 4)
    assert other.end.chain != large.chain, "the hash of the lines is in the chain"
    log.close()


def test_a_file_gets_no_record_when_its_first_one_is_old(tmp_path: Path) -> None:
    log = ChangeLog(ChangeLog.create(tmp_path, FileHead(0, HASH, HASH))._folder, file_ms=100)
    for index, at_ms in ((1, 0), (2, 99), (3, 100), (4, 150), (5, 250)):
        log.append(CapturedEntry(index, hash_of(index)), ChangeSet(), at_ms)
    assert [path.name.lstrip("0") for path in sorted(tmp_path.glob("*.changes"))] == [
        ".changes",
        "2.changes",
        "4.changes",
    ]
    assert log.would_prune(100)
    log.prune(below=5, before_ms=100)
    assert log.begin.index == 2
    assert not log.would_prune(150)
    log.close()
    again = ChangeLog(tmp_path, file_ms=100)
    again.append(CapturedEntry(6, hash_of(6)), ChangeSet(), 351)
    assert again.begin.index == 2
    assert len(list(tmp_path.glob("*.changes"))) == 3
    again.close()
