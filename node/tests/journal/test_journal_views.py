"""View changes in the journal: the log is cut and goes on otherwise, transactions have new stamps, promises and leaves
(rules 21, 28, 34). Against the plain twin, which keeps records in a list."""

from __future__ import annotations

import random

import pytest
from journal_pen import BIRTHS, Pen, check_content, open_journal, stamped

from txlog.journal import Journal, MemoryFiles
from txlog.model.entry import Span
from txlog.model.records import Ceiling, Left, Promised, QueuedMeta, Record, Recovered, Stable, Stamped
from txlog_simulation.plain_journal import recovered_from

SEGMENT_BYTES = 4096


def merged(spans: list[Span]) -> list[Span]:
    made: list[Span] = []
    for span in spans:
        last = made[-1] if made else None
        if last and (last.node, last.first_seq + last.count) == (span.node, span.first_seq):
            made[-1] = Span(last.node, last.birth, last.first_seq, last.count + span.count)
        else:
            made.append(span)
    return made


def check_same(found: Recovered, records: list[Record]) -> None:
    """What the twin tells of these records, but for its longer list of spans."""
    wanted = recovered_from("a", 0xA, found.start, records)
    wanted.log_spans = merged(wanted.log_spans)
    wanted.fresh = found.fresh

    def origin_of(meta: QueuedMeta) -> str:
        return meta.node

    for name in wanted.__struct_fields__:
        one, other = getattr(found, name), getattr(wanted, name)
        if name == "queued":
            one, other = sorted(one, key=origin_of), sorted(other, key=origin_of)
        assert one == other, name


def check_read(journal: Journal, pen: Pen) -> None:
    for node, last in pen.seqs.items():
        check_content(journal, node, 1, last, pen=pen)


class Life:
    """Records of a master at random, as a core could make them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.pen = Pen()
        self.records: list[Record] = []

    def next(self) -> list[Record]:
        rng, pen = self.rng, self.pen
        node = rng.choice("abc")
        match rng.randrange(9):
            case 0 | 1 | 2:
                return [pen.held(node, rng.randrange(1, 9))]
            case 3:
                return [pen.held("a", rng.randrange(1, 4), late=True)]
            case 4 | 5:
                pieces = self.pieces(len(pen.log))
                return [pen.added(*pieces, stable=rng.randrange(len(pen.log) + 1))] if pieces else []
            case 6:
                return [self.change()] + ([pen.installed()] if rng.random() < 0.5 else [])
            case 7:
                number = (pen.number + rng.randrange(1, 3), rng.randrange(1, 9), rng.choice("abc"))
                return [Promised(*number)] if pen.number == 0 or rng.random() < 0.5 else [Left(pen.number, 1, "a")]
            case _:
                return [Ceiling(rng.randrange(1 << 64)), Stable(rng.randrange(len(pen.log) + 1))]

    def pieces(self, cut: int) -> tuple[tuple[str, int], ...]:
        logged = dict.fromkeys(BIRTHS, 0) | dict(self.pen.log[:cut])
        found = []
        for node in self.rng.choices("abc", k=self.rng.randrange(4)):
            count = min(self.rng.randrange(1, 6), self.pen.seqs[node] - logged[node])
            if count:
                logged[node] += count
                found.append((node, count))
        return tuple(found)

    def change(self) -> Record:
        cut = self.rng.choice([0, len(self.pen.log), self.rng.randrange(len(self.pen.log) + 1)])
        logged = dict.fromkeys(BIRTHS, 0) | dict(self.pen.log[:cut])
        return self.pen.accepted(cut, *self.pieces(cut), stamped=self.stamps(logged))

    def stamps(self, logged: dict[str, int]) -> list[Stamped]:
        """Of some of what is not in the log before the base; no kept hash may be of another stamp."""
        found = []
        for node in self.rng.sample("abc", self.rng.randrange(4)):
            beyond = range(logged[node] + 1, self.pen.seqs[node] + 1)
            if beyond:
                first = self.rng.choice(beyond)
                count = self.rng.randrange(1, beyond.stop - first + 1)
                found.append(stamped(node, first, [self.rng.randrange(1, 1 << 64) for _ in range(count)]))
        return found

    def go(self, journal: Journal, steps: int) -> None:
        for _ in range(steps):
            records = self.next()
            journal.append(records)
            self.records += records
            if self.rng.random() < 0.4:
                journal.sync()


@pytest.mark.parametrize("seed", range(80))
def test_any_life_is_read_back(seed: int) -> None:
    """Reads are right at once and after each start; a second view is often accepted before the first is installed."""
    files, life = MemoryFiles(), Life(seed)
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
        check_same(found, life.records)
        check_read(journal, life.pen)
