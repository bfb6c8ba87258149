"""Records whose content follows from their names, so that a test can tell what must stand at any place."""

from __future__ import annotations

import msgspec

from txlog.journal import Journal, MemoryVfs
from txlog.model.entry import KIND_SKIP, KIND_UPDATE, RunItem, Span, TransactionRun
from txlog.model.hashes import chain_hash, chain_start, content_hash, origin_tag
from txlog.model.ids import Origin
from txlog.model.records import (
    LogAppended,
    ReassignedStamps,
    Record,
    RecoveredState,
    TransactionsPersisted,
    ViewAccepted,
    ViewInstalled,
)
from txlog.model.view import Member, View

CLUSTER = b"a journal's test"
BIRTHS = {"a": 0xA, "b": 0xB, "c": 0xC}
SEGMENT_BYTES = 4096


def item(node: str, seq: int, size: int = 20) -> RunItem:
    """Every seventh has a key, every thirteenth is a skip; payloads differ in length."""
    key, kind = (f"k{seq}" if seq % 7 == 0 else ""), KIND_UPDATE
    if seq % 13 == 0:
        key, kind = f"{node}.000000000000000a.1", KIND_SKIP
    text = f"{node}{seq} ".encode()
    return RunItem(seq * 1000 + BIRTHS[node], kind, key, text * (1 + size // len(text)))


def content(node: str, seq: int, size: int = 20) -> bytes:
    one = item(node, seq, size)
    return content_hash(one.kind, one.key, one.payload)


def held(node: str, first: int, count: int, size: int = 20) -> TransactionsPersisted:
    items = [item(node, seq, size) for seq in range(first, first + count)]
    contents = b"".join(content_hash(i.kind, i.key, i.payload) for i in items)
    return TransactionsPersisted(TransactionRun(node, BIRTHS[node], first, items), contents)


def view(epoch: int) -> View:
    members = [Member(node, birth, 1, "dc-1") for node, birth in BIRTHS.items()]
    origins = list(BIRTHS.items())
    return View(epoch, 1, "a", members, CLUSTER, 0, bytes(16), origins, [])


class Pen:
    """Writes the next records of a master's life. ``log`` is the order, ``hashes`` its chain; ``stamps`` are those that
    differ from :func:`item`'s."""

    def __init__(self, size: int = 20) -> None:
        self.size = size
        self.seqs = dict.fromkeys(BIRTHS, 0)
        self.log: list[tuple[str, int]] = []
        self.hashes: list[bytes] = []
        self.stamps: dict[tuple[str, int], int] = {}
        self.number = 0
        self.strategy = "Smart"

    def resume(self, recovered: RecoveredState) -> None:
        """Go on where a journal stands."""
        self.seqs = dict.fromkeys(BIRTHS, 0) | held_of(recovered)
        self.log = [(s.node, s.first_seq + i) for s in recovered.log_spans for i in range(s.count)]
        cells = bytes(recovered.log_hashes)
        self.hashes = [cells[at : at + 16] for at in range(0, len(cells), 16)]
        for meta in recovered.queued:
            self.stamps.update({(meta.node, seq): stamp for seq, stamp in enumerate(meta.stamps, meta.first_seq)})
        self.number = recovered.accepted_number[0]

    def follow(self, records: list[Record]) -> None:
        """Stand where these records lead."""
        for record in records:
            match record:
                case TransactionsPersisted():
                    self.seqs[record.run.node] = record.run.last_seq
                    for seq, one in enumerate(record.run.items, record.run.first_seq):
                        self.stamps[record.run.node, seq] = one.stamp
                case LogAppended():
                    self._enter(len(self.log), record.spans, record.hashes)
                case ViewAccepted():
                    self._enter(record.cut, record.spans, record.hashes)
                    self.number = record.view.epoch
                    for stamped in record.reassigned:
                        self._restamp(stamped)
                case _:
                    pass

    def item(self, node: str, seq: int) -> RunItem:
        """As it is now."""
        one = item(node, seq, self.size)
        return msgspec.structs.replace(one, stamp=self.stamps.get((node, seq), one.stamp))

    @property
    def logged(self) -> dict[str, int]:
        """The last seq of each node in the log."""
        return logged_in(self.log)

    def held(self, node: str, count: int, *, late: bool = False) -> TransactionsPersisted:
        """``late``: held while no view is in force, without a stamp."""
        first = self.seqs[node] + 1
        self.seqs[node] += count
        record = held(node, first, count, self.size)
        if not late:
            return record
        self.stamps.update({(node, seq): 0 for seq in range(first, first + count)})
        items = [msgspec.structs.replace(one, stamp=0) for one in record.run.items]
        return TransactionsPersisted(msgspec.structs.replace(record.run, items=items), record.contents)

    def held_again(self, node: str, first: int, count: int) -> TransactionsPersisted:
        """As another master sends it: with the stamps of now."""
        record = held(node, first, count, self.size)
        items = [self.item(node, seq) for seq in range(first, first + count)]
        return TransactionsPersisted(msgspec.structs.replace(record.run, items=items), record.contents)

    def added(self, *pieces: tuple[str, int], stable: int | None = None) -> LogAppended:
        """The next of these origins enter the log."""
        first_index = len(self.log) + 1
        spans, hashes = self._order(first_index - 1, pieces)
        return LogAppended(first_index, spans, hashes, len(self.log) if stable is None else stable)

    def accepted(
        self, cut: int, *pieces: tuple[str, int], stamped: list[ReassignedStamps] | None = None, number: int = 0
    ) -> ViewAccepted:
        """The next view: the log ends at ``cut`` and goes on with the next of these origins; ``reassigned`` before."""
        self.number = number or self.number + 1
        for one in stamped or []:
            self._restamp(one)
        spans, hashes = self._order(cut, pieces)
        base_hash = self.hashes[-1] if self.hashes else bytes(16)
        made = msgspec.structs.replace(
            view(self.number), base_index=len(self.log), base_hash=base_hash, strategy=self.strategy
        )
        return ViewAccepted(made, cut, spans, hashes, stamped or [])

    def installed(self) -> ViewInstalled:
        return ViewInstalled(self.number, 1, "a")

    def _restamp(self, stamped: ReassignedStamps) -> None:
        for seq, stamp in enumerate(stamped.stamps, stamped.first_seq):
            self.stamps[stamped.node, seq] = stamp

    def _enter(self, cut: int, spans: list[Span], hashes: bytes) -> None:
        self.log[cut:] = [(s.node, s.first_seq + i) for s in spans for i in range(s.count)]
        self.hashes[cut:] = [hashes[at : at + 16] for at in range(0, len(hashes), 16)]

    def _order(self, cut: int, pieces: tuple[tuple[str, int], ...]) -> tuple[list[Span], bytes]:
        spans: list[Span] = []
        logged = logged_in(self.log[:cut])
        for node, count in pieces:
            first = logged[node] + 1
            assert first + count - 1 <= self.seqs[node]
            spans.append(Span(node, BIRTHS[node], first, count))
            logged[node] += count
        hashes = b""
        chain = self.hashes[cut - 1] if cut else chain_start(CLUSTER)
        for span in spans:
            for seq in range(span.first_seq, span.first_seq + span.count):
                stamp, tag = self.item(span.node, seq).stamp, origin_tag(Origin(span.node, span.birth))
                chain = chain_hash(chain, stamp, tag, seq, content(span.node, seq, self.size))
                hashes += chain
        self._enter(cut, spans, hashes)
        return spans, hashes


def logged_in(log: list[tuple[str, int]]) -> dict[str, int]:
    """The last seq of each node."""
    return dict.fromkeys(BIRTHS, 0) | dict(log)


def stamped(node: str, first: int, stamps: list[int]) -> ReassignedStamps:
    return ReassignedStamps(node, BIRTHS[node], first, stamps)


def founding() -> list[Record]:
    return [ViewAccepted(view(1)), ViewInstalled(1, 1, "a")]


def open_journal(files: MemoryVfs, **options: int) -> tuple[Journal, RecoveredState]:
    return Journal.open(files, node="a", draw_birth=lambda: 0xA, **{"segment_bytes": SEGMENT_BYTES, **options})


def held_of(recovered: RecoveredState) -> dict[str, int]:
    """The last seq held of each node, logged or queued."""
    last: dict[str, int] = {}
    for span in recovered.log_spans:
        if span.node:
            last[span.node] = span.first_seq + span.count - 1
    for meta in recovered.queued:
        last[meta.node] = meta.first_seq + len(meta.stamps) - 1
    return last


def check_content(journal: Journal, node: str, first: int, last: int, size: int = 20, pen: Pen | None = None) -> None:
    """Everything from ``first`` to ``last`` can be read and is what was written."""
    seq, wanted = first, pen or Pen(size)
    while seq <= last:
        run = journal.read(node, BIRTHS[node], seq, 1000, 1 << 20)
        assert run.items
        for one in run.items:
            assert one == wanted.item(node, seq)
            seq += 1
