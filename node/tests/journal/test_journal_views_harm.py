"""Damage around view changes (rules 28, 34): of what an accepted view has changed one good copy is enough; without one
the journal is refused by name. Everything else is fetched from others, as far as it is still part of the log."""

from __future__ import annotations

import random
from functools import cache
from itertools import combinations

import pytest
from journal_pen import BIRTHS, Pen, check_content, founding, open_journal, stamped

from txlog.journal import Journal, MemoryVfs, check_journal
from txlog.journal import format as fmt
from txlog.model.entry import Span
from txlog.model.errors import JournalDamaged
from txlog.model.records import (
    CounterCeiling,
    Damage,
    LogAppended,
    RecoveredState,
    StableAdvanced,
    TransactionsPersisted,
    ViewLeft,
    ViewPromised,
)

SEGMENT_BYTES = 4096


@cache
def life() -> tuple[dict[str, bytes], Pen]:
    """View changes of every kind, sealed: a cut in the middle of spans and of a Held record, to 0, of nothing, twice in
    a row without an install; new stamps of parts of records, over others, of what was held without one; a leave."""
    files, pen = MemoryVfs(), Pen()
    journal, _ = open_journal(files, segment_bytes=SEGMENT_BYTES)

    def write(*records: object) -> None:
        journal.append(list(records))  # pyright: ignore[reportArgumentType]
        journal.sync()

    write(pen.held("a", 2, late=True), ViewPromised(1, 1, "a"))
    write(pen.accepted(0, stamped=[stamped("a", 1, [70, 71])]), pen.installed(), CounterCeiling(5000))
    write(pen.held("b", 6), pen.held("a", 4), pen.held("c", 3))
    write(pen.added(("a", 2), ("b", 4), stable=1))
    write(pen.added(("c", 2), ("a", 3), stable=2), ViewPromised(2, 3, "c"), pen.held("a", 2, late=True))
    write(pen.accepted(4, ("c", 3), ("b", 2), stamped=[stamped("b", 3, [900, 901, 902, 903])]))
    write(pen.accepted(4, ("a", 1), ("c", 1), stamped=[stamped("b", 4, [1000, 1001]), stamped("a", 3, [1 << 63] * 6)]))
    write(pen.installed(), CounterCeiling(9000))
    write(pen.held("b", 3), pen.added(("a", 2), ("b", 2)), pen.added(("c", 2)))
    write(pen.accepted(0, ("c", 1), ("a", 6), ("b", 5), stamped=[stamped("c", 1, [3, 4, 5])]), pen.installed())
    write(pen.added(("b", 1), ("c", 1)), StableAdvanced(13))
    write(pen.accepted(len(pen.log)), pen.installed(), pen.held("c", 2), ViewLeft(pen.number, 1, "a"))
    assert journal.seal()
    journal.close()
    return files.dump(), pen


def disk() -> MemoryVfs:
    return MemoryVfs.load(life()[0])


def records(files: MemoryVfs) -> list[tuple[str, fmt.FramedRecord]]:
    """Every good record but the first start and the seals, with its file."""
    found = []
    for name, data in files.dump().items():
        kind, number = fmt.parse_name(name) or ("", 0)
        if kind == "segment":
            offset = 0
            while (offset := data.find(fmt.RECORD_MARK, offset)) >= 0:
                record = fmt.read_record(data, offset, fmt.segment_seed(0xA, number))
                if record is not None and record.kind not in (fmt.STARTED, fmt.SEAL):
                    found.append((name, record))
                offset += record.length if record is not None else 1
    return found


def answer(damage: Damage, pen: Pen) -> tuple[list[TransactionsPersisted], LogAppended | None]:
    """What another master would send, which knows everything as it is now."""
    runs = [pen.held_again(span.node, span.first_seq, span.count) for span in damage.spans]
    a, b = damage.log_from, damage.log_to
    spans = [Span(node, BIRTHS[node], seq, 1) for node, seq in pen.log[a - 1 : b]]
    return runs, LogAppended(a, spans, b"".join(pen.hashes[a - 1 : b]), 0) if a <= b else None


def mend(journal: Journal, pen: Pen | None = None) -> None:
    for damage in list(journal.damage):
        runs, order = answer(damage, pen or life()[1])
        journal.repair(damage, [one.run for one in runs], [one.contents for one in runs], order)
    journal.sync()
    assert journal.damage == []
    journal.close()


