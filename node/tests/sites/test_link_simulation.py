"""The decisions of links in a simulated world: two sites that write the same keys, with crashes, repeats and cuts."""

from __future__ import annotations

from collections import Counter

from site_world import World

SEEDS = 180


def test_two_sites_end_equal_with_the_last_write_of_each_key() -> None:
    total: Counter[str] = Counter()
    for seed in range(SEEDS):
        total.update(World(seed).count)
    # What is not met proves nothing.
    met = ["batch", "correction", "conflicts", "void", "repeats", "whole", "kills", "forged", "seal", "offline"]
    met += ["take", "reset", "page", "end"]
    assert all(total[each] > 50 for each in met), total
