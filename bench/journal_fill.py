"""A long log written straight into the journals of masters that are stopped: the real journal, its real records.

Transactions of one master, as if it alone had been written to: each journal holds them (``TransactionsPersisted``),
then the order of the log (``LogAppended``), in batches as masters under load make them. What clients, messages and
rounds would have cost is left out; what a start has to read is all there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from e2e.lib.report import CannotMeasure
from txlog.journal.journal import Journal
from txlog.journal.vfs import OsVfs
from txlog.model.entry import KIND_QUADS, RunItem, Span, TransactionRun
from txlog.model.hashes import HASH_BYTES, chain_leaf, chain_next, content_hash, origin_tag
from txlog.model.ids import Origin
from txlog.model.quads import encode_quads
from txlog.model.records import LogAppended, RecoveredState, TransactionsPersisted

BATCH_TRANSACTIONS: Final = 2000
"""Transactions in one record: what 64 clients with 100 in a request come to."""
SYNC_EVERY_BATCHES: Final = 16
"""Batches in one sync of the disk."""


class FillResult(NamedTuple):
    """What a journal has come to: entries of its log, transactions that wait for their order, bytes on the disk, and
    the seconds that writing it took."""

    entries: int
    waiting: int
    disk_bytes: int
    seconds: float


def build_payload(number: int, size: int) -> bytes:
    """Of a transaction that adds one quad, ``size`` bytes of N-Quads, or as few as a quad with that number needs."""
    start, end = b"<s:%09d> <s:p> " % number, b" ."
    room = size - len(start) - len(end) - 1
    line = start + (b'"' + b"x" * (room - 2) + b'"' if room >= 5 else b"<s:o>") + end
    return encode_quads((), (line,))


def fill_journals(
    folders: Sequence[Path],
    node: str,
    entries: int,
    size: int,
    *,
    waiting: int = 0,
    tell: Callable[[int], None] = lambda _: None,
    make: Callable[[int, int], bytes] = build_payload,
) -> FillResult:
    """Write ``entries`` of ``node`` behind the log of every journal (their masters are stopped, their logs end alike),
    and ``waiting`` transactions more behind these which no log has. ``make``: payloads from a number, which grows by
    one, and ``size``. :class:`CannotMeasure`: the logs differ."""
    opened = []
    try:
        for folder in folders:
            opened.append(_open(folder))
        ends = {(recovered.log_end, recovered.hash_at(recovered.log_end)) for _, recovered in opened}
        if len(ends) != 1:
            raise CannotMeasure(f"the journals do not end alike: {sorted(end for end, _ in ends)}")
        if not opened[0][1].log_end:
            raise CannotMeasure("the journals have no log to go on from")
        began = time.monotonic()
        recovered = opened[0][1]
        _write_transactions(
            [journal for journal, _ in opened], recovered, _origin(node, recovered), entries, size, waiting, tell, make
        )
        on_disk = max(sum(file.stat().st_size for file in folder.iterdir()) for folder in folders)
        return FillResult(recovered.log_end + entries, waiting, on_disk, time.monotonic() - began)
    finally:
        for journal, _ in opened:
            journal.close()


def _open(folder: Path) -> tuple[Journal, RecoveredState]:
    """Of the master that the folder above is named after."""

    def never() -> int:
        raise CannotMeasure(f"{folder} is no journal of a master that has run")

    return Journal.open(OsVfs(folder), node=folder.parent.name, draw_birth=never)


def _origin(node: str, recovered: RecoveredState) -> Origin:
    if recovered.installed is None:
        raise CannotMeasure(f"{recovered.node} has no view in force, so the incarnation of {node} is unknown")
    return next(member.origin for member in recovered.installed.members if member.node == node)


def _last_seq(recovered: RecoveredState, origin: Origin) -> int:
    """The last seq of that origin, in the log or waiting."""
    waiting = [q.first_seq + len(q.stamps) - 1 for q in recovered.queued if (q.node, q.birth) == tuple(origin)]
    ordered = [s.first_seq + s.count - 1 for s in recovered.log_spans if (s.node, s.birth) == tuple(origin)]
    return max([recovered.log_start.last_seq_of(*origin), *waiting, *ordered])


def _write_transactions(
    journals: Sequence[Journal],
    recovered: RecoveredState,
    origin: Origin,
    entries: int,
    size: int,
    waiting: int,
    tell: Callable[[int], None],
    make: Callable[[int, int], bytes],
) -> None:
    index, last, stamp = recovered.log_end, recovered.hash_at(recovered.log_end), recovered.log_stamp
    seq = _last_seq(recovered, origin)
    tag = origin_tag(origin)
    for number, count in enumerate(_batch_sizes(entries)):
        run, contents = _build_run(origin, seq + 1, stamp, count, size, make)
        hashes = bytearray()
        for at, item in enumerate(run.items):
            content = contents[HASH_BYTES * at : HASH_BYTES * (at + 1)]
            last = chain_next(last, chain_leaf(item.stamp, tag, seq + 1 + at, content))
            hashes += last
        span = Span(origin.node, origin.birth, seq + 1, count)
        added = LogAppended(index + 1, [span], bytes(hashes), index + count)
        stamp, seq, index = stamp + count, seq + count, index + count
        for journal in journals:
            journal.append([TransactionsPersisted(run, contents), added])
            if number % SYNC_EVERY_BATCHES == SYNC_EVERY_BATCHES - 1:
                _sync(journal)
        tell(index - recovered.log_end)
    for count in _batch_sizes(waiting):
        run, contents = _build_run(origin, seq + 1, stamp, count, size, make)
        stamp, seq = stamp + count, seq + count
        for journal in journals:
            journal.append(TransactionsPersisted(run, contents))
            _sync(journal)
    for journal in journals:
        _sync(journal)
        journal.seal()
        journal.sync()


def _sync(journal: Journal) -> None:
    journal.sync()
    prepare = journal.begin_preallocation()
    if prepare is not None:
        prepare.run()
        journal.end_preallocation(prepare)
    while (survey := journal.begin_scrub()) is not None:
        survey.run()
        journal.end_scrub(survey)


def _batch_sizes(count: int) -> Iterator[int]:
    for first in range(0, count, BATCH_TRANSACTIONS):
        yield min(BATCH_TRANSACTIONS, count - first)


def _build_run(
    origin: Origin, first_seq: int, stamp: int, count: int, size: int, make: Callable[[int, int], bytes]
) -> tuple[TransactionRun, bytes]:
    items = [RunItem(stamp + 1 + at, KIND_QUADS, "", make(first_seq + at, size)) for at in range(count)]
    contents = b"".join([content_hash(item.kind, item.key, item.payload) for item in items])
    return TransactionRun(origin.node, origin.birth, first_seq, items), contents
