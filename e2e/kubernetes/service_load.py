"""Clients that write without a pause through the Service of their data centre, and repeat what was not answered."""

from __future__ import annotations

from types import TracebackType
from typing import Final

from e2e.kubernetes.catalogue import CatalogueCluster
from e2e.kubernetes.data_center_access import NAME
from e2e.lib.history import WriteOutcome
from e2e.lib.load.writers import ClientPatience, RetryingSender, WriteClients, WriteMix

POLICY: Final = ClientPatience(wait_s=5, give_up_s=60.0, pause_s=0.05, exact=True)
MIX: Final = WriteMix(("synced",), 0, counters=0.0, repeats=0.0, pause_s=0.05)
"""Two cores carry two whole clusters, so clients pause between two writes."""


class ServiceLoad:
    """One client for each data centre. Each write is repeated until it is synced, each time on another connection, so
    that the Service chooses."""

    def __init__(self, catalogue: CatalogueCluster, name: str) -> None:
        """``name`` tells this load's transactions from those of another one."""
        self.catalogue = catalogue
        sender = RetryingSender(NAME, name, POLICY)
        homes = {client: [side.url] for client, side in enumerate(catalogue.sides.values())}
        self._clients = WriteClients(sender, homes, MIX, name)

    def __enter__(self) -> ServiceLoad:
        self._clients.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self._clients.stop()
        self.catalogue.written += [op.txid for op in self._clients.history if op.txid]

    @property
    def written(self) -> int:
        return self._clients.acknowledged

    @property
    def failed(self) -> list[str]:
        """Writes that were never synced, and clients that ended."""
        never = [op for op in self._clients.history if op.outcome is not WriteOutcome.ACKNOWLEDGED]
        return [*(f"{op.name} is not synced after {POLICY.give_up_s:g} s" for op in never), *self._clients.broken]

    @property
    def longest_s(self) -> float:
        """The longest wait for a write."""
        return max((op.ended_at - op.started_at for op in self._clients.history), default=0.0)
