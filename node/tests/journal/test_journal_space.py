"""A full disk refuses work and keeps room for the protocol's own records; a failing one ends the journal (rule 29)."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from journal_pen import BIRTHS, Pen, check_content, held_of, open_journal

from txlog.journal import Journal, MemoryVfs, OsVfs
from txlog.model.entry import RunItem, TransactionRun
from txlog.model.errors import JournalBroken, JournalDamaged, JournalFull
from txlog.model.hashes import content_hash
from txlog.model.records import CounterCeiling, StableAdvanced, TransactionsPersisted

SEGMENT_BYTES = 8192


def fill(journal: Journal, pen: Pen) -> int:
    """Work until it is refused; every second batch prepares spares, as an owner would."""
    count = 0
    while True:
        record = pen.held("a", 2)
        try:
            journal.append(record)
        except JournalFull:
            pen.seqs["a"] -= 2
            journal.sync()
            return count
        count += 1
        if count % 2:
            journal.sync()
            prepare = journal.begin_preallocation()
            if prepare is not None:
                prepare.run()
                journal.end_preallocation(prepare)


@pytest.mark.parametrize("capacity", [2, 3, 4, 7])
def test_work_is_refused_and_the_protocol_goes_on(capacity: int) -> None:
    files, pen = MemoryVfs(capacity * SEGMENT_BYTES + 100), Pen()
    journal, _ = open_journal(files, segment_bytes=SEGMENT_BYTES)
    assert journal.has_room_for_work == (capacity > 1)
    assert fill(journal, pen) > 10
    assert not journal.has_room_for_work
    for stamp in range(1, 15):
        journal.append([CounterCeiling(stamp), StableAdvanced(0)])
        journal.sync()
    assert not journal.has_room_for_work
    files.kill()
    journal, found = open_journal(files, segment_bytes=SEGMENT_BYTES)
    assert found.ceiling == 14
    assert held_of(found) == {"a": pen.seqs["a"]}


def test_the_reserve_is_a_whole_segment() -> None:
    files, pen = MemoryVfs(4 * SEGMENT_BYTES), Pen()
    journal, _ = open_journal(files, segment_bytes=SEGMENT_BYTES)
    fill(journal, pen)
    for stamp in range((SEGMENT_BYTES - 2048) // 200):
        journal.append(CounterCeiling(stamp))
        journal.sync()
    journal.append([CounterCeiling(stamp) for stamp in range(SEGMENT_BYTES // 100)])
    with pytest.raises(JournalBroken, match="no space left, not even in the reserve"):
        journal.sync()


def test_work_goes_on_when_there_is_space_again() -> None:
    files, pen = MemoryVfs(4 * SEGMENT_BYTES), Pen()
    journal, _ = open_journal(files, segment_bytes=SEGMENT_BYTES)
    fill(journal, pen)
    assert journal.bytes_free < SEGMENT_BYTES
    files.capacity += 3 * SEGMENT_BYTES
    assert journal.has_room_for_work
    assert journal.bytes_free > SEGMENT_BYTES
    assert fill(journal, pen) > 10
    check_content(journal, "a", 1, pen.seqs["a"])


def test_a_batch_is_refused_as_a_whole() -> None:
    files, pen = MemoryVfs(3 * SEGMENT_BYTES), Pen()
    journal, _ = open_journal(files, segment_bytes=SEGMENT_BYTES)
    fill(journal, pen)
    before = pen.seqs["a"]
    with pytest.raises(JournalFull, match="full up to the reserve"):
        journal.append([CounterCeiling(1), pen.held("a", 90), StableAdvanced(0)])
    assert not journal.dirty
    assert journal.read("a", BIRTHS["a"], before + 1, 1, 1).items == []


def test_others_fill_the_disk_between_plan_and_sync() -> None:
    """The batch was taken; the reserve has to hold it."""
    files, pen = MemoryVfs(9 * SEGMENT_BYTES), Pen()
    journal, _ = open_journal(files, segment_bytes=SEGMENT_BYTES)
    journal.append(pen.held("a", 80))
    journal.append(pen.held("a", 80))
    files.capacity = 0
    journal.sync()
    assert not journal.has_room_for_work
    check_content(journal, "a", 1, 160)


def test_a_transaction_larger_than_a_segment_gets_its_own() -> None:
    files = MemoryVfs()
    journal, _ = open_journal(files, segment_bytes=SEGMENT_BYTES)
    payload = bytes(range(256)) * 200
    run = TransactionRun("b", BIRTHS["b"], 1, [RunItem(1, 1, "", payload)])
    journal.append(TransactionsPersisted(run, content_hash(1, "", payload)))
    journal.append(CounterCeiling(7))
    journal.sync()
    files.kill()
    journal, found = open_journal(files, segment_bytes=SEGMENT_BYTES)
    assert journal.read("b", BIRTHS["b"], 1, 1, 1) == run
    assert found.ceiling == 7


def test_a_disk_too_small_to_begin_is_refused_by_name() -> None:
    with pytest.raises(JournalFull, match="no room for a segment"):
        open_journal(MemoryVfs(SEGMENT_BYTES - 1), segment_bytes=SEGMENT_BYTES)


def test_the_quota_of_a_real_folder(tmp_path: Path) -> None:
    files, pen = OsVfs(tmp_path, bytes_max=4 * SEGMENT_BYTES), Pen()
    journal, _ = Journal.open(files, node="a", draw_birth=lambda: 0xA, segment_bytes=SEGMENT_BYTES)
    fill(journal, pen)
    assert journal.bytes_used <= 4 * SEGMENT_BYTES
    journal.append(CounterCeiling(3))
    journal.sync()
    journal.close()


@pytest.mark.parametrize("operation", ["pwrite", "fdatasync", "rename", "sync_folder", "create"])
def test_a_failed_write_breaks_the_journal_for_good(operation: str) -> None:
    files, pen = MemoryVfs(), Pen()
    journal, _ = open_journal(files, segment_bytes=SEGMENT_BYTES)
    calls: list[str] = []

    def hook(name: str, file: str) -> None:
        calls.append(name)
        if name == operation:
            raise OSError(errno.EIO, "the disk is dying")

    files.hook = hook
    journal.append([pen.held("a", 60), pen.held("a", 60)])
    sync = journal.begin_sync()
    assert sync is not None
    with pytest.raises(JournalBroken, match="the disk is dying"):
        sync.run()
    done = len(calls)
    files.hook = None
    for attempt in (journal.begin_sync, lambda: journal.append(CounterCeiling(1))):
        with pytest.raises(JournalBroken, match="must end"):
            attempt()
    assert not journal.seal()
    assert journal.begin_preallocation() is None
    assert len(calls) == done, "nothing is tried again"


def test_a_failed_spare_breaks_the_journal_too() -> None:
    files = MemoryVfs()
    journal, _ = open_journal(files, segment_bytes=SEGMENT_BYTES)
    journal.append(Pen().held("a", 60))
    prepare = journal.begin_preallocation()
    assert prepare is not None
    assert journal.begin_preallocation() is None

    def hook(name: str, file: str) -> None:
        raise OSError(errno.EIO, "the disk is dying")

    files.hook = hook
    with pytest.raises(JournalBroken, match="the disk is dying"):
        prepare.run()
    with pytest.raises(JournalBroken):
        journal.begin_sync()


def test_one_process_per_folder(tmp_path: Path) -> None:
    for first, second in ((OsVfs(tmp_path), OsVfs(tmp_path)), (memory := MemoryVfs(), memory)):
        journal, _ = Journal.open(first, node="a", draw_birth=lambda: 0xA, segment_bytes=SEGMENT_BYTES)
        with pytest.raises(JournalDamaged, match="another process works in this folder"):
            Journal.open(second, node="a", draw_birth=lambda: 0xA, segment_bytes=SEGMENT_BYTES)
        journal.close()
        Journal.open(second, node="a", draw_birth=lambda: 0xA, segment_bytes=SEGMENT_BYTES)[0].close()


def test_a_folder_of_another_master_is_not_touched() -> None:
    files = MemoryVfs()
    open_journal(files)[0].close()
    before = files.dump()
    with pytest.raises(JournalDamaged, match=r"this folder is the journal of a\.000000000000000a"):
        Journal.open(files, node="b", draw_birth=lambda: 1)
    assert files.dump() == before
    open_journal(files)[0].close()
