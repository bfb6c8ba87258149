"""What is durable at one master, as the simulator knows it: the record stream, followed without the journal's help.

A mirror is fed each record when its fsync has returned. After a crash the recovered journal must be the mirror, or
the mirror and the first few records behind it: nothing that was durable is lost and nothing is invented.
"""

from __future__ import annotations

from collections.abc import Sequence

from txlog.model.hashes import HASH_BYTES
from txlog.model.ids import Origin, Txid
from txlog.model.records import (
    NO_OVERRIDES,
    CounterCeiling,
    LogAppended,
    LogStart,
    LogTrimmed,
    OperatorOverrides,
    Record,
    RecoveredState,
    StableAdvanced,
    TransactionsPersisted,
    ViewAccepted,
    ViewInstalled,
    ViewLeft,
    ViewPromised,
)
from txlog.model.view import NO_VIEW, Number, View

StateSummary = tuple[object, ...]


class DurableState:
    """``held_seqs``: last seq per origin. ``log_length`` counts entries, ``log_hash`` is the chain hash at its end,
    ``hashes`` are those of all entries behind the ``log_start``; ``trimmed_seqs``: the last seq of each origin there.
    ``members`` are the origins of the view, by slot. ``stamps``: of each held transaction now, by seq; those of the log
    are unknown where the mirror was made of a disk."""

    def __init__(self) -> None:
        self.held_seqs: dict[Origin, int] = {}
        self.hashes = bytearray()
        self.log_start = 0
        self.log_start_hash = b""
        self.trimmed_seqs: dict[Origin, int] = {}
        self.stable = 0
        self.ceiling = 0
        self.accepted: View | None = None
        self.members: list[Origin] = []
        self.installed = False
        self.promised: Number = NO_VIEW
        self.left: Number = NO_VIEW
        self.overrides = NO_OVERRIDES
        self.stamps: dict[Origin, dict[int, int]] = {}

    @property
    def log_length(self) -> int:
        return self.log_start + len(self.hashes) // HASH_BYTES

    @property
    def log_hash(self) -> bytes:
        return bytes(self.hashes[-HASH_BYTES:]) or self.log_start_hash

    @property
    def is_stopped(self) -> bool:
        """Nothing is ordered in its view any more, if it has one."""
        number = self.accepted.number if self.accepted is not None else NO_VIEW
        return self.promised > number or self.left == number

    def hash_at(self, index: int) -> bytes:
        """Behind an entry that is kept, or at the foot."""
        at = HASH_BYTES * (index - self.log_start)
        return bytes(self.hashes[at - HASH_BYTES : at]) if at else self.log_start_hash

    def apply(self, record: Record) -> None:
        """One more durable record."""
        match record:
            case TransactionsPersisted():
                self.held_seqs[record.run.origin] = record.run.last_seq
                self._set_stamps(record.run.origin, record.run.first_seq, [item.stamp for item in record.run.items])
            case LogAppended():
                self.hashes += record.hashes
                self.stable = record.stable
            case StableAdvanced():
                self.stable = record.index
            case CounterCeiling():
                self.ceiling = record.stamp
            case ViewPromised():
                self.promised = max(self.promised, (record.epoch, record.ballot, record.coordinator))
            case ViewAccepted():
                self._accept(record)
            case ViewInstalled():
                assert self.accepted is not None
                self.installed = True
                self.stable = self.accepted.base_index
                self.overrides = self.overrides.remaining_after(self.accepted, True)
            case LogTrimmed():
                self._trim(record.log_start)
            case ViewLeft():
                self.left = (record.epoch, record.ballot, record.coordinator)
            case OperatorOverrides():
                self.overrides = record

    def _trim(self, foot: LogStart) -> None:
        if foot.index > self.log_length:
            self.hashes.clear()
            self.stable = foot.index
        else:
            del self.hashes[: HASH_BYTES * (foot.index - self.log_start)]
        self.log_start, self.log_start_hash = foot.index, foot.hash
        for node, birth, seq in foot.seqs:
            self.trimmed_seqs[Origin(node, birth)] = seq
            self.held_seqs[Origin(node, birth)] = max(seq, self.held_seqs.get(Origin(node, birth), 0))

    def _accept(self, record: ViewAccepted) -> None:
        self.accepted = record.view
        self.members = [Origin(*origin) for origin in record.view.origins]
        self.installed = False
        self.promised = max(self.promised, record.view.number)
        self.overrides = self.overrides.remaining_after(record.view, False)
        del self.hashes[HASH_BYTES * (record.cut - self.log_start) :]
        self.hashes += record.hashes
        self.stable = min(self.stable, record.cut)
        for stamped in record.reassigned:
            self._set_stamps(Origin(stamped.node, stamped.birth), stamped.first_seq, stamped.stamps)

    def _set_stamps(self, origin: Origin, first_seq: int, stamps: Sequence[int]) -> None:
        self.stamps.setdefault(origin, {}).update(enumerate(stamps, first_seq))

    def on_repaired(self, txid: Txid, stamp: int) -> None:
        """A repair has brought it with another stamp than it had."""
        self._set_stamps(txid.origin, txid.seq, [stamp])

    def find_wrong_stamp(self, recovered: RecoveredState) -> str:
        """The first waiting transaction that was read back with another stamp than it has; empty for none."""
        for meta in recovered.queued:
            mine = self.stamps.get(Origin(meta.node, meta.birth), {})
            for seq, stamp in enumerate(meta.stamps, meta.first_seq):
                if mine.get(seq, stamp) != stamp:
                    return f"{meta.node}.{seq} has stamp {stamp}, its disk held {mine[seq]}"
        return ""

    def summary(self) -> StateSummary:
        """What every single record changes something of."""
        number = self.accepted.number if self.accepted else None
        held = tuple(sorted(self.held_seqs.items()))
        numbers = (number, self.promised, self.left, _override_names(self.overrides))
        return (
            numbers,
            self.installed,
            self.ceiling,
            self.stable,
            self.log_start,
            self.log_length,
            self.log_hash,
            held,
        )


