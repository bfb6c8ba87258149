"""What is durable at one master, as the simulator knows it: the record stream, followed without the journal's help.

A mirror is fed each record when its fsync has returned. After a crash the recovered journal must be the mirror, or
the mirror and the first few records behind it: nothing that was durable is lost and nothing is invented.
"""

from __future__ import annotations

from collections.abc import Sequence

from txlog.model.hashes import HASH_BYTES
from txlog.model.ids import Origin, Txid
from txlog.model.records import (
    NO_ORDERS,
    Added,
    Ceiling,
    Foot,
    Held,
    Left,
    Orders,
    Promised,
    Record,
    Recovered,
    Stable,
    Trimmed,
    ViewAccepted,
    ViewInstalled,
)
from txlog.model.view import NO_VIEW, Number, View

Summary = tuple[object, ...]


class Mirror:
    """``held``: last seq per origin. ``log`` counts entries, ``hash`` is the chain hash at its end, ``hashes`` are
    those of all entries behind the ``foot``; ``trimmed``: the last seq of each origin there. ``members`` are the
    origins of the view, by slot. ``stamps``: of each held transaction now, by seq; those of the log are unknown
    where the mirror was made of a disk."""

    def __init__(self) -> None:
        self.held: dict[Origin, int] = {}
        self.hashes = bytearray()
        self.foot = 0
        self.foot_hash = b""
        self.trimmed: dict[Origin, int] = {}
        self.stable = 0
        self.ceiling = 0
        self.accepted: View | None = None
        self.members: list[Origin] = []
        self.installed = False
        self.promised: Number = NO_VIEW
        self.left: Number = NO_VIEW
        self.orders = NO_ORDERS
        self.stamps: dict[Origin, dict[int, int]] = {}

    @property
    def log(self) -> int:
        return self.foot + len(self.hashes) // HASH_BYTES

    @property
    def hash(self) -> bytes:
        return bytes(self.hashes[-HASH_BYTES:]) or self.foot_hash

    @property
    def stopped(self) -> bool:
        """Nothing is ordered in its view any more, if it has one."""
        number = self.accepted.number if self.accepted is not None else NO_VIEW
        return self.promised > number or self.left == number

    def hash_at(self, index: int) -> bytes:
        """Behind an entry that is kept, or at the foot."""
        at = HASH_BYTES * (index - self.foot)
        return bytes(self.hashes[at - HASH_BYTES : at]) if at else self.foot_hash

    def apply(self, record: Record) -> None:
        """One more durable record."""
        match record:
            case Held():
                self.held[record.run.origin] = record.run.last_seq
                self._stamp(record.run.origin, record.run.first_seq, [item.stamp for item in record.run.items])
            case Added():
                self.hashes += record.hashes
                self.stable = record.stable
            case Stable():
                self.stable = record.index
            case Ceiling():
                self.ceiling = record.stamp
            case Promised():
                self.promised = max(self.promised, (record.epoch, record.ballot, record.coordinator))
            case ViewAccepted():
                self._accept(record)
            case ViewInstalled():
                assert self.accepted is not None
                self.installed = True
                self.stable = self.accepted.base_index
                self.orders = self.orders.left_by(self.accepted, True)
            case Trimmed():
                self._trim(record.foot)
            case Left():
                self.left = (record.epoch, record.ballot, record.coordinator)
            case Orders():
                self.orders = record

    def _trim(self, foot: Foot) -> None:
        if foot.index > self.log:
            self.hashes.clear()
            self.stable = foot.index
        else:
            del self.hashes[: HASH_BYTES * (foot.index - self.foot)]
        self.foot, self.foot_hash = foot.index, foot.hash
        for node, birth, seq in foot.seqs:
            self.trimmed[Origin(node, birth)] = seq
            self.held[Origin(node, birth)] = max(seq, self.held.get(Origin(node, birth), 0))

    def _accept(self, record: ViewAccepted) -> None:
        self.accepted = record.view
        self.members = [Origin(*origin) for origin in record.view.origins]
        self.installed = False
        self.promised = max(self.promised, record.view.number)
        self.orders = self.orders.left_by(record.view, False)
        del self.hashes[HASH_BYTES * (record.cut - self.foot) :]
        self.hashes += record.hashes
        self.stable = min(self.stable, record.cut)
        for stamped in record.stamped:
            self._stamp(Origin(stamped.node, stamped.birth), stamped.first_seq, stamped.stamps)

    def _stamp(self, origin: Origin, first_seq: int, stamps: Sequence[int]) -> None:
        self.stamps.setdefault(origin, {}).update(enumerate(stamps, first_seq))

    def mended(self, txid: Txid, stamp: int) -> None:
        """A repair has brought it with another stamp than it had."""
        self._stamp(txid.origin, txid.seq, [stamp])

    def wrong_stamp(self, recovered: Recovered) -> str:
        """The first waiting transaction that was read back with another stamp than it has; empty for none."""
        for meta in recovered.queued:
            mine = self.stamps.get(Origin(meta.node, meta.birth), {})
            for seq, stamp in enumerate(meta.stamps, meta.first_seq):
                if mine.get(seq, stamp) != stamp:
                    return f"{meta.node}.{seq} has stamp {stamp}, its disk held {mine[seq]}"
        return ""

    def summary(self) -> Summary:
        """What every single record changes something of."""
        number = self.accepted.number if self.accepted else None
        held = tuple(sorted(self.held.items()))
        numbers = (number, self.promised, self.left, _told(self.orders))
        return (numbers, self.installed, self.ceiling, self.stable, self.foot, self.log, self.hash, held)


def mirror_of(recovered: Recovered) -> Mirror:
    """A mirror of what a disk holds that is not what it was (an old image, a damaged one)."""
    mirror = Mirror()
    mirror.installed = recovered.installed is not None
    mirror.ceiling, mirror.stable = recovered.ceiling, recovered.stable
    mirror.promised, mirror.left, mirror.orders = recovered.promised, recovered.left, recovered.orders
    mirror.hashes = bytearray(recovered.log_hashes)
    mirror.foot, mirror.foot_hash = recovered.foot.index, recovered.foot.hash
    mirror.trimmed = {Origin(node, birth): seq for node, birth, seq in recovered.foot.seqs}
    mirror.held = _held_of(recovered)
    for meta in recovered.queued:
        mirror._stamp(Origin(meta.node, meta.birth), meta.first_seq, meta.stamps)
    mirror.accepted = recovered.accepted
    mirror.members = [Origin(*origin) for origin in recovered.accepted.origins] if recovered.accepted else []
    return mirror


def _told(orders: Orders) -> Summary:
    return (*orders.begin, *orders.without)


def _held_of(recovered: Recovered) -> dict[Origin, int]:
    held = {Origin(node, birth): seq for node, birth, seq in recovered.foot.seqs}
    for span in recovered.log_spans:
        held[Origin(span.node, span.birth)] = span.first_seq + span.count - 1
    for meta in recovered.queued:
        if meta.stamps:
            held[Origin(meta.node, meta.birth)] = meta.first_seq + len(meta.stamps) - 1
    return held


def summary_of(recovered: Recovered) -> Summary:
    """The same of a journal that was read back."""
    end = recovered.log_end
    held = _held_of(recovered)
    number = recovered.accepted.number if recovered.accepted else None
    return (
        (number, recovered.promised, recovered.left, _told(recovered.orders)),
        recovered.installed is not None,
        recovered.ceiling,
        recovered.stable,
        recovered.foot.index,
        end,
        recovered.hash_at(end) if end else b"",
        tuple(sorted(held.items())),
    )
