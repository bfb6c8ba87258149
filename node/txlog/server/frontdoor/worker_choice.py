"""Chooses the workers that may answer a read."""

from __future__ import annotations

from typing import NamedTuple

from txlog.model.view import View
from txlog.runtime.master_context import MasterContext
from txlog.runtime.worker_state import RegisteredWorker, WorkerMarker
from txlog.server.frontdoor.monotonic_reads import MonotonicReads
from txlog.workers import ADAPTERS, Adapter


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
        self._site = site
        self._rotation = 0
        self._on_chain: dict[str, tuple[WorkerMarker, View]] = {}

    def candidates(self, least: int, client: str | None) -> list[WorkerCandidate]:
        """The candidates in order of preference. First come the workers close to the newest one and not older than what
        the client has seen, by the fewest active reads. Then come the others, newest first. Last come the workers that
        may not answer or may answer wrongly. Until the newest entries were
        executed for a moment, a client stays at its worker: any other may be older than what it has seen."""
        found: list[tuple[tuple[bool, bool, bool, int, int], WorkerCandidate]] = []
        self._rotation += 1
        end = self._durability.persisted_end
        is_growing = end > self._reads.applied_history.lower_bound()
        last = self.monotonic_reads.last_worker(client) if client is not None and is_growing else ""
        good = self._reads.min_index()
        workers = list(self._registry.workers.values())
        for at, worker in enumerate(workers):
            if not worker.is_readable or worker.refusal is not None or worker.is_form_undecided:
                continue
            if worker.index < least or self._is_off_chain(worker):
                continue
            wrong = worker.divergence is not None and worker.divergence.wrong
            last_resort = worker.position is None or worker.state == "Unreachable" or wrong
            needed = 0 if client is None else self.monotonic_reads.min_index_for(client, worker.name, end)
            behind = worker.index < max(good, needed)
            then = -worker.index if behind else self._reads.active_reads[worker.name]
            turn = (at + self._rotation) % len(workers)  # equal workers take turns
            found.append(
                (
                    (last_resort, behind, bool(last) and worker.name != last, then, turn),
                    WorkerCandidate(worker, ADAPTERS[worker.engine], client, needed),
                )
            )
        found.sort(key=lambda one: one[0])
        return [store for _, store in found]

    def _is_off_chain(self, worker: RegisteredWorker) -> bool:
        """As :meth:`.WorkerRegistry.is_off_chain`. It is asked again when the worker, the view or the log's start has
        moved: within one view, what is stable keeps its hash."""
        log, position = self._site.status.log_state, worker.position
        if log is None or position is None or position.index > self._durability.stable.value:
            return self._registry.is_off_chain(worker)
        known = self._on_chain.get(worker.name)
        if known is not None and known[0] is position and known[1] is log.view:
            return False
        if self._registry.is_off_chain(worker):
            return True
        self._on_chain[worker.name] = (position, log.view)
        return False
