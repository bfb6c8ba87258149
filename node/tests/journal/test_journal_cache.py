"""What the latest records are kept for, and how they go."""

from __future__ import annotations

from txlog.journal.recent_cache import EVICTIONS_MAX, ITEM_BYTES, RecentCache
from txlog.model.entry import RunItem, TransactionRun

SIZE = ITEM_BYTES + 100


def put(recent: RecentCache, seq: int, payload_bytes: int = 100) -> None:
    recent.put(0, seq, TransactionRun("a", 1, seq, [RunItem(seq, 1, "", b"x")]), payload_bytes)


def kept(recent: RecentCache, upto: int) -> list[int]:
    return [seq for seq in range(1, upto + 1) if recent.get(0, seq) is not None]


def test_the_oldest_go_first_and_only_what_is_synced() -> None:
    recent = RecentCache(10 * SIZE)
    for seq in range(1, 31):
        put(recent, seq)
    recent.shrink(5)
    assert kept(recent, 30) == list(range(6, 31)), "the others stand nowhere else yet"
    recent.shrink(30)
    assert kept(recent, 30) == list(range(21, 31))
    recent.shrink(30)
    assert kept(recent, 30) == list(range(21, 31)), "what fits stays"


def test_behind_a_large_one_the_small_ones_go_a_few_at_a_time() -> None:
    recent = RecentCache(5000 * SIZE)
    for seq in range(1, 5001):
        put(recent, seq)
    recent.shrink(5000)
    assert len(kept(recent, 5000)) == 5000
    put(recent, 5001, 4000 * SIZE)
    recent.shrink(5001)
    assert kept(recent, 5000)[0] == EVICTIONS_MAX + 3
    turns = 0
    while len(kept(recent, 5000)) > 1000:
        recent.shrink(5001)
        turns += 1
        assert turns < 5000 // EVICTIONS_MAX
    assert recent.get(0, 5001) is not None


def test_as_many_go_as_come() -> None:
    recent = RecentCache(0)
    for first in range(1, 5001, 500):
        for seq in range(first, first + 500):
            put(recent, seq)
        recent.shrink(first + 499)
        assert kept(recent, first + 499) == []


def test_one_that_comes_again_counts_once() -> None:
    recent = RecentCache(2 * SIZE)
    for _ in range(5):
        put(recent, 1)
    put(recent, 2)
    recent.shrink(2)
    assert kept(recent, 2) == [1, 2]
