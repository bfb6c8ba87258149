"""The transactions of the batch's cases leave the quads that the store is asked for."""

from __future__ import annotations

import pytest

from bench.batch import (
    ADDS,
    DELETES,
    MIXED_WORKLOAD,
    ONE_QUAD_WORKLOAD,
    RECURRING_QUADS,
    WRITERS,
    BatchWorkload,
    _recurring_write,
)
from txlog.model.quads import decode_quads, split_graph

COUNT = 50
ORDERS = {
    "in turn": list(range(COUNT)),
    "one master after another": [number for first in range(WRITERS) for number in range(first, COUNT, WRITERS)],
    "the last master first": [number for first in (2, 0, 1) for number in range(first, COUNT, WRITERS)],
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
@pytest.mark.parametrize("shape", [ONE_QUAD_WORKLOAD, MIXED_WORKLOAD], ids=lambda shape: shape.name)
def test_what_is_left_is_what_the_transactions_leave(shape: BatchWorkload, order: list[int]) -> None:
    """However the log mixes what the masters have taken in, each in its order."""
    held: set[str] = set()
    for number in order:
        write = shape.build_write(number)
        held -= set((write.delete or "").splitlines())
        held |= set((write.add or write.quads or "").splitlines())
    left = [line.decode().rstrip("\n") for line in shape.remaining_quads(COUNT)]
    assert len(left) == len(set(left))
    assert set(left) == held


def test_the_backlog_recurs_and_no_quad_is_twice_in_a_transaction() -> None:
    seen: set[bytes] = set()
    for number in range(1, 3000):
        operations = list(decode_quads(_recurring_write(number, 0)))
        assert 0 < len({line for _, line in operations}) == len(operations) <= ADDS + DELETES
        seen |= {line for _, line in operations}
        assert all(split_graph(line)[1] == b"<g:one>" for _, line in operations)
    assert len(seen) <= RECURRING_QUADS