def reopened(files: MemoryVfs) -> RecoveredState:
    journal, found = open_journal(files, segment_bytes=SEGMENT_BYTES)
    if not found.damage:
        for node, last in life()[1].seqs.items():
            check_content(journal, node, 1, last, pen=life()[1])
    journal.close()
    return found


@cache
def right() -> RecoveredState:
    found = reopened(disk())
    assert found.damage == []
    pen = life()[1]
    assert bytes(found.log_hashes) == b"".join(pen.hashes)
    assert (found.promised, found.left) == ((5, 1, "a"), (5, 1, "a"))
    return found


def check_promises(found: RecoveredState) -> None:
    """They are known whatever is damaged."""
    for name in ("accepted_number", "promised", "left", "ceiling", "stable"):
        assert getattr(found, name) == getattr(right(), name), name


def check_mended(found: RecoveredState) -> None:
    for name in right().__struct_fields__:
        if name == "start" or (found.accepted is None and name in ("accepted", "installed")):
            continue
        assert getattr(found, name) == getattr(right(), name), name


def changes_lost(broken: list[fmt.FramedRecord]) -> bool:
    """Whether no copy of a change is left among the records of the life."""
    whole = {record.b for _, record in records(disk()) if record.kind == fmt.VIEW_ACCEPTED and record.b}
    numbers = {record.number for record in broken}
    left = {r.b for _, r in records(disk()) if r.kind == fmt.VIEW_ACCEPTED and r.number not in numbers}
    return bool(whole - left)


def break_and_mend(broken: list[tuple[str, fmt.FramedRecord]]) -> bool:
    """False: refused by name."""
    files = disk()
    for name, record in broken:
        files.flip_bit(name, record.offset + 30, 3)
    if changes_lost([record for _, record in broken]):
        before = files.dump()
        with pytest.raises(
            JournalDamaged, match=r"both copies of the accepted view .* \(case V\).* Next: bring the file"
        ):
            open_journal(files, segment_bytes=SEGMENT_BYTES)
        assert {k: v for k, v in files.dump().items() if "segment" in k} == {
            k: v for k, v in before.items() if "segment" in k
        }
        assert "case V" in check_journal(files).refused
        return False
    journal, found = open_journal(files, segment_bytes=SEGMENT_BYTES)
    assert {n for d in found.damage for n in range(d.first, d.last + 1)} == {record.number for _, record in broken}
    check_promises(found)
    mend(journal)
    check_mended(reopened(files))
    return True


def test_the_life_has_what_is_to_be_broken() -> None:
    kinds = [record.kind for _, record in records(disk())]
    assert set(kinds) == set(range(1, 12)) - {fmt.STARTED, fmt.SEAL, fmt.REPAIRED}
    assert kinds.count(fmt.VIEW_ACCEPTED) == 10
    assert len({name for name, _ in records(disk())}) > 2
    changes = [record.b for _, record in records(disk()) if record.kind == fmt.VIEW_ACCEPTED]
    assert changes == [1, 1, 2, 2, 3, 3, 4, 4, 0, 0]
    right()


def test_every_record_and_every_pair_of_records() -> None:
    all_records = records(disk())
    broken = [[one] for one in all_records] + [list(pair) for pair in combinations(all_records, 2)]
    ends = [break_and_mend(these) for these in broken]
    assert ends.count(False) == 4


@pytest.mark.parametrize("seed", range(6))
def test_many_records_at_once(seed: int) -> None:
    rng = random.Random(seed)
    ends = []
    for _ in range(60):
        all_records = records(disk())
        first = rng.randrange(len(all_records))
        row = all_records[first : first + rng.randrange(1, 9)]
        row += [one for one in rng.sample(all_records, rng.randrange(3)) if one not in row]
        ends.append(break_and_mend(row))
    assert set(ends) == {True, False}


def test_whole_segments_are_lost() -> None:
    """Both copies of most changes stand in one segment."""
    names = sorted({name for name, _ in records(disk())})
    ends = set()
    for name in names[:-1]:
        files = disk()
        files.erase(name)
        if changes_lost([record for place, record in records(disk()) if place == name]):
            with pytest.raises(JournalDamaged, match="case V"):
                open_journal(files, segment_bytes=SEGMENT_BYTES)
            ends.add("refused")
        else:
            journal, found = open_journal(files, segment_bytes=SEGMENT_BYTES)
            check_promises(found)
            mend(journal)
            check_mended(reopened(files))
            ends.add("mended")
    assert "refused" in ends


