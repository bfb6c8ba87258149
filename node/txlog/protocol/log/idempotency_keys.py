"""Idempotency keys: the first entry in log order with a key counts (rule 16), decided from the log alone."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from txlog.model.ids import Origin, Txid
from txlog.model.records import IdempotencyKeyRecord, LogStart
from txlog.model.stamp import LOGICAL_BITS


class FirstUse(NamedTuple):
    """The transaction that counts for a key. ``content`` distinguishes a retry from another body under the same key."""

    txid: Txid
    stamp: int
    content: bytes


class KeyUse(NamedTuple):
    """A keyed entry of the log, at this index, that may still leave it. ``replaced``: the use that counted for the key
    before, None without one; ``counts``: whether this one counts now."""

    log_index: int
    key: str
    first: FirstUse
    replaced: FirstUse | None
    counts: bool


class RetentionChange(NamedTuple):
    """From this entry of the log on (its index and stamp) keys are kept for a different time; ``before``: the retention
    until there."""

    log_index: int
    stamp: int
    before: int


class IdempotencyKeys:
    """``first_uses``: per key the first entry of the log, replaced by one that comes later than the retention.
    ``waiting``: keys of persisted transactions that are not in the log yet; a hint for retries, never a decision.
    A key is never forgotten because of an entry that may still leave the log."""

    def __init__(self, retention_ms: int) -> None:
        self._retention = retention_ms << LOGICAL_BITS
        self.first_uses: dict[str, FirstUse] = {}
        self.waiting: dict[str, FirstUse] = {}
        self._tentative: deque[KeyUse] = deque()
        self._retention_changes: list[RetentionChange] = []
        self._longest_retention = self._retention

    def restore(self, log_start: LogStart) -> None:
        """Restore the keys that count at a log start, in log order."""
        self.first_uses.clear()
        self._tentative.clear()
        if log_start.index:
            self._retention = log_start.retention
            self._retention_changes = [RetentionChange(*one) for one in log_start.retentions]
            self._longest_retention = max([self._retention, *(one.before for one in self._retention_changes)])
        for one in log_start.keys:
            self.first_uses[one.key] = FirstUse(Txid(Origin(one.node, one.birth), one.seq), one.stamp, one.content)
            self.waiting.pop(one.key, None)

    def record_use(self, index: int, key: str, first: FirstUse) -> Txid | None:
        """An entry with this key enters the log. Returns the txid that counts instead, when this entry is a no-op."""
        if self.waiting.get(key, first).txid == first.txid:
            self.waiting.pop(key, None)
        before = self.first_uses.get(key)
        if before is not None and self.is_repeat(before.stamp, first.stamp):
            self._tentative.append(KeyUse(index, key, first, before, False))
            return before.txid
        self.first_uses.pop(key, None)
        self.first_uses[key] = first
        self._tentative.append(KeyUse(index, key, first, before, True))
        return None

    def mark_final(self, stable: int) -> None:
        """No entry up to here leaves the log again."""
        while self._tentative and self._tentative[0].log_index <= stable:
            self._drop_expired(self._tentative.popleft().first.stamp)

    def truncate(self, index: int) -> None:
        """The entries after ``index`` have left the log; they wait again."""
        while self._retention_changes and self._retention_changes[-1].log_index > index:
            self._retention = self._retention_changes.pop().before
        while self._tentative and self._tentative[-1].log_index > index:
            gone = self._tentative.pop()
            if gone.counts:
                self.first_uses.pop(gone.key, None)
                if gone.replaced is not None:
                    self.first_uses[gone.key] = gone.replaced
            self.waiting[gone.key] = gone.first

    def keys_after(self, index: int) -> list[tuple[str, Txid]]:
        """The keys of the entries after ``index``; all of them may still leave the log."""
        return [(one.key, one.first.txid) for one in self._tentative if one.log_index > index]

    def is_repeat(self, first_stamp: int, stamp: int) -> bool:
        """Whether a transaction of this stamp repeats an earlier one of the log with the same key."""
        if stamp - first_stamp > self._retention:
            return False
        # A key that had expired before the retention grew stays expired: it may be forgotten.
        between = (one for one in self._retention_changes if first_stamp <= one.stamp <= stamp)
        return all(one.stamp - first_stamp <= one.before for one in between)

    def change_retention(self, index: int, stamp: int, retention_ms: int) -> None:
        """Keys are kept for this many milliseconds after this entry of the log."""
        self._set_retention(index, stamp, retention_ms << LOGICAL_BITS)

    def _set_retention(self, index: int, stamp: int, retention: int) -> None:
        if retention != self._retention:
            self._retention_changes.append(RetentionChange(index, stamp, self._retention))
            self._retention = retention
            self._longest_retention = max(self._longest_retention, self._retention)

    def initialize_retention(self, retention_ms: int) -> None:
        """Set how long keys are kept from the beginning of the log, which is empty."""
        assert not self.first_uses
        self._retention = self._longest_retention = retention_ms << LOGICAL_BITS

    def find_first_use(self, key: str, stamp: int) -> FirstUse | None:
        """The transaction that a retry made now would repeat, as far as this master knows."""
        before = self.first_uses.get(key)
        if before is not None and self.is_repeat(before.stamp, stamp):
            return before
        return self.waiting.get(key)

    def retention_changes(self, after: int, upto: int) -> list[tuple[int, int, int]]:
        """The changes of the retention after one entry of the log and up to another: index, stamp, and the retention
        from there on."""
        times = [*(one.before for one in self._retention_changes[1:]), self._retention]
        rows = zip(self._retention_changes, times, strict=False)
        return [(one.log_index, one.stamp, time >> LOGICAL_BITS) for one, time in rows if after < one.log_index <= upto]

    def copy_at(self, log_start: LogStart) -> IdempotencyKeys:
        """A copy of the keys that count at this log start; without one, at the log's beginning."""
        first = self._retention_changes[0].before if self._retention_changes else self._retention
        other = IdempotencyKeys(first >> LOGICAL_BITS)
        other.restore(log_start)
        return other

    @property
    def retention_state(self) -> tuple[int, list[tuple[int, int, int]]]:
        """The retention now, and its changes, in the form of a log start."""
        return self._retention, [(one.log_index, one.stamp, one.before) for one in self._retention_changes]

    def retained_uses(self, stamp: int) -> list[IdempotencyKeyRecord]:
        """All keys that an entry after one of this stamp may repeat. Only where no entry may leave the log."""
        return [
            IdempotencyKeyRecord(key, one.txid.origin.node, one.txid.origin.birth, one.txid.seq, one.stamp, one.content)
            for key, one in self.first_uses.items()
            if stamp - one.stamp <= self._longest_retention
        ]

    def _drop_expired(self, stamp: int) -> None:
        """Drop the keys that no later entry can repeat. Stamps grow along the log, and so along the dict."""
        while self.first_uses:
            key = next(iter(self.first_uses))
            if stamp - self.first_uses[key].stamp <= self._longest_retention:
                return
            del self.first_uses[key]
