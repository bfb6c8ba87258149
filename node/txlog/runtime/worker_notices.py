"""The notices by which masters exchange what pipelines reported to them about workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from txlog.divergence.detector import merge_digests
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.runtime.worker_state import KnownWorkers, RegisteredWorker

TOPIC = "workers"


class WorkerNotice(msgspec.Struct):
    """The notice between masters: the workers of one data centre, as their pipelines reported them to the sending
    master."""

    data_center: str
    workers: list[RegisteredWorker]
    """All workers of the data centre, also those without a report: a missing report must not count as agreement."""


_decoder = msgspec.json.Decoder(WorkerNotice)


class WorkerNotices:
    """``due`` is set when a notice to the other masters is due; the sender of the notice clears it. ``last_received``:
    the data centre of each master that sent a notice, and when, by node id."""

    def __init__(self, workers: KnownWorkers, clock: Callable[[], float]) -> None:
        self.due = asyncio.Event()
        self.last_received: dict[str, tuple[str, float]] = {}
        self._reported_here: set[str] = set()
        self._workers = workers
        self._clock = clock

    def note_report(self, name: str) -> None:
        """A pipeline has reported this worker to this master."""
        self._reported_here.add(name)

    def remove(self, name: str) -> None:
        """A worker of this data centre was removed."""
        self._reported_here.discard(name)
        self.due.set()

    def encode(self) -> bytes:
        """The notice that this master sends to the others."""
        workers = [
            worker if name in self._reported_here else RegisteredWorker(worker.name, worker.url, worker.engine)
            for name, worker in self._workers.local.items()
        ]
        return msgspec.json.encode(WorkerNotice(self._workers.data_center, workers))

    def receive(self, body: bytes, node: str) -> bool:
        """Take another master's notice. Of two states of one worker the later report counts. Returns False for a notice
        that cannot be decoded: a newer version sent it."""
        try:
            notice = _decoder.decode(body)
        except DECODE_ERRORS:
            return False
        self.last_received[node] = (notice.data_center, self._clock())
        if notice.data_center == self._workers.data_center:
            self._merge_local(notice.workers)
        else:
            self._merge_remote(self._workers.remote.setdefault(notice.data_center, {}), notice.workers)
        return True

    def _merge_local(self, reported: list[RegisteredWorker]) -> None:
        known = self._workers.local
        for worker in reported:
            before = known.get(worker.name)
            if before is None:
                continue
            before.looks = worker.looks = merge_digests(before.looks, worker.looks)
            worker.take_comparison_from(before)
            if worker.reported_at > before.reported_at:
                worker.take_pauses_from(before)
                worker.engine = before.engine  # that master may not know its cluster yet
                known[worker.name] = worker

    def _merge_remote(self, known: dict[str, RegisteredWorker], reported: list[RegisteredWorker]) -> None:
        for gone in known.keys() - {worker.name for worker in reported}:
            del known[gone]
        for worker in reported:
            before = known.get(worker.name)
            worker.take_pauses_from(None)
            if before is not None:
                before.looks = worker.looks = merge_digests(before.looks, worker.looks)
            if before is None or worker.reported_at > before.reported_at:
                known[worker.name] = worker
