"""Chooses the workers that may answer a read."""

from __future__ import annotations

from typing import Final, NamedTuple

from txlog.runtime.master_context import MasterContext
from txlog.runtime.worker_state import RegisteredWorker
from txlog.server.frontdoor.monotonic_reads import MonotonicReads
from txlog.workers import ADAPTERS, Adapter

READABLE_STATES: Final = ("Working", "Blocked", "Ahead", "Unknown", "Unreachable")
"""States in which a worker holds a prefix of this log. ``Unreachable`` is the pipeline's view, so such a worker is
tried last."""


class WorkerCandidate(NamedTuple):
    """A worker that may answer a read, and the index that the client needs."""

    worker: RegisteredWorker
    adapter: Adapter
    client_address: str | None = None
    """The address of the client, which must see nothing older than before (monotonic reads)."""
    min_index: int = 0
    """The index from which that is certain at this worker."""

    @property
    def is_fresh(self) -> bool:
        """Whether the worker has reached :attr:`min_index`."""
        return self.worker.index >= self.min_index


class WorkerChoice:
    """The workers of one master that may answer. ``monotonic_reads``: what they have shown to each client."""

    def __init__(self, site: MasterContext) -> None:
        self._registry = site.registry
        self._durability = site.durability
        self._reads = site.registry.reads
        self.monotonic_reads = MonotonicReads()
        self._rotation = 0

    def candidates(self, least: int, client: str | None) -> list[WorkerCandidate]:
        """The candidates in order of preference. First come the workers close to the newest one and not older than what
        the client has seen, by the fewest active reads. Then come the others, newest first. Last come the workers that
        may not answer or may answer wrongly."""
        found: list[tuple[tuple[bool, bool, int, int], WorkerCandidate]] = []
        self._rotation += 1
        registry = self._registry
        good = self._reads.min_index()
        workers = list(registry.workers.values())
        for at, worker in enumerate(workers):
            if worker.state not in READABLE_STATES or worker.refusal is not None or worker.is_form_undecided:
                continue
            if worker.index < least or registry.is_off_chain(worker):
                continue
            wrong = worker.divergence is not None and worker.divergence.wrong
            last_resort = worker.position is None or worker.state == "Unreachable" or wrong
            needed = (
                0
                if client is None
                else self.monotonic_reads.min_index_for(client, worker.name, self._durability.persisted_end)
            )
            behind = worker.index < max(good, needed)
            then = -worker.index if behind else self._reads.active_reads[worker.name]
            turn = (at + self._rotation) % len(workers)  # equal workers take turns
            found.append(
                ((last_resort, behind, then, turn), WorkerCandidate(worker, ADAPTERS[worker.engine], client, needed))
            )
        found.sort(key=lambda one: one[0])
        return [store for _, store in found]
