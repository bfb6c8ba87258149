"""A crash at every operation on the disk, with every kind of rest (rules 5, 8, 15, 28, 33): what a sync has confirmed
is there, what is there was appended, in order, without a gap; and a crash while recovering changes nothing of that."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import cache

import pytest
from journal_life import check_read, told, twin
from journal_pen import Pen, open_journal, stamped

from txlog.journal import MemoryVfs, SimulatedCrash
from txlog.model.records import CounterCeiling, Record, RecoveredState, StableAdvanced, ViewLeft, ViewPromised

SEGMENT_BYTES = 2560


@cache
def life() -> list[list[Record]]:
    """Batches; in one of them, a view is accepted and installed."""
    pen, made = Pen(), list[list[Record]]()
    made.append([pen.held("a", 2, late=True), ViewPromised(1, 1, "a")])
    made.append([CounterCeiling(900), pen.accepted(0, stamped=[stamped("a", 1, [70, 71])]), pen.installed()])
    made.append([CounterCeiling(1000), pen.held("a", 3)])
    for node in ("b", "a", "c"):
        made.append([pen.held(node, 2), pen.held("a", 1), pen.added((node, 1), ("a", 1))])
        made.append([pen.held(node, 9), StableAdvanced(1)])
        made.append([pen.added((node, 2)), CounterCeiling(2000)])
        made.append([ViewPromised(pen.number + 1, 1, "a")])
        cut = len(pen.log) - 2
        made.append(
            [CounterCeiling(3000), pen.accepted(cut, (node, 2), stamped=[stamped(node, pen.seqs[node] - 6, [1, 2])])]
        )
        made.append([pen.accepted(cut, ("a", 1)), pen.installed()])
    made.append([ViewLeft(pen.number, 1, "a")])
    return made


@cache
def states() -> list[RecoveredState]:
    """What must be told after each record."""
    records = [record for batch in life() for record in batch]
    return [twin(records[:count]) for count in range(len(records) + 1)]


class Follower:
    """How many records were confirmed, and how many were appended."""

    appended = acknowledged = 0


def live(files: MemoryVfs, follower: Follower) -> None:
    """One process from its start to its end, however it comes."""
    journal, _ = open_journal(files, segment_bytes=SEGMENT_BYTES)
    for batch in life():
        for record in batch:
            journal.append(record)
        follower.appended += len(batch)
        sync = journal.begin_sync()
        assert sync is not None
        sync.run()
        follower.acknowledged = follower.appended
        journal.end_sync(sync)
        journal.seal()
        prepare = journal.begin_preallocation()
        if prepare is not None:
            prepare.run()
            journal.end_preallocation(prepare)


def crash_after(operations: int) -> Callable[[str, str], None]:
    left = operations

    def hook(operation: str, name: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise SimulatedCrash

    return hook


def count_operations() -> int:
    files = MemoryVfs(trace=True)
    live(files, Follower())
    return len(files.operations)


def choosers() -> dict[str, Callable[[str, int], int]]:
    dice = [random.Random(seed) for seed in range(4)]
    return {
        "nothing unsynced is lost": lambda what, options: 0,
        "everything unsynced is lost": lambda what, options: 1 if what.startswith("write") else options - 1,
        "the first sectors are lost": lambda what, options: options - 1 if what.startswith("write") else 0,
    } | {f"seed {seed}": lambda what, options, rng=rng: rng.randrange(options) for seed, rng in enumerate(dice)}


@pytest.mark.parametrize("rest", choosers())
def test_crash_at_every_operation(rest: str) -> None:
    crash_at(rest, range(count_operations()))


def crash_at(rest: str, points: Iterable[int]) -> None:
    choose = choosers()[rest]
    for point in points:
        files, follower = MemoryVfs(hook=crash_after(point)), Follower()
        with pytest.raises(SimulatedCrash):
            live(files, follower)
        files.crash(choose)
        files.hook = None
        check_after(files, follower)


@pytest.mark.parametrize("rest", ["everything unsynced is lost", "the first sectors are lost", "seed 0"])
def test_crash_between_the_writes_of_one_batch(rest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large payloads are written by themselves: here every part of a record that is longer than a few bytes."""
    together = count_operations()
    monkeypatch.setattr("txlog.journal.group_commit.SEPARATE_WRITE_BYTES", 64)
    apart = count_operations()
    assert apart > together + 20
    crash_at(rest, random.Random(rest).sample(range(apart), 40))


def check_after(files: MemoryVfs, follower: Follower) -> None:
    journal, found = open_journal(files, segment_bytes=SEGMENT_BYTES)
    assert found.damage == []
    possible = range(follower.acknowledged, follower.appended + 1)
    count = next((n for n in possible if states()[n] == told(found)), None)
    assert count is not None, "durable records are lost, or others were invented"
    pen = Pen()
    pen.follow([record for batch in life() for record in batch][:count])
    check_read(journal, pen)
    journal.close()
    again = open_journal(files, segment_bytes=SEGMENT_BYTES)[1]
    assert told(again) == told(found)
    assert again.start == found.start + 1


@pytest.mark.parametrize("seed", range(6))
def test_crash_while_recovering_from_a_crash(seed: int) -> None:
    rng = random.Random(seed)

    def choose(what: str, options: int) -> int:
        return rng.randrange(options)

    for point in range(10 + seed, count_operations(), 7):
        files, follower = MemoryVfs(hook=crash_after(point)), Follower()
        with pytest.raises(SimulatedCrash):
            live(files, follower)
        files.crash(choose)
        for second in range(12):
            files.hook = crash_after(second)
            try:
                open_journal(files, segment_bytes=SEGMENT_BYTES)
            except SimulatedCrash:
                files.crash(choose)
            else:
                files.kill()
        files.hook = None
        check_after(files, follower)


def test_a_start_number_is_never_given_twice() -> None:
    files, starts = MemoryVfs(), [0]
    for point in range(40):
        files.hook = crash_after(point % 9)
        try:
            starts.append(open_journal(files, segment_bytes=SEGMENT_BYTES)[1].start)
        except SimulatedCrash:
            files.crash(lambda what, options: options - 1)
        else:
            files.kill()
    assert starts == sorted(set(starts))