def test_flips_one_after_the_other_never_cost_a_change() -> None:
    """Each repair leaves two copies of what nobody could send."""
    for change in range(1, 5):
        files = disk()
        for _ in range(3):
            copies = [(n, r) for n, r in records(files) if r.kind == fmt.VIEW_ACCEPTED and r.b == change]
            assert len(copies) == 2
            name, record = copies[0]
            files.flip_bit(name, record.offset + 30, 3)
            journal, found = open_journal(files, segment_bytes=SEGMENT_BYTES)
            assert found.damage
            check_promises(found)
            mend(journal)
            check_mended(reopened(files))


def test_a_hole_that_was_cut_off_needs_no_order() -> None:
    """Its transactions are missing all the same; the entry behind a hole that was cut in the middle counts with it."""
    found = {}
    for name, record in records(disk()):
        files = disk()
        files.flip_bit(name, record.offset + 30, 3)
        (damage,) = open_journal(files, segment_bytes=SEGMENT_BYTES)[1].damage
        found[record.number] = damage
    added = [record for _, record in records(disk()) if record.kind == fmt.ADDED]
    assert [found[record.number].log_to for record in added[:4]] == [0, 0, 0, 0], "the third view begins at 0"
    assert [(found[r.number].log_from, found[r.number].log_to) for r in added[4:]] == [(13, 14)]


@pytest.mark.parametrize("lost", [("Added",), ("Added", "copy 1"), ("Added", "copy 2"), ("copy 1",)])
@pytest.mark.parametrize("goes_on", [True, False])
def test_a_cut_inside_of_a_hole(lost: tuple[str, ...], goes_on: bool) -> None:
    """The hash at the cut is that of the base, or is proved by the entry behind it, which counts as damaged, too."""
    files, pen = MemoryVfs(), Pen()
    journal, _ = open_journal(files, segment_bytes=SEGMENT_BYTES)
    journal.append([*founding(), pen.held("a", 9), pen.added(("a", 2)), pen.held("b", 7)])
    pen.number = 1
    journal.append([pen.added(("a", 3), ("b", 3), stable=1)])
    pieces, new = ((("b", 2), ("a", 2)), [stamped("b", 1, [5, 6, 7])]) if goes_on else ((), [])
    journal.append([pen.accepted(4, *pieces, stamped=new), pen.installed(), pen.added(("a", 1))])
    journal.sync()
    assert journal.seal()
    journal.close()
    wanted = open_journal(MemoryVfs.load(files.dump()), segment_bytes=SEGMENT_BYTES)[1]
    added = [(name, record) for name, record in records(files) if record.kind == fmt.ADDED]
    copies = [(name, record) for name, record in records(files) if record.kind == fmt.VIEW_ACCEPTED and record.b]
    broken = {"Added": added[1], "copy 1": copies[0], "copy 2": copies[1]}
    for name, record in (broken[one] for one in lost):
        files.flip_bit(name, record.offset + 30, 3)
    journal, found = open_journal(files, segment_bytes=SEGMENT_BYTES)
    ranges = [(d.log_from, d.log_to) for d in found.damage if d.log_from <= d.log_to]
    assert ranges == ([(3, 5 if goes_on else 4)] if "Added" in lost else [])
    assert (found.stable, found.log_hashes[-16:]) == (wanted.stable, wanted.log_hashes[-16:])
    mend(journal, pen)
    again = open_journal(files, segment_bytes=SEGMENT_BYTES)[1]
    for name in set(wanted.__struct_fields__) - {"start"}:
        assert getattr(again, name) == getattr(wanted, name), name


def write_small(*, sealed: bool) -> dict[str, bytes]:
    files, pen = MemoryVfs(), Pen()
    journal, _ = open_journal(files, segment_bytes=SEGMENT_BYTES)
    journal.append([*founding(), pen.held("b", 3), pen.held("a", 2, late=True)])
    pen.number = 1
    journal.append([pen.added(("b", 3), stable=1), ViewPromised(2, 1, "a")])
    journal.sync()
    journal.append(pen.accepted(1, ("b", 1), ("a", 1), stamped=[stamped("b", 2, [7, 8]), stamped("a", 1, [9, 10])]))
    journal.sync()
    journal.append([pen.installed(), CounterCeiling(77)])
    journal.sync()
    journal.append([pen.added(("a", 1)), ViewLeft(2, 1, "a")])
    journal.sync()
    if sealed:
        assert journal.seal()
    return {name: data for name, data in files.dump().items() if name.startswith("segment")}


