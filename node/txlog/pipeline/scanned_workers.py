"""The workers of a data centre, as far as a comparison needs them: which there are, and how they pause at one index."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from txlog.client import MasterClient, WorkerStatus
from txlog.model.errors import TxLogError, Unavailable
from txlog.model.graph_digests import GraphDigests
from txlog.workers import ADAPTERS
from txlog.workers.adapter import Adapter

log = logging.getLogger(__name__)
MASTER_TIMEOUT_S: Final = 2.0
ALIGN_TIMEOUT_S: Final = 2.0
"""Time for the workers to reach one index; a worker that does not is compared the next time."""
ALIGN_LOCK_TIMEOUT_S: Final = 10.0
"""Two alignments and their queries, with a margin for a busy machine."""
POLL_S: Final = 0.02
PAUSE_RENEW_S: Final = 1.0
"""Interval in which a pause is renewed: masters drop it after five seconds."""
READ_START_TIMEOUT_S: Final = 4.0
"""Longest pause until all stores have started to be read; a later store is read at another index."""


class ScannedWorker(NamedTuple):
    """A worker to compare. ``log_index``, ``fence``: of its marker, as it was reported last."""

    name: str
    url: str
    adapter: Adapter
    log_index: int
    fence: int
    status: WorkerStatus


class ScannedWorkers:
    """Not thread-safe. ``meeting``: shared by all that compare workers of this data centre. A worker has one pause for
    all, so the first to finish would lift it for the others."""

    def __init__(self, data_center: str, urls: Sequence[str], meeting: threading.Lock) -> None:
        self._data_center = data_center
        self._align_lock = meeting
        self.masters = [MasterClient(url, MASTER_TIMEOUT_S, connect_s=MASTER_TIMEOUT_S / 2) for url in urls]

    def close(self) -> None:
        """Close the connections to the masters."""
        for master in self.masters:
            master.close()

    def report_digests(self, name: str, look: GraphDigests) -> None:
        """Reports to each master what this worker holds; one that does not answer gets the next report."""
        for master in self.masters:
            try:
                master.report_digests(name, look)
            except TxLogError as wrong:
                log.info("%s has no report of %s: %s", master.url, name, wrong)

    def comparable(self) -> list[ScannedWorker]:
        """The workers that work and hold a prefix of the log, by an engine whose contents can be compared. Raises
        :class:`Unavailable`."""
        found = []
        for worker in self.list():
            adapter = ADAPTERS.get(worker.engine or "oxigraph")
            if adapter is None or not adapter.capabilities.digest or not worker.url:
                continue
            at = worker.position
            if worker.state == "Working" and at is not None and not at.unordered:
                found.append(ScannedWorker(worker.name, worker.url, adapter, at.index, at.fence, worker))
        return found

    def list(self) -> list[WorkerStatus]:
        """All workers, as the nearest master that answers knows them. Raises :class:`Unavailable`."""
        last: TxLogError | None = None
        for master in self.masters:
            try:
                return master.workers()
            except TxLogError as error:
                last = error
        raise Unavailable("NoMaster", f"no master of {self._data_center} answers: {last}")

    @contextmanager
    def paused_at_same_index(self, names: Sequence[str]) -> Iterator[int | None]:
        """Pauses as many workers as possible at one index in the meantime and yields that index; None when no pause is
        needed. A single worker needs no alignment. It waits for another comparison, but not for one whose store has
        stopped answering."""
        mine = self._align_lock.acquire(timeout=ALIGN_LOCK_TIMEOUT_S)
        index: int | None = None
        try:
            if len(names) > 1 and self._needs_pause(names):
                until = time.monotonic() + ALIGN_TIMEOUT_S
                index = max(self._indexes(names).values())
                self.pause(names, index)
                while time.monotonic() < until:
                    at = self._indexes(names)
                    if max(at.values()) > index:  # a worker passed the index before the pause took effect
                        index = max(at.values())
                        self.pause(names, index)
                    elif min(at.values()) == index:
                        break
                    time.sleep(POLL_S)
            yield index
        finally:
            for master in self.masters:
                for name in names:
                    with suppress(TxLogError):
                        master.resume_worker(name, why="look")
            if mine:
                self._align_lock.release()

    def keep_paused(self, names: Sequence[str], index: int | None, begun: Sequence[threading.Event]) -> None:
        """Renew the pause until all of ``begun`` are set, :data:`READ_START_TIMEOUT_S` at most."""
        until = time.monotonic() + READ_START_TIMEOUT_S
        for event in begun:
            while not event.wait(PAUSE_RENEW_S) and time.monotonic() < until:
                if index is not None:
                    self.pause(names, index)

    def pause(self, names: Sequence[str], index: int) -> None:
        """Ask all masters to pause these workers there."""
        for master in self.masters:
            with suppress(TxLogError):
                for name in names:
                    master.pause_worker(name, index, why="look")

    def _needs_pause(self, names: Sequence[str]) -> bool:
        """Whether a pause is needed: while the log does not grow, all workers are at its end anyway."""
        ends = set()
        for master in self.masters:
            with suppress(TxLogError):
                ends.add(master.status().stable.index)
        return set(self._indexes(names).values()) != ends

    def _indexes(self, names: Sequence[str]) -> dict[str, int]:
        found = {w.name: w.position.index for w in self.list() if w.name in names and w.position is not None}
        if not found:
            raise Unavailable("NoWorker", "no worker has a position")
        return found
