"""Clients of a soak: some send single transactions, some send many in one request.

Most stay with the masters of one data centre; the others use all masters.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from e2e.lib.cluster.supervised import SupervisedCluster
from e2e.lib.history import ClientOperation
from e2e.lib.load.writers import RetryingSender, WriteClients, WriteMix, rotated

SINGLES: Final = range(5)
BULKS: Final = range(100, 103)
"""Numbers of the clients that send batches."""
BATCH: Final = 50
BULK_LEVELS: Final = ("accepted", "accepted", "synced")


class SoakLoad:
    """All clients of one cluster, begun and ended together. The batches make ``per_s`` transactions a second while
    nothing breaks."""

    def __init__(self, arena: SupervisedCluster, per_s: float, seed: int) -> None:
        groups = [*arena.masters_by_data_center.values(), arena.masters]
        self._sender = RetryingSender(arena.repository, f"soak-{seed}")
        self._singles = WriteClients(self._sender, _homes(SINGLES, groups), WriteMix(pause_s=0.15), seed)
        bulk = WriteMix(BULK_LEVELS, 0, batch=BATCH, pause_s=BATCH * len(BULKS) / per_s, is_paced=True)
        self._bulk = WriteClients(self._sender, _homes(BULKS, groups), bulk, seed)
        self.clock = time.time() - time.monotonic()
        """Added to a time of the history it is one since 1970."""

    def set_up(self) -> None:
        self._singles.reset_counters()

    def start(self) -> None:
        self._singles.start()
        self._bulk.start()

    def stop(self) -> None:
        self._singles.stop()
        self._bulk.stop()

    @property
    def history(self) -> list[ClientOperation]:
        """Of all clients, in no order."""
        return [*self._singles.history, *self._bulk.history]

    @property
    def acknowledged(self) -> int:
        return self._singles.acknowledged + self._bulk.acknowledged

    @property
    def retries(self) -> int:
        return self._sender.retries

    @property
    def errors(self) -> list[str]:
        return [*self._sender.refusals, *self._singles.broken, *self._bulk.broken]


def _homes(clients: range, groups: Sequence[Sequence[str]]) -> dict[int, list[str]]:
    return {client: rotated(groups[client % len(groups)], client) for client in clients}