def judge(files: MemoryVfs, whole: RecoveredState) -> str:
    try:
        journal, found = open_journal(files, segment_bytes=SEGMENT_BYTES)
    except JournalDamaged as error:
        return "refused" if "Next:" in str(error) else "refused without a next step"
    told = [getattr(found, name) for name in ("accepted_number", "promised", "left", "ceiling", "stable", "start")]
    wanted = [getattr(whole, name) for name in ("accepted_number", "promised", "left", "ceiling", "stable", "start")]
    if not found.damage and told != wanted:
        return "cut"
    assert told == wanted
    holes = {i for damage in found.damage for i in range(damage.log_from, damage.log_to + 1)}
    assert len(found.log_hashes) == len(whole.log_hashes)
    for i in range(len(whole.log_hashes) // 16):
        assert i + 1 in holes or found.log_hashes[16 * i : 16 * i + 16] == whole.log_hashes[16 * i : 16 * i + 16]
    for node, seq, stamp in (("b", 1, 1011), ("b", 2, 7), ("b", 3, 8), ("a", 1, 9), ("a", 2, 10)):
        try:
            assert [item.stamp for item in journal.read(node, 0xA + (node == "b"), seq, 1, 1).items] == [stamp]
        except JournalDamaged:
            assert found.damage
    return "damage" if found.damage else "complete"


def test_every_byte_flipped_and_every_length() -> None:
    data = write_small(sealed=True)
    _, whole = open_journal(MemoryVfs.load(data), segment_bytes=SEGMENT_BYTES)
    assert whole.left == whole.promised == whole.accepted_number == (2, 1, "a")
    last, seen = max(data), set()
    for name, content in data.items():
        for offset in range(len(content.rstrip(b"\0"))):
            files = MemoryVfs.load(data)
            files.flip_bit(name, offset, offset % 8)
            seen.add(judge(files, whole))
    assert seen == {"complete", "damage"}
    for name in data:
        ends = set()
        for length in range(0, SEGMENT_BYTES, 4):
            files = MemoryVfs.load(data)
            files.truncate(name, length)
            ends.add(judge(files, whole))
        assert ends == ({"complete", "refused"} if name == last else {"complete", "damage"})


def test_every_byte_flipped_behind_the_last_promise_cuts_the_last_batch_only() -> None:
    data = write_small(sealed=False)
    _, whole = open_journal(MemoryVfs.load(data), segment_bytes=SEGMENT_BYTES)
    last, seen = max(data), set()
    for offset in range(1000, len(data[last].rstrip(b"\0"))):
        files = MemoryVfs.load(data)
        files.flip_bit(last, offset, offset % 8)
        seen.add(judge(files, whole))
    assert seen == {"complete", "damage", "cut"}


def test_a_view_that_only_headers_tell_is_written_again() -> None:
    """It changes nothing, so both of its copies may be lost; the header behind them has it."""
    files, pen = MemoryVfs(), Pen()
    journal, _ = open_journal(files, segment_bytes=SEGMENT_BYTES)
    journal.append([*founding(), pen.held("a", 40)])
    journal.sync()
    assert journal.seal()
    journal.close()
    for name, record in [(n, r) for n, r in records(files) if r.kind == fmt.VIEW_ACCEPTED]:
        files.flip_bit(name, record.offset + 30, 3)
    journal, found = open_journal(files, segment_bytes=SEGMENT_BYTES)
    assert found.damage
    assert found.installed is not None
    mend(journal, pen)
    assert len([record for _, record in records(files) if record.kind == fmt.VIEW_ACCEPTED]) == 2


def test_a_copy_that_a_crash_has_cost_is_written_again() -> None:
    files, pen = MemoryVfs(), Pen()
    journal, _ = open_journal(files, segment_bytes=SEGMENT_BYTES)
    journal.append([*founding(), pen.held("a", 4), pen.held("b", 4), pen.added(("a", 4))])
    journal.sync()
    pen.number = 1
    journal.append(pen.accepted(1, ("b", 4)))
    sync = journal.begin_sync()
    assert sync is not None
    sync.run()
    files.kill()
    copies = [(name, record) for name, record in records(files) if record.kind == fmt.VIEW_ACCEPTED and record.b]
    files.flip_bit(copies[1][0], copies[1][1].offset + 30, 3)
    journal, found = open_journal(files, segment_bytes=SEGMENT_BYTES)
    assert found.damage == [], "the last batch was never promised"
    assert found.accepted_number == (2, 1, "a")
    assert len([r for _, r in records(files) if r.kind == fmt.VIEW_ACCEPTED and r.b]) == 2
    journal.close()
    assert len([r for _, r in records(files) if r.kind == fmt.VIEW_ACCEPTED and r.b]) == 2
