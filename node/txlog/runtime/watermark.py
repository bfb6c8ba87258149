"""A number that grows, and those who wait until it has reached theirs."""

from __future__ import annotations

import heapq
from typing import Protocol


class Waiter(Protocol):
    """Who waits: an ``asyncio.Future[bool]``, or whoever behaves like one. ``set_result`` must not raise."""

    def done(self) -> bool: ...
    def set_result(self, reached: bool, /) -> None: ...


class Watermark:
    """``value`` usually only grows; when it falls (a worker was restored), who was told before stays told.

    A future that is done already (its client went away, its time is over) is passed over when its turn comes."""

    __slots__ = ("_heap", "_sequence", "value")

    def __init__(self, value: int = 0) -> None:
        self.value = value
        self._heap: list[tuple[int, int, Waiter]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._heap)

    def move_to(self, value: int) -> None:
        """The number is ``value`` now: everybody who waited for it or less gets ``True``."""
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
        """Nobody is waited for any longer: who still waits gets ``False``."""
        heap, self._heap = self._heap, []
        for _, _, future in heap:
            if not future.done():
                future.set_result(False)

    def _drop_done_waiters(self) -> None:
        """Doorbells and time-outs leave futures behind that nobody waits for; without this they would gather while
        the number stands still."""
        live = [entry for entry in self._heap if not entry[2].done()]
        if 2 * len(live) < len(self._heap):
            heapq.heapify(live)
            self._heap = live
