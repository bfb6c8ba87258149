"""A number that usually grows, and futures that resolve when it reaches their targets."""

from __future__ import annotations

import heapq
from typing import Protocol


class Waiter(Protocol):
    """An ``asyncio.Future[bool]``, or an object that behaves like one. ``set_result`` must not raise."""

    def done(self) -> bool:
        """Whether it has a result, or is cancelled."""

    def set_result(self, reached: bool, /) -> None:
        """False: the number will not reach the target in time."""


class Watermark:
    """``value`` usually only grows. When it falls (a worker was restored), waiters that are already resolved stay
    resolved.

    A future that is already done (its client disconnected, its time is over) is skipped when its turn comes.
    """

    __slots__ = ("_heap", "_sequence", "value")

    def __init__(self, value: int = 0) -> None:
        self.value = value
        self._heap: list[tuple[int, int, Waiter]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._heap)

    def move_to(self, value: int) -> None:
        """Set the number to ``value``: every waiter with this target or a lower one gets ``True``."""
        self.value = value
        heap = self._heap
        while heap and heap[0][0] <= value:
            future = heapq.heappop(heap)[2]
            if not future.done():
                future.set_result(True)

    def add_waiter(self, target: int, future: Waiter) -> None:
        """Resolve ``future`` with ``True`` as soon as the number is at least ``target``; at once if it is."""
        if target <= self.value:
            if not future.done():
                future.set_result(True)
            return
        self._sequence += 1  # futures cannot be compared; equal targets keep their order
        heapq.heappush(self._heap, (target, self._sequence, future))
        if self._sequence & 1023 == 0:
            self._drop_done_waiters()

    def abort_waiters(self) -> None:
        """Resolve every waiter with ``False``."""
        heap, self._heap = self._heap, []
        for _, _, future in heap:
            if not future.done():
                future.set_result(False)

    def _drop_done_waiters(self) -> None:
        """Doorbells and time-outs leave done futures in the heap. Without this they would accumulate while the number
        is constant."""
        live = [entry for entry in self._heap if not entry[2].done()]
        if 2 * len(live) < len(self._heap):
            heapq.heapify(live)
            self._heap = live
