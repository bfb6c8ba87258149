"""A real process on a real disk, killed in the middle of writing: what it has been told is durable is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from journal_pen import check_content, held_of

from txlog.journal import Journal, OsVfs, check_journal

SEGMENT_BYTES = 1 << 16

CHILD = """
import os, sys, threading
sys.path.insert(0, sys.argv[2])
from journal_pen import Pen
from txlog.journal import Journal, OsVfs
journal, found = Journal.open(OsVfs(sys.argv[1]), node="a", draw_birth=lambda: 10, segment_bytes=1 << 16)
pen = Pen()
pen.resume(found)
os.write(1, b"start %d %d\\n" % (found.start, pen.seqs["a"]))
while True:
    journal.append(pen.held("a", 1 + pen.seqs["a"] % 50))
    sync = journal.begin_sync()
    thread = threading.Thread(target=sync.run)
    thread.start()
    journal.append(pen.held("b", 1))
    thread.join()
    journal.end_sync(sync)
    os.write(1, b"%d\\n" % journal.read("a", 10, pen.seqs["a"], 1, 1).last_seq)
    prepare = journal.begin_preallocation()
    if prepare is not None:
        prepare.run()
        journal.end_preallocation(prepare)
    journal.seal()
"""


def run_until(folder: Path, acknowledgements: int) -> tuple[int, int, int]:
    """Start number, what the child found, and the last seq that it was told to be durable."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder), str(Path(__file__).parent)], stdout=subprocess.PIPE, bufsize=0
    )
    assert child.stdout is not None
    try:
        _, start, found = child.stdout.readline().split()
        last = 0
        for _ in range(acknowledgements):
            last = int(child.stdout.readline())
    finally:
        child.kill()
        rest = child.stdout.read()
        child.wait()
        child.stdout.close()
    told = [int(line) for line in rest.splitlines(keepends=True) if line.endswith(b"\n")]
    return int(start), int(found), max([last, *told])


@pytest.mark.parametrize("rounds", [(3, 40, 150)])
def test_acknowledged_records_survive_kill_9(tmp_path: Path, rounds: tuple[int, ...]) -> None:
    told = 0
    for number, acknowledgements in enumerate(rounds, 1):
        start, found, now = run_until(tmp_path, acknowledgements)
        assert start == number
        assert found >= told
        told = now
        assert check_journal(tmp_path).ok
    journal, recovered = Journal.open(OsVfs(tmp_path), node="a", draw_birth=lambda: 10, segment_bytes=SEGMENT_BYTES)
    assert recovered.start == len(rounds) + 1
    assert recovered.damage == []
    last = held_of(recovered)
    assert last["a"] >= told
    check_content(journal, "a", 1, last["a"])
    check_content(journal, "b", 1, last["b"])
    journal.close()
