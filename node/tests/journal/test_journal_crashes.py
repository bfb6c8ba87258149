"""A crash at every operation on the disk, with every kind of rest (rules 5, 8, 15, 28, 33): what a sync has confirmed
is there, what is there was appended, in order, without a gap; and a crash while recovering changes nothing of that."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
from journal_pen import Pen, check_content, founding, held_of, open_journal

from txlog.journal import Crashed, Journal, MemoryFiles
from txlog.model.records import Added, Ceiling, Held, Record, Recovered, Stable, ViewAccepted, ViewInstalled

SEGMENT_BYTES = 2560
Summary = tuple[object, ...]


class Follower:
    """What a journal must tell after each record."""

    def __init__(self) -> None:
        self.held: dict[str, int] = {}
        self.log = self.ceiling = self.stable = 0
        self.view: object = None
        self.states: list[Summary] = [self.summary()]
        self.acknowledged = 0

    def append(self, record: Record) -> None:
        match record:
            case Held():
                self.held[record.run.node] = record.run.last_seq
            case Added():
                self.log += len(record.hashes) // 16
                self.stable = record.stable
            case Stable():
                self.stable = record.index
            case Ceiling():
                self.ceiling = record.stamp
            case ViewAccepted():
                self.view = record.view.number
            case ViewInstalled():
                pass
        self.states.append(self.summary())

    def summary(self) -> Summary:
        return (dict(self.held), self.log, self.ceiling, self.stable, self.view)


def summary_of(found: Recovered) -> Summary:
    view = found.accepted.number if found.accepted else None
    return (held_of(found), len(found.log_hashes) // 16, found.ceiling, found.stable, view)


def batches() -> Iterator[list[Record]]:
    pen = Pen()
    yield founding()
    yield [Ceiling(1000), pen.held("a", 3)]
    for node in ("b", "a", "c"):
        yield [pen.held(node, 2), pen.held("a", 1), pen.added((node, 1), ("a", 1))]
        yield [pen.held(node, 9), Stable(1)]
        yield [pen.added((node, 2)), Ceiling(2000)]


def live(files: MemoryFiles, follower: Follower) -> None:
    """One process from its start to its end, however it comes."""
    journal, _ = open_journal(files, segment_bytes=SEGMENT_BYTES)
    for batch in batches():
        for record in batch:
            journal.append(record)
            follower.append(record)
        sync = journal.begin_sync()
        assert sync is not None
        sync.run()
        follower.acknowledged = len(follower.states) - 1
        journal.end_sync(sync)
        journal.seal()
        prepare = journal.begin_prepare()
        if prepare is not None:
            prepare.run()
            journal.end_prepare(prepare)


def crash_after(operations: int) -> Callable[[str, str], None]:
    left = operations

    def hook(operation: str, name: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Crashed

    return hook


def count_operations() -> int:
    files = MemoryFiles(trace=True)
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
    choose = choosers()[rest]
    for point in range(count_operations()):
        files, follower = MemoryFiles(hook=crash_after(point)), Follower()
        with pytest.raises(Crashed):
            live(files, follower)
        files.crash(choose)
        files.hook = None
        check_after(files, follower)


def check_after(files: MemoryFiles, follower: Follower) -> None:
    journal, found = open_journal(files, segment_bytes=SEGMENT_BYTES)
    assert found.damage == []
    assert summary_of(found) in follower.states[follower.acknowledged :]
    read_all(journal, found)
    journal.close()
    again = open_journal(files, segment_bytes=SEGMENT_BYTES)[1]
    assert summary_of(again) == summary_of(found)
    assert again.start == found.start + 1


def read_all(journal: Journal, found: Recovered) -> None:
    for node, last in held_of(found).items():
        check_content(journal, node, 1, last)


@pytest.mark.parametrize("seed", range(6))
def test_crash_while_recovering_from_a_crash(seed: int) -> None:
    rng = random.Random(seed)

    def choose(what: str, options: int) -> int:
        return rng.randrange(options)

    for point in range(10 + seed, count_operations(), 7):
        files, follower = MemoryFiles(hook=crash_after(point)), Follower()
        with pytest.raises(Crashed):
            live(files, follower)
        files.crash(choose)
        for second in range(12):
            files.hook = crash_after(second)
            try:
                open_journal(files, segment_bytes=SEGMENT_BYTES)
            except Crashed:
                files.crash(choose)
            else:
                files.kill()
        files.hook = None
        check_after(files, follower)


def test_a_start_number_is_never_given_twice() -> None:
    files, starts = MemoryFiles(), [0]
    for point in range(40):
        files.hook = crash_after(point % 9)
        try:
            starts.append(open_journal(files, segment_bytes=SEGMENT_BYTES)[1].start)
        except Crashed:
            files.crash(lambda what, options: options - 1)
        else:
            files.kill()
    assert starts == sorted(set(starts))