def durable_state_of(recovered: RecoveredState) -> DurableState:
    """A mirror of what a disk holds that is not what it was (an old image, a damaged one)."""
    mirror = DurableState()
    mirror.installed = recovered.installed is not None
    mirror.ceiling, mirror.stable = recovered.ceiling, recovered.stable
    mirror.promised, mirror.left, mirror.overrides = recovered.promised, recovered.left, recovered.overrides
    mirror.hashes = bytearray(recovered.log_hashes)
    mirror.log_start, mirror.log_start_hash = recovered.log_start.index, recovered.log_start.hash
    mirror.trimmed_seqs = {Origin(node, birth): seq for node, birth, seq in recovered.log_start.seqs}
    mirror.held_seqs = _held_seqs_of(recovered)
    for meta in recovered.queued:
        mirror._set_stamps(Origin(meta.node, meta.birth), meta.first_seq, meta.stamps)
    mirror.accepted = recovered.accepted
    mirror.members = [Origin(*origin) for origin in recovered.accepted.origins] if recovered.accepted else []
    return mirror


def _override_names(orders: OperatorOverrides) -> StateSummary:
    return (*orders.bootstrap_members, *orders.excluded_members)


def _held_seqs_of(recovered: RecoveredState) -> dict[Origin, int]:
    held = {Origin(node, birth): seq for node, birth, seq in recovered.log_start.seqs}
    for span in recovered.log_spans:
        held[Origin(span.node, span.birth)] = span.first_seq + span.count - 1
    for meta in recovered.queued:
        if meta.stamps:
            held[Origin(meta.node, meta.birth)] = meta.first_seq + len(meta.stamps) - 1
    return held


def summary_of(recovered: RecoveredState) -> StateSummary:
    """The same of a journal that was read back."""
    end = recovered.log_end
    held = _held_seqs_of(recovered)
    number = recovered.accepted.number if recovered.accepted else None
    return (
        (number, recovered.promised, recovered.left, _override_names(recovered.overrides)),
        recovered.installed is not None,
        recovered.ceiling,
        recovered.stable,
        recovered.log_start.index,
        end,
        recovered.hash_at(end) if end else b"",
        tuple(sorted(held.items())),
    )
