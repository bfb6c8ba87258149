"""Idempotency keys: the first entry in log order with a key counts (rule 16), decided from the log alone."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from txlog.model.ids import Origin, Txid
from txlog.model.records import Foot, KeyKept
from txlog.model.stamp import LOGICAL_BITS


class First(NamedTuple):
    """The transaction that counts for a key. ``content`` tells a retry from another body under the same key."""

    txid: Txid
    stamp: int
    content: bytes


class Entered(NamedTuple):
    """A keyed entry of the log, at this index, that may still leave it. ``replaced``: what counted for the key before,
    None when nothing did; ``counts``: whether this one counts now."""

    at: int
    key: str
    first: First
    replaced: First | None
    counts: bool


class Retention(NamedTuple):
    """From this entry of the log on (its index and stamp) keys are kept for another time; ``before``: for how long they
    were until there."""

    at: int
    stamp: int
    before: int


class Keys:
    """``logged``: per key the first entry of the log, replaced by one that comes later than the retention.
    ``waiting``: keys of held transactions that are not in the log yet; a hint for retries, never a decision.
    Nothing is forgotten because of an entry that may still leave the log."""

    def __init__(self, retention_ms: int) -> None:
        self._retention = retention_ms << LOGICAL_BITS
        self.logged: dict[str, First] = {}
        self.waiting: dict[str, First] = {}
        self._unsettled: deque[Entered] = deque()
        self._changes: list[Retention] = []
        self._longest = self._retention

    def resume(self, foot: Foot) -> None:
        """What counts at the foot of a log, in log order."""
        self.logged.clear()
        self._unsettled.clear()
        if foot.index:
            self._retention = foot.retention
            self._changes = [Retention(*one) for one in foot.retentions]
            self._longest = max([self._retention, *(one.before for one in self._changes)])
        for one in foot.keys:
            self.logged[one.key] = First(Txid(Origin(one.node, one.birth), one.seq), one.stamp, one.content)
            self.waiting.pop(one.key, None)

    def entered(self, index: int, key: str, first: First) -> Txid | None:
        """An entry with this key enters the log. The txid that counts instead, when this one is a no-op."""
        if self.waiting.get(key, first).txid == first.txid:
            self.waiting.pop(key, None)
        before = self.logged.get(key)
        if before is not None and self.is_repeat(before.stamp, first.stamp):
            self._unsettled.append(Entered(index, key, first, before, False))
            return before.txid
        self.logged.pop(key, None)
        self.logged[key] = first
        self._unsettled.append(Entered(index, key, first, before, True))
        return None

    def settle(self, stable: int) -> None:
        """No entry up to here leaves the log again."""
        while self._unsettled and self._unsettled[0].at <= stable:
            self._forget(self._unsettled.popleft().first.stamp)

    def cut(self, index: int) -> None:
        """The entries behind ``index`` have left the log; they wait again."""
        while self._changes and self._changes[-1].at > index:
            self._retention = self._changes.pop().before
        while self._unsettled and self._unsettled[-1].at > index:
            gone = self._unsettled.pop()
            if gone.counts:
                self.logged.pop(gone.key, None)
                if gone.replaced is not None:
                    self.logged[gone.key] = gone.replaced
            self.waiting[gone.key] = gone.first

    def behind(self, index: int) -> list[tuple[str, Txid]]:
        """The keys of the entries behind ``index``; all of them may still leave the log."""
        return [(one.key, one.first.txid) for one in self._unsettled if one.at > index]

    def is_repeat(self, first_stamp: int, stamp: int) -> bool:
        """Whether a transaction of this stamp repeats one of the same key that stands before it in the log."""
        if stamp - first_stamp > self._retention:
            return False
        # what was over when the time became longer does not come back: it may be forgotten
        between = (one for one in self._changes if first_stamp <= one.stamp <= stamp)
        return all(one.stamp - first_stamp <= one.before for one in between)

    def retain(self, index: int, stamp: int, retention_ms: int) -> None:
        """Behind this entry of the log keys are kept for so long."""
        self._change(index, stamp, retention_ms << LOGICAL_BITS)

    def _change(self, index: int, stamp: int, retention: int) -> None:
        if retention != self._retention:
            self._changes.append(Retention(index, stamp, self._retention))
            self._retention = retention
            self._longest = max(self._longest, self._retention)

    def begin(self, retention_ms: int) -> None:
        """The log is empty, and this is how long keys are kept from its beginning on."""
        assert not self.logged
        self._retention = self._longest = retention_ms << LOGICAL_BITS

    def known(self, key: str, stamp: int) -> First | None:
        """Which transaction a retry made now would repeat, as far as this master knows."""
        before = self.logged.get(key)
        if before is not None and self.is_repeat(before.stamp, stamp):
            return before
        return self.waiting.get(key)

    def changes(self, after: int, upto: int) -> list[tuple[int, int, int]]:
        """Where the time was changed, behind one entry of the log and up to another: index, stamp, the time from there
        on."""
        times = [*(one.before for one in self._changes[1:]), self._retention]
        rows = zip(self._changes, times, strict=False)
        return [(one.at, one.stamp, time >> LOGICAL_BITS) for one, time in rows if after < one.at <= upto]

    def copy_at(self, foot: Foot) -> Keys:
        """Those that count at this foot of the log, to go on from; without one, at the log's beginning."""
        first = self._changes[0].before if self._changes else self._retention
        other = Keys(first >> LOGICAL_BITS)
        other.resume(foot)
        return other

    @property
    def times(self) -> tuple[int, list[tuple[int, int, int]]]:
        """The time now, and where it was changed, as a foot has them."""
        return self._retention, [(one.at, one.stamp, one.before) for one in self._changes]

    def kept(self, stamp: int) -> list[KeyKept]:
        """Everything that an entry behind one of this stamp may repeat. Only where nothing may leave the log."""
        return [
            KeyKept(key, one.txid.origin.node, one.txid.origin.birth, one.txid.seq, one.stamp, one.content)
            for key, one in self.logged.items()
            if stamp - one.stamp <= self._longest
        ]

    def _forget(self, stamp: int) -> None:
        """Drop what no later entry can repeat any more. Stamps grow along the log, and so along the dict."""
        while self.logged:
            key = next(iter(self.logged))
            if stamp - self.logged[key].stamp <= self._longest:
                return
            del self.logged[key]
