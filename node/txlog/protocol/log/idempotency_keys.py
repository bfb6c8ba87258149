"""Idempotency keys: the first entry in log order with a key counts (rule 16), decided from the log alone.

The age of a key is the difference of two *first stamps*: those that the transactions got from the masters that took
them. So a transaction that comes back late, with a new stamp, still repeats what it repeated when it was taken.
"""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple

from txlog.model.errors import Unavailable
from txlog.model.ids import Origin, Txid
from txlog.model.records import LogStart
from txlog.model.stamp import LOGICAL_BITS
from txlog.protocol.log.key_table import TAG_BYTES, FirstUse, KeyTable, KeyTableSnapshot, key_name

SWEEPS_A_RETENTION: Final = 64
"""How often the table is searched for expired keys while one retention passes."""
SWEEP_BUCKETS: Final = 4
"""Buckets that are searched at once."""
_COMPACT_AT: Final = 4096
KEYS_FULL_RETRY_S: Final = 60


class RetentionChange(NamedTuple):
    """From this entry of the log on (its index and stamp) keys are kept for a different time; ``before``: the retention
    until there."""

    log_index: int
    stamp: int
    before: int


class IdempotencyKeys:
    """``final``: the uses that count and cannot leave the log. ``tentative``: those of entries that may still leave it.
    ``waiting``: keys of persisted transactions that are not in the log yet; a hint for retries, never a decision.

    ``horizon``: no entry that enters the log later has a first stamp below it. A use is forgotten when it is older than
    that by the longest retention, and never for another reason. ``known_until``: the log start has decided the keys up
    to this index."""

    def __init__(self, retention_ms: int) -> None:
        self._retention = retention_ms << LOGICAL_BITS
        self.final = KeyTable()
        self.tentative = KeyTable()
        self.waiting: dict[str, FirstUse] = {}
        self.horizon = 0
        self.known_until = 0
        self.has_first_stamps = False
        """An entry of the log has a first stamp."""
        self._open = TentativeUses()
        self._sweep_stamp = 0
        self._is_sweeping = False
        self._retention_changes: list[RetentionChange] = []
        self._longest_retention = self._retention

    def __len__(self) -> int:
        return len(self.final) + len(self.tentative) + len(self.waiting)

    @property
    def retention_ms(self) -> int:
        """For how many milliseconds keys are kept at the end of the log."""
        return self._retention >> LOGICAL_BITS

    @property
    def sweep_step(self) -> int:
        """Stamps by which the horizon has to grow before the table is searched for expired keys again."""
        return self._longest_retention // SWEEPS_A_RETENTION

    def restore(self, log_start: LogStart) -> None:
        """Restore the keys that count at a log start, in log order. What it has passed does not wait any more."""
        self.final, self.tentative, self._open = KeyTable(), KeyTable(), TentativeUses()
        self.horizon = self._sweep_stamp = 0
        self._is_sweeping = False
        self.known_until = log_start.keys_index
        self.has_first_stamps = self.has_first_stamps or log_start.has_first_stamps
        if log_start.index:
            self._retention = log_start.retention
            self._retention_changes = [RetentionChange(*one) for one in log_start.retentions]
            self._longest_retention = max([self._retention, *(one.before for one in self._retention_changes)])
        self.final.load(log_start.key_table)
        for one in log_start.keys:
            txid = Txid(Origin(one.node, one.birth), one.seq)
            self.final.add(key_name(one.key), FirstUse(txid, one.stamp, one.content))
        if self.waiting:
            seqs = {Origin(node, birth): seq for node, birth, seq in log_start.seqs}
            self.waiting = {
                key: one for key, one in self.waiting.items() if one.txid.seq > seqs.get(one.txid.origin, 0)
            }

    def record_use(self, index: int, key: str, first: FirstUse) -> Txid | None:
        """An entry with this key enters the log. Returns the txid that counts instead, when this entry is a no-op."""
        waits = self.waiting.get(key)
        if waits is not None and waits.txid == first.txid:
            del self.waiting[key]
        if index <= self.known_until:
            return None
        name = key_name(key)
        before = self._find_counting(name, first.stamp)
        self._open.add(index, name, before is None, first)
        if before is not None:
            return before.txid
        self.tentative.add(name, first)
        return None

    def _find_counting(self, name: bytes, stamp: int) -> FirstUse | None:
        """The first use in log order that a transaction with this first stamp repeats."""
        for one in self.final.find(name):
            if self.is_repeat(one.stamp, stamp):
                return one
        if self.tentative.count:
            for one in self.tentative.find(name):
                if self.is_repeat(one.stamp, stamp):
                    return one
        return None

    def mark_final(self, stable: int) -> None:
        """No entry up to here leaves the log again."""
        count = self._open.count_up_to(stable)
        for name, counts, use in self._open.take(count):
            if counts:
                self.tentative.remove(name, use.txid)
                self.final.add(name, use)
        if self._is_sweeping:
            self._sweep()

    def truncate(self, index: int) -> None:
        """The entries after ``index`` have left the log. The caller lets them wait again."""
        while self._retention_changes and self._retention_changes[-1].log_index > index:
            self._retention = self._retention_changes.pop().before
        for name, counts, use in self._open.drop_after(index):
            if counts:
                self.tentative.remove(name, use.txid)

    def is_repeat(self, first_stamp: int, stamp: int) -> bool:
        """Whether a transaction with one of these first stamps repeats an earlier one of the log, with the same key and
        the other one. The order of entries in the log need not be that of their first stamps."""
        low, high = min(first_stamp, stamp), max(first_stamp, stamp)
        if high - low > self._retention:
            return False
        # A key that had expired before the retention grew stays expired: it may be forgotten.
        later = (one for one in self._retention_changes if one.stamp >= low)
        return all(min(one.stamp, high) - low <= one.before for one in later)

    def change_retention(self, index: int, stamp: int, retention_ms: int) -> None:
        """Keys are kept for this many milliseconds after this entry of the log."""
        retention = retention_ms << LOGICAL_BITS
        if retention != self._retention and index > self.known_until:
            self._retention_changes.append(RetentionChange(index, stamp, self._retention))
            self._retention = retention
            self._longest_retention = max(self._longest_retention, self._retention)

    def initialize_retention(self, retention_ms: int) -> None:
        """Set how long keys are kept from the beginning of the log, which is empty."""
        assert not len(self.final)
        assert not len(self.tentative)
        self._retention = self._longest_retention = retention_ms << LOGICAL_BITS

    def find_first_use(self, key: str, stamp: int) -> FirstUse | None:
        """The transaction that a retry made now would repeat, as far as this master knows."""
        before = self._find_counting(key_name(key), stamp)
        if before is not None:
            return before
        waits = self.waiting.get(key)
        return waits if waits is not None and self.is_repeat(waits.stamp, stamp) else None

    def full_error(self, away: list[str]) -> Unavailable:
        """Why no new key is taken: there is no room. ``away``: the configured masters outside the view."""
        why = f"; none is forgotten while {', '.join(away)} may bring back transactions of any age" if away else ""
        text = f"{len(self)} idempotency keys are kept, as many as keysMax allows{why}"
        return Unavailable("KeysFull", text, KEYS_FULL_RETRY_S)

    def wait(self, key: str, use: FirstUse) -> None:
        """A transaction with this key is persisted and not in the log. The first such one is remembered, unless it is
        too old to be repeated."""
        before = self.waiting.get(key)
        if before is None or not self.is_repeat(before.stamp, use.stamp):
            self.waiting[key] = use

    def forget_waiting(self, key: str, txid: Txid) -> None:
        """This transaction will never take effect: its key is free again."""
        waits = self.waiting.get(key)
        if waits is not None and waits.txid == txid:
            del self.waiting[key]

    def oldest_tentative(self) -> int:
        """The least first stamp of the keyed entries that may still leave the log; a value above all for none."""
        return self._open.oldest()

    def raise_horizon(self, stamp: int) -> None:
        """No entry that enters the log later has a first stamp below this one. Expired keys are forgotten, a few at
        each :meth:`mark_final`."""
        self.horizon = max(self.horizon, stamp)
        if not self._is_sweeping and self.horizon - self._sweep_stamp >= self.sweep_step:
            self._sweep_stamp, self._is_sweeping = self.horizon, True
            self._sweep()

    def _sweep(self) -> None:
        """A stamp in a row is not above the horizon minus the longest retention: nothing can repeat it any more."""
        if self.final.drop_older(self._sweep_stamp - self._longest_retention, SWEEP_BUCKETS):
            self._is_sweeping = False

    def decided_up_to(self, final_index: int) -> int:
        """The index up to which the table decides the keys. The log start may have decided more of them than this
        master's log has entries yet: a learner passes on the table that it received."""
        return max(final_index, self.known_until)

    def log_start_fields(self, final_index: int) -> dict[str, object]:
        """The fields of a log start that say what is known of keys at this final index, without the table."""
        index = self.decided_up_to(final_index)
        changes = [one for one in self._retention_changes if one.log_index <= index]
        later = [one for one in self._retention_changes if one.log_index > index]
        return {
            "retention": later[0].before if later else self._retention,
            "retentions": [(one.log_index, one.stamp, one.before) for one in changes],
            "keys_index": index,
            "has_first_stamps": self.has_first_stamps,
        }

    def snapshot(self) -> KeyTableSnapshot:
        """The table of the uses that cannot leave the log."""
        return self.final.snapshot()


