"""Keeps the capture store of one data centre at the log of its masters: makes it, follows, goes back, makes it again.

One thread runs :meth:`CaptureService.run`. Other threads read :attr:`CaptureService.report` and the change log.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final, NamedTuple

from txlog.capture.first_data import copy_worker, log_has_all, log_start
from txlog.capture.state_copies import StateCopies
from txlog.changesets import (
    CapturedEntrySkipped,
    CaptureStore,
    CaptureStoreInUse,
    ChangeLogDamaged,
    ChangeLogReader,
    ChangeNotKept,
    ChangesGone,
    EntryRefused,
    UnknownChangeLog,
    follow_step,
)
from txlog.client import MasterClient, MasterUnreachable
from txlog.config.process_config import ChangeSetsConfig
from txlog.model.entry import Position
from txlog.model.errors import LogAhead, LogDiverged, LogNeedsRestore, TxLogError, Unavailable
from txlog.model.hashes import NO_HASH
from txlog.sites.key_values import ValuesAnswer, ValuesRequest, read_values
from txlog.telemetry.event_log import EventLog
from txlog.wire.archive_report import ArchivePlace
from txlog.wire.change_set_report import ChangeSetReport, ChangeSetState

RETRY_S: Final = 1.0
REBUILD_PAUSE_S: Final = 5.0
DISK_RETRY_S: Final = 5.0
WORKER_POLL_S: Final = (0.02, 0.5)
"""While entries wait for a worker: the first pause and the longest; each pause doubles."""
DOORBELL_S: Final = 1.0
PRUNE_S: Final = 60.0
SIZE_S: Final = 5.0
"""Between two measurements of the change log."""
ERROR_CHARS_MAX: Final = 500
_NOWHERE: Final = Position(0, 0, NO_HASH)
"""For a store that has its own position."""
NEEDS_NEW_STORE: Final = (
    *(LogDiverged, LogNeedsRestore, ChangeNotKept, ChangesGone, ChangeLogDamaged),
    CapturedEntrySkipped,
)
"""The store cannot follow the log from where it is. It is derived from log and workers, so it is made again."""


class _Outcome(NamedTuple):
    """What is reported after a step, and how long to wait before the next one, in seconds."""

    state: ChangeSetState
    wait_s: float
    error: str = ""


class CaptureService:
    """The store in ``config.folder``. ``publish(report)`` is called after each step."""

    def __init__(self, config: ChangeSetsConfig, log: EventLog, publish: Callable[[ChangeSetReport], None]) -> None:
        self._config = config
        self._log = log
        self._publish = publish
        self._masters = [MasterClient(url) for url in config.masters]
        self._store: CaptureStore | None = None
        self._current = self._tick = self._announced = 0
        self._worker_pause_s = WORKER_POLL_S[0]
        self._pruned_at = self._measured_at = time.monotonic() - PRUNE_S
        self._size = self._rebuilds = 0
        self._copies = StateCopies(config.folder / "states")
        self.report = ChangeSetReport(None, ChangeSetState.LOADING)

    @property
    def folder(self) -> Path:
        """The folder of the store."""
        return self._config.folder / "store"

    @property
    def change_log_folder(self) -> Path:
        """The folder of the change log."""
        return self.folder / "changes"

    def values(self, reader: ChangeLogReader, request: ValuesRequest) -> ValuesAnswer:
        """The values of keys, from any thread; errors as of :func:`~txlog.sites.key_values.read_values`."""
        return read_values(self._made_store(), reader, request)

    def state(self, after: int) -> Generator[bytes, None, None]:
        """The state of the store, in pieces, for one thread; errors as of :meth:`StateCopies.read`, and
        :class:`Unavailable` while there is no store."""
        return self._copies.read(self._made_store(), after)

    def _made_store(self) -> CaptureStore:
        store = self._store
        if store is None:
            raise Unavailable("ChangeSetsLoading", "the change sets are being made; ask again")
        return store

    def run(self, stop: threading.Event) -> None:
        """Works until ``stop`` is set. Then the store is closed, with a checkpoint."""
        try:
            while not stop.is_set():
                outcome = self._step()
                self._report(outcome)
                stop.wait(outcome.wait_s)
        finally:
            self._close()
            for master in self._masters:
                master.close()

    # -- steps

    def _step(self) -> _Outcome:
        try:
            if self._store is None:
                self._open()
                return _Outcome(ChangeSetState.FOLLOWING, 0.0)
            self._prune()
            return _Outcome(ChangeSetState.FOLLOWING, self._follow(self._store))
        except NEEDS_NEW_STORE as why:
            self._discard(why)
            return _Outcome(ChangeSetState.LOADING, REBUILD_PAUSE_S, _text_of(why))
        except EntryRefused as why:
            self._log.warning_rate_limited("EntryNotCaptured", "", error=str(why))
            return _Outcome(ChangeSetState.BLOCKED, RETRY_S, _text_of(why))
        except (UnknownChangeLog, CaptureStoreInUse) as why:
            self._log.warning_rate_limited("ChangeSetsFailed", why.name, error=str(why))
            return _Outcome(ChangeSetState.FAILED, DISK_RETRY_S, _text_of(why))
        except (OSError, MemoryError) as why:
            # Part of a record may be written: the next start finds what is whole.
            self._log.warning_rate_limited("ChangeSetsFailed", type(why).__name__, error=str(why))
            self._abandon()
            return _Outcome(ChangeSetState.FAILED, DISK_RETRY_S, f"{type(why).__name__}: {why}"[:ERROR_CHARS_MAX])
        except TxLogError as why:
            self._log.warning_rate_limited("ChangeSetsWait", why.name, error=str(why))
            return _Outcome(ChangeSetState.WAITING, RETRY_S, _text_of(why))

    def _open(self) -> None:
        """The store that is there; else one with the first data."""
        config = self._config
        if not CaptureStore.exists(self.folder):
            self._create()
        else:
            self._store = CaptureStore(self.folder, _NOWHERE, quads_max=config.quads_max)
        assert self._store is not None
        self._log.info("ChangeSetsBegin", index=self._store.end.index, keptFrom=self._store.begin.index)

    def _create(self) -> None:
        self._report(_Outcome(ChangeSetState.LOADING, 0.0))
        config = self._config
        self.folder.mkdir(parents=True, exist_ok=True)
        master = self._answering_master()
        status = master.status()
        start = log_start(status)
        is_short = status.stable.index <= config.replay_max
        if is_short and log_has_all(status, lambda after, value: master.log_page(after, value, 1, 1)):
            self._store = CaptureStore(self.folder, start, quads_max=config.quads_max)
            return
        with copy_worker(self._masters, self.folder) as first:
            position = first.position if first.position.index else start
            self._log.info("ChangeSetsCopyWorker", index=position.index)
            self._store = CaptureStore(self.folder, position, first.quads, quads_max=config.quads_max)

    def _answering_master(self) -> MasterClient:
        """The master that answered last, else another one that does. The branches of a split may each have masters
        here, so the store stays with one as long as it answers."""
        last: TxLogError | None = None
        for _ in self._masters:
            master = self._masters[self._current]
            try:
                master.status()
            except (MasterUnreachable, Unavailable) as error:
                last = error
                self._current = (self._current + 1) % len(self._masters)
                continue
            return master
        raise Unavailable("NoMaster", f"no master answers: {last}")

    def _follow(self, store: CaptureStore) -> float:
        """Execute the next page of the log. Returns the seconds to wait."""
        master = self._masters[self._current]
        try:
            step = follow_step(store, master)
        except (MasterUnreachable, Unavailable, LogAhead):
            self._current = (self._current + 1) % len(self._masters)
            raise
        if step.left is not None:
            self._log.info("ChangeSetsWentBack", index=store.end.index, left=step.left.index)
        if step.changes or step.left is not None:
            self._worker_pause_s, self._announced = WORKER_POLL_S[0], 0
            return 0.0
        if step.stable > store.end.index:
            pause_s, self._worker_pause_s = self._worker_pause_s, min(2 * self._worker_pause_s, WORKER_POLL_S[1])
            return pause_s
        if self._announced > store.end.index:  # by a doorbell that rings before an entry is stable here
            self._announced = 0
            return WORKER_POLL_S[1]
        self._report(_Outcome(ChangeSetState.FOLLOWING, 0.0))
        bell = master.doorbell(store.end.index, self._tick, DOORBELL_S)
        self._tick, self._announced = bell.tick, bell.stable.index
        return 0.0

    def _prune(self) -> None:
        if self._store is not None and time.monotonic() - self._pruned_at >= PRUNE_S:
            self._pruned_at = time.monotonic()
            self._store.prune(self._config.keep_ms)

    # -- the end of a store

    def _discard(self, why: TxLogError) -> None:
        """Remove the store. The change log goes first: without it there is no store."""
        self._log.warning("ChangeSetsRebuilt", error=why.name, why=str(why))
        self._rebuilds += 1
        self._abandon()
        old = self.folder / "discarded"
        shutil.rmtree(old, ignore_errors=True)
        if self.change_log_folder.exists():
            self.change_log_folder.rename(old)
        shutil.rmtree(old, ignore_errors=True)

    def _abandon(self) -> None:
        """Give the files free, as a kill would."""
        store, self._store = self._store, None
        if store is not None:
            store.abandon()

    def _close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    # -- reports

    def _report(self, outcome: _Outcome) -> None:
        store = self._store
        if store is None:
            self.report = ChangeSetReport(None, outcome.state, rebuilds=self._rebuilds, error=outcome.error)
        else:
            if time.monotonic() - self._measured_at >= SIZE_S:
                self._measured_at, self._size = time.monotonic(), store.change_log_size
            self.report = ChangeSetReport(
                ArchivePlace(store.end.index, store.end.hash.hex()),
                outcome.state,
                store.begin.index,
                self._size,
                self._rebuilds,
                outcome.error,
            )
        self._publish(self.report)


def _text_of(why: TxLogError) -> str:
    return f"{why.name}: {why}"[:ERROR_CHARS_MAX]
