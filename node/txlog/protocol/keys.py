"""Idempotency keys: the first entry in log order with a key counts (rule 16), decided from the log alone."""

from __future__ import annotations

from typing import NamedTuple

from txlog.model.ids import Txid
from txlog.model.stamp import LOGICAL_BITS


class First(NamedTuple):
    """The transaction that counts for a key. ``content`` tells a retry from another body under the same key."""

    txid: Txid
    stamp: int
    content: bytes


class Keys:
    """``logged``: per key the first entry of the log, replaced by one that comes later than the retention.
    ``waiting``: keys of held transactions that are not in the log yet; a hint for retries, never a decision."""

    def __init__(self, retention_ms: int) -> None:
        self._retention = retention_ms << LOGICAL_BITS
        self.logged: dict[str, First] = {}
        self.waiting: dict[str, First] = {}

    def entered(self, key: str, first: First) -> Txid | None:
        """An entry with this key enters the log. The txid that counts instead, when this one is a no-op."""
        if self.waiting.get(key, first).txid == first.txid:
            self.waiting.pop(key, None)
        before = self.logged.get(key)
        if before is not None and first.stamp - before.stamp <= self._retention:
            return before.txid
        self.logged.pop(key, None)
        self.logged[key] = first
        self._forget(first.stamp)
        return None

    def known(self, key: str, stamp: int) -> First | None:
        """Which transaction a retry made now would repeat, as far as this master knows."""
        before = self.logged.get(key)
        if before is not None and stamp - before.stamp <= self._retention:
            return before
        return self.waiting.get(key)

    def _forget(self, stamp: int) -> None:
        """Drop what no later entry can repeat any more. Stamps grow along the log, and so along the dict."""
        while self.logged:
            key = next(iter(self.logged))
            if stamp - self.logged[key].stamp <= self._retention:
                return
            del self.logged[key]
