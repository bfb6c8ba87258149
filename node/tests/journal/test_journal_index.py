"""Indexes of sealed segments: a start that uses them tells what one tells that reads all, whatever befalls them."""

from __future__ import annotations

import errno

import msgspec
import pytest
from journal_pen import (
    BIRTHS,
    SEGMENT_BYTES,
    Pen,
    check_content,
    founding,
    open_journal,
    stamped,
)

from txlog.journal import Journal, MemoryVfs, SimulatedCrash, check_journal
from txlog.journal import format as fmt
from txlog.journal.scan import JournalScan, scan_journal
from txlog.journal.scrubber import RECORD_OVERHEAD_BYTES, SCRUB_CHUNK_BYTES
from txlog.journal.segment_index import IndexBlock, decode_index, encode_index, index_name
from txlog.model.errors import JournalBroken, JournalDamaged
from txlog.model.records import LogStart, LogTrimmed, RecoveredState, StableAdvanced, ViewLeft, ViewPromised


def survey_all(journal: Journal) -> int:
    """As the loop does it, until nothing is left; how many segments were read."""
    count = 0
    while (survey := journal.begin_scrub()) is not None:
        survey.run()
        journal.end_scrub(survey)
        count += survey.done
    return count


def write(journal: Journal, pen: Pen, rounds: int, *, surveys: bool = True) -> None:
    """A life: runs of three masters, an order, now and then a view that cuts the log and gives new stamps."""
    for turn in range(rounds):
        for node in BIRTHS:
            journal.append(pen.held(node, 1 + turn % 3))
        logged = pen.logged
        journal.append(pen.added(*[(node, pen.seqs[node] - logged[node]) for node in BIRTHS], stable=0))
        journal.sync()
        if turn % 8 == 5:
            cut = len(pen.log) - 2
            journal.append(pen.accepted(cut, stamped=[stamped("b", pen.seqs["b"], [10**6 + turn])]))
            journal.append(pen.installed())
            journal.append(ViewPromised(pen.number + 5, 1, "b"))
            journal.append(ViewLeft(pen.number, 1, "a"))
            journal.sync()
        if turn % 4 == 1:
            journal.append(StableAdvanced(len(pen.log) - 3))
            journal.sync()
        journal.seal()
        if surveys:
            survey_all(journal)


def grown(rounds: int = 24, *, surveys: bool = True) -> tuple[MemoryVfs, Pen]:
    files, pen = MemoryVfs(), Pen()
    journal, _ = open_journal(files)
    pen.number = 1
    journal.append(founding())
    journal.sync()
    write(journal, pen, rounds, surveys=surveys)
    journal.close()
    return files, pen


def indexes(files: MemoryVfs) -> list[str]:
    return [name for name in files.list() if name.startswith("index")]


def segments(files: MemoryVfs) -> list[str]:
    return [name for name in files.list() if name.startswith("segment")]


def told(files: MemoryVfs) -> RecoveredState:
    """What a start tells, on a copy."""
    copy = MemoryVfs.load(files.dump())
    journal, recovered = open_journal(copy)
    journal.close()
    return recovered


def told_without(files: MemoryVfs) -> RecoveredState:
    return told(MemoryVfs.load({name: data for name, data in files.dump().items() if not name.startswith("index")}))


def same(one: RecoveredState, other: RecoveredState) -> bool:
    return msgspec.structs.asdict(one) == msgspec.structs.asdict(other)


def scanned(files: MemoryVfs) -> JournalScan:
    found = scan_journal(files, SEGMENT_BYTES)
    assert found is not None
    return found


