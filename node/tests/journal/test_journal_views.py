"""View changes in the journal: the log is cut and goes on otherwise, transactions have new stamps, promises and leaves
(rules 21, 28, 34). Against the plain twin, which keeps records in a list."""

from __future__ import annotations

import random
from array import array

import msgspec
import pytest
from journal_life import Life, check_read, told, twin
from journal_pen import Pen, founding, open_journal, stamped

from txlog.journal import MemoryVfs
from txlog.journal.restamps import Restamps

SEGMENT_BYTES = 4096


@pytest.mark.parametrize("seed", range(80))
def test_any_life_is_read_back(seed: int) -> None:
    """Reads are right at once and after each start; a second view is often accepted before the first is installed."""
    files, life = MemoryVfs(), Life(seed)
    journal, _ = open_journal(files, segment_bytes=SEGMENT_BYTES, cache_bytes=life.rng.choice([0, 1 << 20]))
    for _ in range(4):
        life.go(journal, 25)
        check_read(journal, life.pen)
        journal.sync()
        check_read(journal, life.pen)
        if life.rng.random() < 0.5:
            journal.seal()
        journal.close()
        journal, found = open_journal(files, segment_bytes=SEGMENT_BYTES)
        assert told(found) == twin(life.records)
        check_read(journal, life.pen)


@pytest.mark.parametrize("seed", range(300))
def test_stamps_against_a_dict(seed: int) -> None:
    rng, stamps, plain = random.Random(seed), Restamps(), dict[int, int]()
    for _ in range(rng.randrange(1, 12)):
        first, column = rng.randrange(1, 30), [rng.randrange(1 << 64) for _ in range(rng.randrange(9))]
        stamps.set_range(first, array("Q", column))
        plain.update(enumerate(column, first))
    assert [stamps.get(seq, -1) for seq in range(50)] == [plain.get(seq, -1) for seq in range(50)]
    first, stop = rng.randrange(40), rng.randrange(50)
    found = {seq: stamp for start, column in stamps.ranges(first, stop) for seq, stamp in enumerate(column, start)}
    assert found == {seq: stamp for seq, stamp in plain.items() if first <= seq < stop}
    assert bool(stamps) == bool(plain)


def test_what_a_view_cuts_off_is_kept_where_nobody_goes_back() -> None:
    for strategy in ("None", "Smart"):
        files, pen = MemoryVfs(), Pen()
        pen.strategy = strategy
        journal, _ = open_journal(files, segment_bytes=SEGMENT_BYTES)
        journal.append([*founding(), pen.held("a", 9), pen.held("b", 8), pen.added(("a", 2), ("b", 8), ("a", 7))])
        gone = list(pen.hashes)
        pen.number = 1
        journal.append([pen.accepted(3, ("a", 7), ("b", 7)), pen.installed()])
        journal.sync()
        files.kill()
        found = open_journal(files, segment_bytes=SEGMENT_BYTES)[1]
        if strategy == "Smart":
            assert found.abandoned_branches == []
            continue
        (kept,) = found.abandoned_branches
        assert (kept.after, kept.after_hash, kept.hashes) == (3, gone[2], b"".join(gone[3:]))
        assert [(s.node, s.first_seq, s.count) for s in kept.spans] == [("b", 2, 7), ("a", 3, 7)]
        assert [(key, txid.origin.node, txid.seq) for key, txid in kept.keys] == [("k7", "b", 7), ("k7", "a", 7)]


def test_what_does_not_continue_the_log_is_refused() -> None:
    files, pen = MemoryVfs(), Pen()
    journal, _ = open_journal(files, segment_bytes=SEGMENT_BYTES)
    journal.append([*founding(), pen.held("a", 4), pen.added(("a", 2))])
    pen.number = 1
    right = pen.accepted(1, ("a", 3), stamped=[stamped("a", 2, [5])])
    replace = msgspec.structs.replace
    for wrong in (
        replace(right, cut=3),
        replace(right, hashes=right.hashes[:-16]),
        replace(right, hashes=right.hashes[:-16] + bytes(16)),
        replace(right, reassigned=[stamped("b", 1, [5])]),
        replace(right, reassigned=[stamped("a", 2, [5, 6, 7, 8])]),
    ):
        with pytest.raises(AssertionError):
            journal.append(wrong)
        assert journal.read("a", 0xA, 2, 1, 1).items[0].stamp == 2010
    journal.append(right)
    assert journal.read("a", 0xA, 2, 1, 1).items[0].stamp == 5
    journal.sync()
    files.kill()
    assert open_journal(files, segment_bytes=SEGMENT_BYTES)[1].log_hashes == b"".join(pen.hashes)
