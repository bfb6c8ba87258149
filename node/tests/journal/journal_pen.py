"""Records whose content follows from their names, so that a test can tell what must stand at any place."""

from __future__ import annotations

from txlog.journal import Journal, MemoryFiles
from txlog.model.entry import KIND_SKIP, KIND_UPDATE, Item, Run, Span
from txlog.model.hashes import chain_hash, chain_start, content_hash, origin_tag
from txlog.model.ids import Origin
from txlog.model.records import Added, Held, Record, Recovered, ViewAccepted, ViewInstalled
from txlog.model.view import Member, View

CLUSTER = b"a journal's test"
BIRTHS = {"a": 0xA, "b": 0xB, "c": 0xC}
SEGMENT_BYTES = 4096


def item(node: str, seq: int, size: int = 20) -> Item:
    """Every seventh has a key, every thirteenth is a skip; payloads differ in length."""
    key, kind = (f"k{seq}" if seq % 7 == 0 else ""), KIND_UPDATE
    if seq % 13 == 0:
        key, kind = f"{node}.000000000000000a.1", KIND_SKIP
    text = f"{node}{seq} ".encode()
    return Item(seq * 1000 + BIRTHS[node], kind, key, text * (1 + size // len(text)))


def content(node: str, seq: int, size: int = 20) -> bytes:
    one = item(node, seq, size)
    return content_hash(one.kind, one.key, one.payload)


def held(node: str, first: int, count: int, size: int = 20) -> Held:
    items = [item(node, seq, size) for seq in range(first, first + count)]
    contents = b"".join(content_hash(i.kind, i.key, i.payload) for i in items)
    return Held(Run(node, BIRTHS[node], first, items), contents)


def view(epoch: int) -> View:
    members = [Member(node, birth, 1, "dc-1") for node, birth in BIRTHS.items()]
    return View(epoch, 1, "a", members, CLUSTER, 0, bytes(16))


class Pen:
    """Writes the next records of a master's life; ``chain`` is the log's hash so far."""

    def __init__(self, size: int = 20) -> None:
        self.size = size
        self.seqs = dict.fromkeys(BIRTHS, 0)
        self.logged = dict.fromkeys(BIRTHS, 0)
        self.log_end = 0
        self.chain = chain_start(CLUSTER)

    def resume(self, recovered: Recovered) -> None:
        """Go on where a journal stands."""
        self.seqs |= held_of(recovered)
        self.logged |= {s.node: s.first_seq + s.count - 1 for s in recovered.log_spans if s.node}
        self.log_end = len(recovered.log_hashes) // 16
        self.chain = bytes(recovered.log_hashes[-16:]) or chain_start(CLUSTER)

    def held(self, node: str, count: int) -> Held:
        first = self.seqs[node] + 1
        self.seqs[node] += count
        return held(node, first, count, self.size)

    def added(self, *pieces: tuple[str, int], stable: int | None = None) -> Added:
        """The next of these origins enter the log."""
        spans, hashes = [], b""
        for node, count in pieces:
            first = self.logged[node] + 1
            assert first + count - 1 <= self.seqs[node]
            hashes += self._chain(node, first, count)
            spans.append(Span(node, BIRTHS[node], first, count))
            self.logged[node] += count
        first_index = self.log_end + 1
        self.log_end += len(hashes) // 16
        return Added(first_index, spans, hashes, self.log_end if stable is None else stable)

    def _chain(self, node: str, first: int, count: int) -> bytes:
        hashes, tag = b"", origin_tag(Origin(node, BIRTHS[node]))
        for seq in range(first, first + count):
            one = item(node, seq, self.size)
            self.chain = chain_hash(self.chain, one.stamp, tag, seq, content(node, seq, self.size))
            hashes += self.chain
        return hashes


def founding() -> list[Record]:
    return [ViewAccepted(view(1)), ViewInstalled(1, 1, "a")]


def open_journal(files: MemoryFiles, **options: int) -> tuple[Journal, Recovered]:
    return Journal.open(files, node="a", draw_birth=lambda: 0xA, **{"segment_bytes": SEGMENT_BYTES, **options})


def held_of(recovered: Recovered) -> dict[str, int]:
    """The last seq held of each node, logged or queued."""
    last: dict[str, int] = {}
    for span in recovered.log_spans:
        if span.node:
            last[span.node] = span.first_seq + span.count - 1
    for meta in recovered.queued:
        last[meta.node] = meta.first_seq + len(meta.stamps) - 1
    return last


def check_content(journal: Journal, node: str, first: int, last: int, size: int = 20) -> None:
    """Everything from ``first`` to ``last`` can be read and is what was written."""
    seq = first
    while seq <= last:
        run = journal.read(node, BIRTHS[node], seq, 1000, 1 << 20)
        assert run.items
        for one in run.items:
            assert one == item(node, seq, size)
            seq += 1