def test_a_start_by_indexes_tells_what_a_start_that_reads_all_tells() -> None:
    files, pen = grown()
    assert len(indexes(files)) == len(segments(files)) - 1 > 5
    found = scanned(files)
    assert found.indexed_segments == [fmt.parse_name(name)[1] for name in segments(files)[:-1]]  # type: ignore[index]
    recovered = told(files)
    assert same(recovered, told_without(files))
    assert recovered.keys
    journal, _ = open_journal(files)
    for node, last in pen.seqs.items():
        check_content(journal, node, 1, last, pen=pen)
    write(journal, pen, 3)
    journal.close()
    assert same(told(files), told_without(files))


def test_only_the_tail_is_read_of_a_journal_whose_segments_have_indexes() -> None:
    files, _ = grown()
    read: list[tuple[str, int]] = []
    opened = files.open

    class Watched:
        def __init__(self, name: str) -> None:
            self.name, self.file = name, opened(name)

        def __getattr__(self, what: str) -> object:
            return getattr(self.file, what)

        def pread(self, offset: int, count: int) -> bytes:
            read.append((self.name, count))
            return self.file.pread(offset, count)

    files.open = Watched  # type: ignore[method-assign,assignment]
    scanned(files)
    whole = {name for name, count in read if name.startswith("segment") and count == SEGMENT_BYTES}
    assert whole == {segments(files)[-1]}


def test_a_journal_without_indexes_gets_them_while_its_master_runs() -> None:
    files, _ = grown(surveys=False)
    assert not indexes(files)
    journal, recovered = open_journal(files)
    assert survey_all(journal) == len(segments(files)) - 1
    journal.close()
    assert len(indexes(files)) == len(segments(files)) - 1
    again = told(files)
    assert (again.log_hashes, again.log_spans) == (recovered.log_hashes, recovered.log_spans)
    assert same(again, told_without(files))


def test_every_byte_of_an_index_flipped_and_every_length_of_it() -> None:
    files, _ = grown(8)
    name = indexes(files)[1]
    wanted = told_without(files)
    dump = files.dump()
    for at in range(len(dump[name])):
        data = bytearray(dump[name])
        data[at] ^= 1 << at % 8
        harmed = MemoryVfs.load(dump | {name: bytes(data)})
        assert any(note.startswith(name) for note in scanned(harmed).notes), at
        assert same(told(harmed), wanted), at
    for length in range(len(dump[name])):
        harmed = MemoryVfs.load(dump | {name: dump[name][:length]})
        assert fmt.parse_name(name)[1] not in scanned(harmed).indexed_segments  # type: ignore[index]
        assert same(told(harmed), wanted), length


def test_a_broken_index_is_made_anew() -> None:
    files, _ = grown(8)
    name = indexes(files)[0]
    whole = files.dump()[name]
    files.flip_bit(name, 200, 3)
    journal, _ = open_journal(files)
    survey_all(journal)
    journal.close()
    assert files.dump()[name] == whole
    assert not scanned(files).notes


def test_the_index_of_another_segment_or_of_another_journal_is_passed_over() -> None:
    files, _ = grown(10)
    _other, _ = grown(10)
    journal, recovered = Journal.open(MemoryVfs(), node="a", draw_birth=lambda: 0xA1, segment_bytes=SEGMENT_BYTES)
    journal.close()
    assert recovered.birth == 0xA1
    wanted = told_without(files)
    dump, names = files.dump(), indexes(files)
    exchanged = dump | {names[0]: dump[names[1]], names[1]: dump[names[0]]}
    found = decode_index(dump[names[2]])
    assert found is not None
    born = encode_index(found.identity._replace(birth=0xA1), found.events, bytes(found.hashes))
    longer = encode_index(found.identity._replace(end=found.identity.end + 1), found.events, bytes(found.hashes))
    chained = encode_index(found.identity._replace(chain_after=bytes(16)), found.events, bytes(found.hashes))
    before = encode_index(found.identity._replace(chain_before=bytes(16)), found.events, bytes(found.hashes))
    for harmed in (exchanged, *(dump | {names[2]: made} for made in (born, longer, chained, before))):
        loaded = MemoryVfs.load(harmed)
        assert [note for note in scanned(loaded).notes if note.startswith("index")]
        assert same(told(loaded), wanted)


