"""A journal that keeps its log from a foot on only (rule 19)."""

from __future__ import annotations

import random

import pytest
from journal_pen import BIRTHS, Pen, check_content, founding, logged_in, open_journal, stamped

from txlog.journal import Journal, MemoryVfs, SimulatedCrash, check_journal, dump_journal
from txlog.journal.format import parse_name
from txlog.model.errors import JournalDamaged
from txlog.model.ids import Origin
from txlog.model.records import CounterCeiling, IdempotencyKeyRecord, LogStart, LogTrimmed


def foot_at(pen: Pen, index: int) -> LogStart:
    """The foot of a pen's log."""
    logged = logged_in(pen.log[:index])
    node, seq = pen.log[index - 1]
    key = IdempotencyKeyRecord("kept", "a", BIRTHS["a"], 1, 7, b"c" * 16)
    seqs = [(name, BIRTHS[name], last) for name, last in logged.items() if last]
    return LogStart(index, pen.hashes[index - 1], (node, BIRTHS[node]), pen.item(node, seq).stamp, seqs, [key], [], [])


def write(journal: Journal, pen: Pen, rounds: int) -> None:
    """Four transactions in each round."""
    for _ in range(rounds):
        journal.append(pen.held("a", 2))
        journal.append(pen.held("b", 2))
        journal.append(pen.added(("a", 2), ("b", 2)))
        journal.sync()


def trim(journal: Journal, pen: Pen, index: int) -> int:
    """Trim, durably, and remove what may go; how many segments."""
    journal.append(LogTrimmed(foot_at(pen, index)))
    journal.sync()
    removal = journal.begin_removal()
    if removal is None:
        return 0
    removal.run()
    journal.end_removal(removal)
    return len(removal.segments)


