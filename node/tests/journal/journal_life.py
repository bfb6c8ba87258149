"""The life of a master at random, with view changes, and what the plain twin tells of it."""

from __future__ import annotations

import random

import msgspec
from journal_pen import BIRTHS, Pen, check_content, stamped

from txlog.journal import Journal
from txlog.model.entry import Span
from txlog.model.records import (
    CounterCeiling,
    QueuedMetadata,
    ReassignedStamps,
    Record,
    RecoveredState,
    StableAdvanced,
    ViewLeft,
    ViewPromised,
)
from txlog_simulation.reference_journal import recovered_state


def merged(spans: list[Span]) -> list[Span]:
    made: list[Span] = []
    for span in spans:
        last = made[-1] if made else None
        if last and (last.node, last.first_seq + last.count) == (span.node, span.first_seq):
            made[-1] = Span(last.node, last.birth, last.first_seq, last.count + span.count)
        else:
            made.append(span)
    return made


def told(found: RecoveredState) -> RecoveredState:
    """In one form: without the start, neighbouring spans as one, origins by name."""

    def origin_of(meta: QueuedMetadata) -> str:
        return meta.node

    queued = sorted(found.queued, key=origin_of)
    abandoned = [msgspec.structs.replace(one, spans=merged(one.spans)) for one in found.abandoned_branches]
    spans = merged(found.log_spans)
    return msgspec.structs.replace(
        found, start=0, is_new=False, log_spans=spans, queued=queued, abandoned_branches=abandoned
    )


def twin(records: list[Record]) -> RecoveredState:
    """What must be read back of these records."""
    return told(recovered_state("a", 0xA, 0, records))


def check_read(journal: Journal, pen: Pen) -> None:
    for node, last in pen.seqs.items():
        check_content(journal, node, 1, last, pen=pen)


class Life:
    """Records of a master at random, as a core could make them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.pen = Pen()
        self.pen.strategy = "None" if seed & 1 else "Smart"
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
                return (
                    [ViewPromised(*number)] if pen.number == 0 or rng.random() < 0.5 else [ViewLeft(pen.number, 1, "a")]
                )
            case _:
                return [CounterCeiling(rng.randrange(1 << 64)), StableAdvanced(rng.randrange(len(pen.log) + 1))]

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

    def stamps(self, logged: dict[str, int]) -> list[ReassignedStamps]:
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
