"""The queues that can still change in a view: those of its members, and those that have not come to their end.

A cluster keeps a queue for each incarnation that ever wrote, and most of them are of disks that were lost long ago.
What happens for every transaction looks at the open queues alone, so that it costs the same after 250 lost disks.
"""

from __future__ import annotations

from txlog.protocol.log.incoming_queue import OriginQueue


class OpenQueues:
    """``slots``: of the open queues, ascending."""

    def __init__(self, queues: list[OriginQueue]) -> None:
        self._queues = queues
        self._held: list[int] = []
        self.slots: list[int] = []
        self.refresh()

    def refresh(self) -> None:
        """Look at all queues: they were changed by something else than a transaction."""
        self.slots = [slot for slot, queue in enumerate(self._queues) if not queue.is_settled]
        self._held = [queue.held for queue in self._queues]

    def reopen(self, slot: int) -> None:
        """A settled queue got a transaction that takes no part in this view."""
        if slot not in self.slots:
            self.slots = sorted([*self.slots, slot])

    def drop_settled(self) -> None:
        """Some transactions became final: queues that are settled by that are open no more."""
        for slot in self.slots:
            if self._queues[slot].is_settled:
                self.refresh()
                return

    def held_seqs(self) -> list[int]:
        """Per slot of the view, the last persisted seq. A new list."""
        held = self._held.copy()
        for slot in self.slots:
            held[slot] = self._queues[slot].held
        return held

    @property
    def is_empty(self) -> bool:
        """Whether no transaction waits for its order."""
        return not any(len(self._queues[slot]) for slot in self.slots)

    @property
    def waiting(self) -> int:
        """How many transactions wait for their order."""
        return sum([len(self._queues[slot]) for slot in self.slots])

    @property
    def payload_bytes(self) -> int:
        """The payload bytes of the transactions that are not in the log."""
        return sum([self._queues[slot].payload_bytes for slot in self.slots])