def test_an_index_of_a_later_version_is_passed_over() -> None:
    files, _ = grown(8)
    name = indexes(files)[0]
    data = bytearray(files.dump()[name])
    data[12] = 2
    data[8:12] = fmt.crc32(data[12:]).to_bytes(4, "little")
    harmed = MemoryVfs.load(files.dump() | {name: bytes(data)})
    assert any(note.startswith(name) for note in scanned(harmed).notes)
    assert same(told(harmed), told_without(files))


def test_an_index_that_is_whole_and_tells_what_cannot_be_is_passed_over() -> None:
    files, _ = grown(10)
    name = indexes(files)[2]
    wanted = told_without(files)
    found = decode_index(files.dump()[name])
    assert found is not None
    at = next(at for at, event in enumerate(found.events) if isinstance(event, IndexBlock) and event.origins)
    for change in ("missing", "last", "first", "hash"):
        events, hashes = list(found.events), bytearray(found.hashes)
        block = events[at]
        assert isinstance(block, IndexBlock)
        rows = block.origins[0]
        if change == "missing":
            del events[at]
        elif change == "last":
            rows = msgspec.structs.replace(rows, last=rows.last + 1)
        elif change == "first":
            rows = msgspec.structs.replace(rows, firsts=(77).to_bytes(8, "little") + rows.firsts[8:])
        else:
            hashes[-1] ^= 1
        if change in ("last", "first"):
            events[at] = msgspec.structs.replace(block, origins=[rows, *block.origins[1:]])
        harmed = MemoryVfs.load(files.dump() | {name: encode_index(found.identity, events, hashes)})
        assert any("contradicts" in note for note in scanned(harmed).notes), change
        assert same(told(harmed), wanted), change


def test_a_header_that_is_damaged_is_not_replaced_by_an_index() -> None:
    files, _ = grown(10)
    name = segments(files)[2]
    for copy in (0, 512):
        files.flip_bit(name, copy + 60, 2)
    journal, recovered = open_journal(files)
    assert [damage.where for damage in recovered.damage]
    journal.close()


