"""A worker that follows a log, its full and incremental backups, and targets that end or meet others in the middle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from log_in_memory import MemoryLog
from oxigraph_process import ADAPTER, OxigraphProcess
from pen import CLUSTER, apply, folder_target, order

from txlog.backup import BackupManifest, BackupTarget, SourceWorker, check_backup, take_backup
from txlog.backup.bounded_chain import BackupTaken, ChainBounds, take_incremental_or_full
from txlog.backup.increment_writer import take_incremental_backup
from txlog.backup.stored_object import StoredObject
from txlog.model.entry import Position
from txlog.model.errors import NotFound
from txlog.wire.log_page import LogPage, make_page
from txlog.workers.digest import Digest, digest_worker

CHAIN: Final = 14


class MasterOfLog:
    """What a backup asks a master, answered from a log in memory."""

    def __init__(self, log: MemoryLog, page_bytes: int = 1 << 20) -> None:
        self.log, self.page_bytes = log, page_bytes

    def log_page(
        self, after: int, at_hash: bytes | None = None, upto: int | None = None, max_bytes: int | None = None
    ) -> LogPage:
        assert at_hash is not None
        assert upto is not None
        place = Position(0, after, at_hash)
        entries = self.log.page(place, upto, min(self.page_bytes, max_bytes or self.page_bytes))
        return make_page(place, entries, self.log.position(self.log.end))

    def synchro(self, place: str) -> dict[str, Any]:
        raise NotFound(f"no synchronous graphs, so nothing is undecided at {place}")

    def pause_worker(self, name: str, index: int, *, why: str = "") -> None:
        """Nothing else writes to it."""

    def resume_worker(self, name: str, *, why: str = "") -> None:
        """As above."""


class Followed:
    """A worker at the end of a log, and the target of its backups."""

    def __init__(self, worker: OxigraphProcess, folder: Path) -> None:
        self.worker, self.log, self.target = worker, MemoryLog(), folder_target(folder)
        self.masters: list[Any] = [MasterOfLog(self.log)]

    @property
    def source(self) -> SourceWorker:
        return SourceWorker("uk-worker-1", ADAPTER, self.worker.transport, self.masters)

    def add(self, *quads: str) -> None:
        self.log.add(*quads)
        apply(self.worker, self.log)

    def delete(self, *quads: str) -> None:
        self.log.delete(*quads)
        apply(self.worker, self.log)

    def full(self, target: BackupTarget | None = None, **more: object) -> BackupManifest:
        return take_backup(self.source, target or self.target, order(**more))

    def increment(self, target: BackupTarget | None = None, chain_max: int = CHAIN, **more: object) -> BackupManifest:
        asked = order(**more)
        return take_incremental_backup(self.source, target or self.target, asked, chain_max)

    def either(self, chain_max: int = CHAIN, merges_max: int = 0, **more: object) -> BackupTaken:
        bounds = ChainBounds(chain_max, merges_max)
        return take_incremental_or_full(self.source, self.target, order(**more), bounds)

    def digest(self) -> Digest:
        return digest_worker(ADAPTER, self.worker.transport)

    def is_equal(self, made: BackupManifest) -> bool:
        """Whether a backup, read from its target, is what the worker holds now, digest for digest."""
        now = self.digest()
        graphs = sum(1 for graph in now.graphs if graph)
        assert check_backup(self.target, made.name) == made
        return (made.quads, made.digest, made.graphs) == (now.quads, f"{now.total:032x}", graphs)


class Killed(BaseException):
    """The process ended here."""


class StepTarget:
    """A target of which each call is a step; ``on_step`` runs just before it. When that raises :class:`Killed`, no call
    does anything any more, as after the end of the process."""

    def __init__(self, inner: BackupTarget, on_step: Callable[[int, str], None]) -> None:
        self._inner, self._on_step = inner, on_step
        self.steps: list[str] = []
        self.written: list[str] = []
        self._is_over = False

    @property
    def location(self) -> str:
        return self._inner.location

    def _step(self, name: str) -> None:
        if self._is_over:
            raise Killed
        self.steps.append(name)
        try:
            self._on_step(len(self.steps), name)
        except Killed:
            self._is_over = True
            raise

    def write(self, key: str, data: bytes) -> None:
        self._step("write")
        self._inner.write(key, data)
        self.written.append(key)

    def create(self, key: str, data: bytes) -> bool:
        self._step("create")
        return self._inner.create(key, data)

    def read(self, key: str, bytes_max: int) -> bytes:
        self._step("read")
        return self._inner.read(key, bytes_max)

    def list_objects(self, prefix: str = "") -> Iterator[StoredObject]:
        self._step("list")
        return self._inner.list_objects(prefix)

    def list_nested(self, folder: str, after: str = "") -> Iterator[StoredObject]:
        self._step("list")
        return self._inner.list_nested(folder, after)

    def delete(self, keys: list[str]) -> None:
        for key in keys:  # each of several may be the last one
            self._step("delete")
            self._inner.delete([key])


__all__ = ["CHAIN", "CLUSTER", "Followed", "Killed", "MasterOfLog", "StepTarget"]
