"""Every byte of a small journal flipped, every file cut at every length (rule 28): what was synced is complete, or the
loss is named; what can be read is right."""

from __future__ import annotations

from functools import cache

import pytest
from journal_pen import BIRTHS, Pen, founding, held_of, item, open_journal

from txlog.journal import MemoryVfs
from txlog.model.errors import JournalDamaged
from txlog.model.records import CounterCeiling, RecoveredState, StableAdvanced

SEGMENT_BYTES = 4096
NAMES = ["segment-0000000001", "segment-0000000002"]


@cache
def disk(*, sealed: bool) -> dict[str, bytes]:
    """Two segments of every kind of record; the last batch has two."""
    files, pen = MemoryVfs(), Pen()
    journal, _ = open_journal(files, segment_bytes=SEGMENT_BYTES)
    journal.append([*founding(), CounterCeiling(5000)])
    journal.sync()
    for node in ("a", "c"):
        journal.append(pen.held(node, 3))
        journal.sync()
        journal.append([pen.added((node, 2)), pen.held("b", 1)])
        journal.sync()
    journal.append([pen.held("a", 2), StableAdvanced(4)])
    journal.sync()
    if sealed:
        assert journal.seal()
    segments = {name: data for name, data in files.dump().items() if name.startswith("segment")}
    assert list(segments) == NAMES
    return segments


@cache
def whole() -> RecoveredState:
    _, recovered = open_journal(MemoryVfs.load(disk(sealed=True)), segment_bytes=SEGMENT_BYTES)
    assert not recovered.damage
    return recovered


@cache
def without_last_batch() -> dict[str, int]:
    return {**held_of(whole()), "a": held_of(whole())["a"] - 2}


def judge(files: MemoryVfs, *, sealed: bool) -> str:
    """What became of it; fails where something is lost in silence or wrong."""
    try:
        journal, found = open_journal(files, segment_bytes=SEGMENT_BYTES)
    except JournalDamaged as error:
        return "refused" if "Next:" in str(error) else "refused without a next step"
    right = whole()
    if found.damage:
        assert (found.ceiling, found.stable, found.start) == (right.ceiling, right.stable, right.start)
        assert found.accepted_number == right.accepted_number
        _readable_or_named(journal.read, held_of(right))
        _order_right_or_named(found, right)
        return "damage"
    if held_of(found) == held_of(right):
        _same(found, right)
        _all_readable(journal.read, held_of(right))
        return "complete"
    assert not sealed, "a synced record is gone and nobody says so"
    assert held_of(found) == without_last_batch()
    _all_readable(journal.read, held_of(found))
    return "cut"


def _same(found: RecoveredState, right: RecoveredState) -> None:
    for name in right.__struct_fields__:
        if name not in ("start", "damage"):
            assert getattr(found, name) == getattr(right, name), name


def _all_readable(read, held: dict[str, int]) -> None:
    for node, last in held.items():
        assert read(node, BIRTHS[node], 1, 1000, 1 << 20).items == [item(node, seq) for seq in range(1, last + 1)]


def _readable_or_named(read, held: dict[str, int]) -> None:
    for node, last in held.items():
        for seq in range(1, last + 1):
            try:
                run = read(node, BIRTHS[node], seq, 1, 1 << 20)
            except JournalDamaged:
                continue
            assert run.items == [item(node, seq)], (node, seq)


def _order_right_or_named(found: RecoveredState, right: RecoveredState) -> None:
    assert len(found.log_hashes) == len(right.log_hashes)
    missing = {i for damage in found.damage for i in range(damage.log_from, damage.log_to + 1)}
    for i in range(len(right.log_hashes) // 16):
        if i + 1 not in missing:
            assert found.log_hashes[16 * i : 16 * i + 16] == right.log_hashes[16 * i : 16 * i + 16]


@pytest.mark.parametrize("name", NAMES)
def test_every_byte_flipped_in_a_sealed_journal(name: str) -> None:
    seen = set()
    for offset in range(len(disk(sealed=True)[name])):
        files = MemoryVfs.load(disk(sealed=True))
        files.flip_bit(name, offset, offset % 8)
        seen.add(judge(files, sealed=True))
    assert seen == {"complete", "damage"}


def test_every_byte_flipped_behind_the_last_promise_cuts_the_last_batch_only() -> None:
    seen = set()
    for offset in range(1000, len(disk(sealed=False)[NAMES[-1]])):
        files = MemoryVfs.load(disk(sealed=False))
        files.flip_bit(NAMES[-1], offset, offset % 8)
        seen.add(judge(files, sealed=False))
    assert seen == {"complete", "damage", "cut"}


@pytest.mark.parametrize("name", NAMES)
def test_every_length(name: str) -> None:
    seen = set()
    for length in range(0, SEGMENT_BYTES, 4):
        files = MemoryVfs.load(disk(sealed=True))
        files.truncate(name, length)
        seen.add(judge(files, sealed=True))
    assert seen == ({"complete", "refused"} if name == NAMES[-1] else {"complete", "damage"})


def test_every_sector_zeroed() -> None:
    """A write that never reached the disk although the disk said so."""
    seen = set()
    for name in NAMES:
        for sector in range(SEGMENT_BYTES // 512):
            damaged = {other: bytearray(data) for other, data in disk(sealed=True).items()}
            damaged[name][sector * 512 : sector * 512 + 512] = bytes(512)
            seen.add(judge(MemoryVfs.load({n: bytes(d) for n, d in damaged.items()}), sealed=True))
    assert seen == {"complete", "damage"}
