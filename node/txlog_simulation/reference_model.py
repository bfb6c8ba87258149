"""The seed's algorithm word for word: POST, COLLECT, ADD, MERGE with whole queues, and its exceptions for time-outs and
laggers. One correction: the merge base is (index, chain hash), and a counter of a master that is missing counts only
with what came with it (rule 10). Slow and obvious; the core must add what this adds.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple


class ReferenceTransaction(NamedTuple):
    """Sorted as the protocol sorts: stamp, then node id (births do not occur here), then seq."""

    stamp: int
    node: str
    seq: int


MergeBase = tuple[int, bytes]


class ReferencePost(NamedTuple):
    """1. POST: merge base, counter, the whole incoming queue. ``log``: what a forerunner sends a lagger."""

    node: str
    number: int
    base: MergeBase
    counter: int
    queue: tuple[ReferenceTransaction, ...]
    log: tuple[ReferenceTransaction, ...]


def common_prefix(
    queues: Iterable[tuple[ReferenceTransaction, ...]], counter_min: int
) -> tuple[ReferenceTransaction, ...]:
    """3. ADD: the longest common prefix of all queues with stamps up to the least counter."""
    prefix: list[ReferenceTransaction] = []
    for row in zip(*queues, strict=False):
        if row[0].stamp > counter_min or any(tx != row[0] for tx in row):
            break
        prefix.append(row[0])
    return tuple(prefix)


def merge_base(log: Iterable[ReferenceTransaction]) -> MergeBase:
    """(index, chain hash)."""
    value, index = b"", 0
    for tx in log:
        value = blake2b(value + repr(tx).encode(), digest_size=16).digest()
        index += 1
    return index, value


class ReferenceNode:
    """One master. ``counter`` is set by whoever drives it: no later own stamp is at or below it."""

    def __init__(self, node: str, peers: Iterable[str]) -> None:
        self.node = node
        self.peers = sorted(peers)
        self.log: list[ReferenceTransaction] = []
        self.queue: set[ReferenceTransaction] = set()
        self.counter = 0
        self.number = 0
        self.collected: dict[str, ReferencePost] = {}
        self.usable: dict[str, int] = dict.fromkeys(self.peers, 0)
        self._waiting: list[ReferencePost] = []

    def add_local(self, tx: ReferenceTransaction) -> None:
        """A client's transaction."""
        self.queue.add(tx)

    def post(self) -> ReferencePost:
        """1. POST."""
        self.number += 1
        queue = tuple(sorted(self.queue))
        return ReferencePost(self.node, self.number, merge_base(self.log), self.counter, queue, tuple(self.log))

    def collect(self, post: ReferencePost) -> None:
        """2. COLLECT, the laggers' exception, 4. MERGE; an old post is dropped (rule 9)."""
        before = self.collected.get(post.node)
        if before is not None and before.number >= post.number:
            return
        self.collected[post.node] = post
        if len(post.log) > len(self.log):
            assert list(post.log[: len(self.log)]) == self.log, "forked"
            self._append(post.log[len(self.log) :])
        known = set(self.log)
        self.queue |= {tx for tx in post.queue if tx not in known}
        self._waiting.append(post)
        self._make_usable()

    def _make_usable(self) -> None:
        """Rule 10: the queue is merged (above); is the base reached, with the same hash?"""
        for post in list(self._waiting):
            index, value = post.base
            if index <= len(self.log):
                assert merge_base(self.log[:index])[1] == value, "forked"
                self.usable[post.node] = max(self.usable[post.node], post.counter)
                self._waiting.remove(post)

    def add_common_prefix(self, missing: Iterable[str] = ()) -> int:
        """3. ADD among those that posted for this merge base, with the last counters of the ``missing``."""
        base, queues, counters = merge_base(self.log), [tuple(sorted(self.queue))], [self.counter]
        absent = set(missing)
        for peer in self.peers:
            post = self.collected.get(peer)
            if peer in absent:
                counters.append(self.usable[peer])
            elif post is None or post.base != base:
                return 0
            else:
                queues.append(post.queue)
                counters.append(post.counter)
        added = common_prefix(queues, min(counters))
        self._append(added)
        self._make_usable()
        return len(added)

    def _append(self, entries: Iterable[ReferenceTransaction]) -> None:
        for tx in entries:
            self.log.append(tx)
            self.queue.discard(tx)