class Fuse:
    """The process ends before its next disk operation but so many."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def __call__(self, operation: str, name: str) -> None:
        if self.steps == 0:
            raise SimulatedCrash(f"{operation} {name}")
        self.steps -= 1


def begun(files: MemoryVfs, rounds: int = 40) -> tuple[Journal, Pen]:
    """A journal of some dozens of segments."""
    pen = Pen(100)
    journal, _ = open_journal(files)
    for record in founding():
        journal.append(record)
    write(journal, pen, rounds)
    return journal, pen


def segments(files: MemoryVfs) -> list[int]:
    found = [parse_name(name) for name in files.list()]
    return [one[1] for one in found if one is not None and one[0] == "segment"]


def check_kept(journal: Journal, pen: Pen, index: int) -> None:
    """Everything above the foot reads back as it was written."""
    for node, last in logged_in(pen.log[:index]).items():
        check_content(journal, node, last + 1, pen.seqs[node], pen=pen)


def test_whole_segments_below_the_foot_go_and_the_rest_is_read_back() -> None:
    files = MemoryVfs()
    journal, pen = begun(files)
    before = segments(files)
    assert trim(journal, pen, 90) > 10
    left = segments(files)
    assert left[0] > before[0] + 10
    assert left == list(range(left[0], left[-1] + 1))
    write(journal, pen, 10)
    journal.close()
    journal, recovered = open_journal(files)
    assert recovered.log_start.index == 90
    assert recovered.log_start.keys[0].key == "kept"
    assert recovered.log_end == len(pen.log)
    assert recovered.hash_at(90) == pen.hashes[89]
    assert recovered.hash_at(len(pen.log)) == pen.hashes[-1]
    assert recovered.log_stamp == pen.item(*pen.log[-1]).stamp
    assert not recovered.damage
    assert sum(span.count for span in recovered.log_spans) == len(pen.log) - 90
    check_kept(journal, pen, 90)
    with pytest.raises(JournalDamaged, match="trimmed"):
        journal.read("a", BIRTHS["a"], 1, 1, 1)


def test_a_log_is_trimmed_again_and_again() -> None:
    files = MemoryVfs()
    journal, pen = begun(files, 10)
    for _ in range(12):
        write(journal, pen, 10)
        trim(journal, pen, len(pen.log) - 20)
        assert len(segments(files)) < 30
        journal.close()
        journal, recovered = open_journal(files)
        assert recovered.log_start.index == len(pen.log) - 20
        assert recovered.log_end == len(pen.log)
    report = check_journal(files)
    assert report.ok
    assert (report.log_start, report.first_segment) == (len(pen.log) - 20, segments(files)[0])
    assert any("Trimmed at" in line for line in dump_journal(files))


@pytest.mark.parametrize("filler", range(0, 40, 2))
@pytest.mark.parametrize("in_force", [True, False])
def test_a_view_whose_copies_stand_on_both_sides_of_a_trim(filler: int, in_force: bool) -> None:
    """The trim is durable and the process ends before a file has gone; one copy stood in a file that goes, the other in
    one that went before, or in one that stays."""
    files = MemoryVfs()
    journal, pen = begun(files, 10)
    journal.append([pen.held("c", 1), *(CounterCeiling(at + 1) for at in range(filler))])
    pen.number = 1
    journal.append(pen.accepted(len(pen.log), stamped=[stamped("c", 1, [1 << 40])]))
    journal.append([pen.installed(), pen.added(("c", 1))])
    journal.sync()
    if not in_force:
        journal.append([pen.accepted(len(pen.log)), pen.installed()])
        journal.sync()
    trim(journal, pen, len(pen.log))
    write(journal, pen, 12)
    journal.append(LogTrimmed(foot_at(pen, len(pen.log))))
    journal.sync()
    files.kill()
    for _ in range(2):
        journal, recovered = open_journal(files)
        assert recovered.accepted is not None
        assert recovered.accepted.number == (2 if in_force else 3, 1, "a")
        assert recovered.log_end == len(pen.log)
        assert not recovered.damage
        files.kill()
    assert check_journal(files).ok


def test_what_waits_outside_the_log_holds_its_segment() -> None:
    files = MemoryVfs()
    journal, pen = begun(files, 5)
    journal.append(pen.held("c", 1))
    journal.sync()
    holding = segments(files)[-1]
    write(journal, pen, 30)
    trim(journal, pen, len(pen.log))
    assert segments(files)[0] <= holding
    check_content(journal, "c", 1, 1, pen=pen)


def test_a_snapshot_takes_the_place_of_a_log_that_is_behind() -> None:
    theirs, pen = begun(MemoryVfs(), 30)
    theirs.close()
    files = MemoryVfs()
    journal, _ = open_journal(files)
    other = Pen(100)
    journal.append(other.held("b", 5))
    journal.append(LogTrimmed(foot_at(pen, 80)))
    logged = logged_in(pen.log[:80])
    other.seqs = dict(logged)
    journal.append(other.held("b", 4))
    journal.sync()
    journal.close()
    journal, recovered = open_journal(files)
    assert (recovered.log_start.index, recovered.log_end, recovered.stable) == (80, 80, 80)
    assert [(q.node, q.first_seq, len(q.stamps)) for q in recovered.queued] == [("b", logged["b"] + 1, 4)]
    check_content(journal, "b", logged["b"] + 1, logged["b"] + 4, pen=other)


def test_a_crash_at_any_step_of_a_trim_is_harmless() -> None:
    steps, met = 0, set[bool]()
    while True:
        files = MemoryVfs()
        journal, pen = begun(files, 24)
        files.hook = Fuse(steps)
        try:
            trim(journal, pen, 60)
        except SimulatedCrash:
            files.hook = None
        else:
            break
        chance = random.Random(steps)
        files.crash(lambda _, count, chance=chance: chance.randrange(count))  # type: ignore[misc]
        journal, recovered = open_journal(files)
        assert recovered.log_start.index in (0, 60)
        met.add(recovered.log_start.index == 60)
        assert recovered.log_end == len(pen.log)
        assert recovered.hash_at(len(pen.log)) == pen.hashes[-1]
        assert not recovered.damage
        if recovered.log_start.index:
            there = segments(files)
            assert there[0] > 1
            assert there == list(range(there[0], there[-1] + 1))
        check_kept(journal, pen, recovered.log_start.index)
        write(journal, pen, 2)
        steps += 1
    assert met == {True, False}
    assert steps > 10


def test_one_lost_copy_of_the_foot_costs_nothing_and_two_are_refused() -> None:
    files = MemoryVfs()
    journal, pen = begun(files)
    trim(journal, pen, 90)
    write(journal, pen, 3)
    journal.close()
    places = [(name, at) for name, at in trimmed_places(files)]
    assert len(places) == 2
    for hit in (places[:1], places[1:]):
        harmed = MemoryVfs.load(files.dump())
        for name, at in hit:
            harmed.flip_bit(name, at + 80, 3)
        reopened, recovered = open_journal(harmed)
        assert recovered.log_start.index == 90
        assert recovered.log_end == len(pen.log)
        assert [(d.spans, d.log_from > d.log_to) for d in recovered.damage] in ([([], True)], [])
        reopened.close()
    for name, at in places:
        files.flip_bit(name, at + 80, 3)
    with pytest.raises(JournalDamaged, match="trim"):
        open_journal(files)


def trimmed_places(files: MemoryVfs) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    name = ""
    for line in dump_journal(files):
        if not line.startswith(" "):
            name = line.partition(":")[0]
        elif "Trimmed at" in line:
            found.append((name, int(line.split()[0])))
    return found


def test_segments_that_a_trim_has_left_may_not_be_missing() -> None:
    files = MemoryVfs()
    journal, pen = begun(files)
    trim(journal, pen, 90)
    journal.close()
    files.erase(f"segment-{segments(files)[0]:010d}")
    with pytest.raises(JournalDamaged, match="case T"):
        open_journal(files)


def test_the_first_segments_of_a_whole_journal_are_missed_by_name() -> None:
    files = MemoryVfs()
    journal, _ = begun(files)
    journal.close()
    files.erase("segment-0000000001")
    files.erase("segment-0000000002")
    _, recovered = open_journal(files)
    assert recovered.damage
    assert recovered.damage[0].first == 1


def test_what_was_damaged_below_the_foot_is_missed_no_more() -> None:
    files = MemoryVfs()
    journal, pen = begun(files)
    journal.close()
    files.flip_bit("segment-0000000005", 2000, 3)
    journal, recovered = open_journal(files)
    assert recovered.damage[0].spans
    trim(journal, pen, 120)
    journal.close()
    _, recovered = open_journal(files)
    assert not any(damage.spans for damage in recovered.damage)


def test_frees_says_what_a_foot_would_leave() -> None:
    files = MemoryVfs()
    journal, pen = begun(files)
    seqs = {Origin(n, BIRTHS[n]): last for n, last in logged_in(pen.log[:90]).items()}
    free = journal.segments_freed_by(90, seqs)
    assert trim(journal, pen, 90) == free
    assert journal.segments_freed_by(90, seqs) == 0


def test_nothing_goes_before_the_trim_is_durable() -> None:
    files = MemoryVfs()
    journal, pen = begun(files)
    journal.append(LogTrimmed(foot_at(pen, 90)))
    assert journal.begin_removal() is None
    sync = journal.begin_sync()
    assert sync is not None
    sync.run()
    assert journal.begin_removal() is None
    journal.end_sync(sync)
    assert journal.begin_removal() is not None