class TentativeUses:
    """The keyed entries of the log that may still leave it, in order: index, hash of the key, whether it counts, txid
    and first stamp. Columns, since a split may last for days."""

    def __init__(self) -> None:
        self._indexes = array("Q")
        self._stamps = array("Q")
        self._seqs = array("Q")
        self._names: list[bytes] = []
        self._origins: list[Origin] = []
        self._counts = bytearray()
        self._contents: list[bytes] = []
        self._head = 0

    def __len__(self) -> int:
        return len(self._indexes) - self._head

    def add(self, index: int, name: bytes, counts: bool, use: FirstUse) -> None:
        """Add the entry at ``index``, which is above all others."""
        self._indexes.append(index)
        self._stamps.append(use.stamp)
        self._seqs.append(use.txid.seq)
        self._names.append(name)
        self._origins.append(use.txid.origin)
        self._counts.append(counts)
        self._contents.append(use.content[:TAG_BYTES])

    def _row(self, at: int) -> tuple[bytes, bool, FirstUse]:
        txid = Txid(self._origins[at], self._seqs[at])
        return self._names[at], bool(self._counts[at]), FirstUse(txid, self._stamps[at], self._contents[at])

    def count_up_to(self, index: int) -> int:
        """How many of the first ones are at or before this index."""
        at = self._head
        while at < len(self._indexes) and self._indexes[at] <= index:
            at += 1
        return at - self._head

    def take(self, count: int) -> list[tuple[bytes, bool, FirstUse]]:
        """Remove the first ``count``."""
        rows = [self._row(at) for at in range(self._head, self._head + count)]
        self._head += count
        if self._head == len(self._indexes) or (self._head >= _COMPACT_AT and self._head * 2 >= len(self._indexes)):
            self._delete(0, self._head)
            self._head = 0
        return rows

    def drop_after(self, index: int) -> list[tuple[bytes, bool, FirstUse]]:
        """Remove those after ``index``; the last one comes first."""
        at = len(self._indexes)
        while at > self._head and self._indexes[at - 1] > index:
            at -= 1
        rows = [self._row(row) for row in range(len(self._indexes) - 1, at - 1, -1)]
        self._delete(at, len(self._indexes))
        return rows

    def _delete(self, first: int, stop: int) -> None:
        del self._indexes[first:stop]
        del self._stamps[first:stop]
        del self._seqs[first:stop]
        del self._names[first:stop]
        del self._origins[first:stop]
        del self._counts[first:stop]
        del self._contents[first:stop]

    def oldest(self) -> int:
        """The least first stamp; a value above all for none."""
        return min(self._stamps[self._head :], default=1 << 63)