def test_a_segment_that_lost_its_end_is_read() -> None:
    files, _ = grown(10)
    files.truncate(segments(files)[2], SEGMENT_BYTES // 2)
    journal, recovered = open_journal(files)
    assert segments(files)[2] in recovered.damage[0].where
    journal.close()


def test_the_log_trimmed_takes_the_indexes_along() -> None:
    files, pen = grown()
    journal, recovered = open_journal(files)
    index = len(pen.log) - 4
    last: dict[str, int] = {}
    for node, seq in pen.log[:index]:
        last[node] = seq
    seqs = [(node, BIRTHS[node], seq) for node, seq in last.items()]
    journal.append(LogTrimmed(LogStart(index, pen.hashes[index - 1], (node, BIRTHS[node]), 1, seqs, [], [], [])))
    journal.sync()
    removal = journal.begin_removal()
    assert removal is not None
    removal.run()
    journal.end_removal(removal)
    numbers = {name[-10:] for name in segments(files)}
    assert {name[-10:] for name in indexes(files)} <= numbers
    assert len(numbers) < 5
    write(journal, pen, 12)
    journal.close()
    assert scanned(files).indexed_segments
    assert same(told(files), told_without(files))
    assert recovered.log_start.index < told(files).log_start.index == index


def test_an_index_without_its_segment_goes_at_the_next_start() -> None:
    files, _ = grown(8)
    dump = files.dump()
    left = MemoryVfs.load(dump | {index_name(99): dump[indexes(files)[0]]})
    journal, _ = open_journal(left)
    journal.close()
    assert index_name(99) not in left.list()


def test_damage_in_a_segment_with_an_index_is_found_when_it_is_read_again() -> None:
    """A start does not see it; the survey of this life does, and the start behind that names it."""
    files, _ = grown(10)
    name = segments(files)[2]
    used = len(files.dump()[name].rstrip(b"\0"))
    files.flip_bit(name, used - 700, 4)
    journal, recovered = open_journal(files)
    assert not recovered.damage
    with pytest.raises(JournalDamaged, match=f"reading {name} again: record .* cannot be read"):
        survey_all(journal)
    journal.close()
    assert name.replace("segment", "index") not in files.list()
    journal, recovered = open_journal(files)
    assert name in recovered.damage[0].where
    journal.close()


def test_damage_in_a_segment_with_an_index_is_found_when_a_peer_asks_for_it() -> None:
    files, pen = grown(10)
    name = segments(files)[1]
    harmed = 0
    for at in range(1100, SEGMENT_BYTES - 800, 64):
        copy = MemoryVfs.load(files.dump())
        copy.flip_bit(name, at, 4)
        journal, recovered = open_journal(copy, cache_bytes=0)
        assert not recovered.damage
        try:
            for node, last in pen.seqs.items():
                check_content(journal, node, 1, last, pen=pen)
        except JournalDamaged:
            harmed += 1
            assert name.replace("segment", "index") not in copy.list()
            journal.close()
            journal, recovered = open_journal(copy)
            assert name in recovered.damage[0].where
        journal.close()
    assert harmed > 3


def test_a_header_that_was_lost_and_made_good_ends_no_life_after_that() -> None:
    """Nobody can write it again: it is damage once, named by one start and answered by the others. A survey of that
    segment or of the one before it would find it bad in every life."""
    files, _ = grown(10)
    name = segments(files)[2]
    for copy in (0, 512):
        files.flip_bit(name, copy + 60, 2)
    journal, recovered = open_journal(files)
    assert recovered.damage
    for damage in list(journal.damage):
        assert not damage.spans
        journal.repair(damage, [], [], None)
    journal.sync()
    for _ in range(3):
        journal.close()
        journal, recovered = open_journal(files)
        assert not recovered.damage
        survey_all(journal)
    journal.close()


def test_a_start_that_meets_damage_reads_that_segment_after_all() -> None:
    """What waits for its order is read at the start: nobody is told of it from what cannot be read."""
    files, pen = MemoryVfs(), Pen()
    journal, _ = open_journal(files)
    pen.number = 1
    journal.append(founding())
    for _ in range(40):
        journal.append(pen.held("b", 3))
        journal.sync()
        survey_all(journal)
    journal.close()
    assert len(indexes(files)) > 2
    name = segments(files)[1]
    files.flip_bit(name, 1500, 1)
    journal, recovered = open_journal(files)
    assert name in recovered.damage[0].where
    assert sum(len(meta.stamps) for meta in recovered.queued) < pen.seqs["b"]
    journal.close()


def test_a_crash_at_every_operation_of_making_an_index() -> None:
    """And what was not synced is lost, torn or kept: the next start tells the same, and can make it."""
    base, _ = grown(5, surveys=False)
    wanted = told_without(base)
    for fate in range(3):
        for stop in range(1, 60):
            files = MemoryVfs.load(base.dump())
            journal, _ = open_journal(files)
            left = [stop]

            def step(_operation: str, _name: str, left: list[int] = left) -> None:
                left[0] -= 1
                if not left[0]:
                    raise SimulatedCrash

            files.hook = step
            try:
                survey_all(journal)
                crashed = False
            except SimulatedCrash:
                crashed = True
            files.hook = None
            files.crash(lambda what, options, fate=fate: min(fate, options - 1))  # type: ignore[misc]
            after = told(files)
            assert (after.log_hashes, after.queued) == (wanted.log_hashes, wanted.queued)
            journal, _ = open_journal(files)
            survey_all(journal)
            journal.close()
            assert len(indexes(files)) == len(segments(files)) - 1
            assert not [name for name in files.list() if name.startswith("making")]
            if not crashed:
                break
        else:
            pytest.fail("it never came to its end")


def test_a_full_disk_costs_the_index_and_nothing_else() -> None:
    files, pen = grown(8, surveys=False)
    journal, _ = open_journal(files)
    files.capacity = sum(map(len, files.dump().values())) + SEGMENT_BYTES
    assert survey_all(journal) == len(segments(files)) - 1
    assert not indexes(files)
    write(journal, pen, 1, surveys=False)
    journal.close()


def test_a_disk_that_fills_up_meanwhile_costs_the_index_and_nothing_else() -> None:
    files, pen = grown(8, surveys=False)
    journal, _ = open_journal(files)

    def full(operation: str, _name: str) -> None:
        if operation == "create":
            raise OSError(errno.ENOSPC, "full")

    files.hook = full
    assert survey_all(journal) == len(segments(files)) - 1
    files.hook = None
    assert not indexes(files)
    write(journal, pen, 1)
    journal.close()


def test_a_disk_that_fails_while_an_index_is_made_ends_the_process() -> None:
    files, _ = grown(8, surveys=False)
    journal, _ = open_journal(files)

    def fails(operation: str, name: str) -> None:
        if operation == "fdatasync":
            raise OSError(errno.EIO, "the disk failed", name)

    files.hook = fails
    with pytest.raises(JournalBroken, match="reading segment-0000000001 again"):
        survey_all(journal)
    files.hook = None
    with pytest.raises(JournalBroken):
        journal.append(StableAdvanced(1))


def test_a_segment_that_a_trim_removes_meanwhile_is_let_go() -> None:
    files, _ = grown(8, surveys=False)
    journal, _ = open_journal(files)
    survey = journal.begin_scrub()
    assert survey is not None
    assert survey.segment == 1
    files.erase("segment-0000000001")
    survey.run()
    assert survey.done
    journal.end_scrub(survey)
    journal.close()


def test_a_segment_is_read_again_a_piece_at_a_time() -> None:
    files = MemoryVfs()
    journal, _ = open_journal(files, segment_bytes=4 * SCRUB_CHUNK_BYTES)
    pen = Pen(size=SCRUB_CHUNK_BYTES // 2)
    pen.number = 1
    journal.append(founding())
    while len(segments(files)) < 2:
        journal.append(pen.held("a", 1))
        journal.sync()
    runs = 0
    while (survey := journal.begin_scrub()) is not None:
        assert journal.begin_scrub() is None
        survey.run()
        journal.end_scrub(survey)
        runs += 1
    assert runs > 3
    assert indexes(files) == [index_name(1)]
    journal.close()
    assert scanned(files).indexed_segments == [1]


def test_a_piece_of_small_records_ends_behind_as_many_as_take_a_millisecond() -> None:
    files = MemoryVfs()
    journal, _ = open_journal(files, segment_bytes=4 * SCRUB_CHUNK_BYTES)
    pen = Pen(size=8)
    journal.append(founding())
    while len(segments(files)) < 2:
        for _ in range(200):
            journal.append(pen.held("a", 1))
        journal.sync()
    runs = 0
    while (survey := journal.begin_scrub()) is not None:
        survey.run()
        journal.end_scrub(survey)
        runs += 1
    records = next(piece for piece in scanned(files).segments if piece.number == 2).first - 1
    assert runs >= records // (SCRUB_CHUNK_BYTES // RECORD_OVERHEAD_BYTES)
    assert records > 10 * SCRUB_CHUNK_BYTES // RECORD_OVERHEAD_BYTES
    journal.close()


def test_check_reads_everything_and_uses_no_index() -> None:
    files, _ = grown(10)
    name = segments(files)[2]
    assert check_journal(files).ok
    files.flip_bit(name, len(files.dump()[name].rstrip(b"\0")) - 700, 4)
    assert name in check_journal(files).damage[0].where
