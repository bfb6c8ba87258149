"""Real stores that execute the log of running masters all the time, and go back when it becomes another one.

The log of these masters is whole, so a store that has executed another order is emptied and executes it from its first
entry. No Spark: the applier is the one that Spark's tasks call.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from e2e.lib.cluster.harness import StoreKind, StoreProcess
from e2e.lib.wait import NotYet, wait_until
from txlog.apply.applier import apply_up_to
from txlog.apply.log_source import MasterLog
from txlog.apply.outcome import WorkerState
from txlog.client import FailoverClient
from txlog.model.errors import TxLogError

PAUSE_S: Final = 0.1
GONE_BACK: Final = (WorkerState.DIVERGED, WorkerState.AHEAD, WorkerState.NEEDS_RESTORE)


class FollowingStore(threading.Thread):
    """While it is entered: one store behind these masters. ``restores``: how often it has begun again. ``error``: its
    last one."""

    def __init__(self, name: str, masters: Sequence[str], folder: Path) -> None:
        super().__init__(daemon=True)
        self.store_name = name
        self.store = StoreProcess(StoreKind.MEMORY, folder / name, folder / f"{name}.log")
        self.restores = 0
        self.index = 0
        self.error = ""
        self._masters = masters
        self._over = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.store.close()

    def run(self) -> None:
        with FailoverClient(self._masters, 5.0) as masters:
            while not self._over.is_set():
                try:
                    self._follow(masters)
                except TxLogError as not_now:
                    self.error = str(not_now)
                self._over.wait(PAUSE_S)

    def _follow(self, masters: FailoverClient) -> None:
        stable, store = masters.status().stable, self.store
        outcome = apply_up_to(
            store.adapter,
            store.transport,
            MasterLog(masters),
            stable.index,
            epoch=stable.epoch,
            cached=store.marker,
        )
        store.marker, self.error = outcome.position, outcome.error or ""
        self.index = outcome.position.position.index if outcome.position is not None else 0
        if outcome.state in GONE_BACK and not (outcome.state is WorkerState.AHEAD and self.index > stable.index):
            store.restart_empty()
            self.restores, self.index = self.restores + 1, 0

    def wait_at(self, end: tuple[int, str], deadline_s: float) -> None:
        """Until it has executed the log up to this end, an index and its hash: an index alone may be of another
        branch."""

        def probe() -> bool:
            marker = self.store.marker
            if marker is None or (marker.position.index, marker.position.hash.hex()) != end:
                raise NotYet(f"{self.store_name} is at {marker and marker.position}: {self.error}")
            return True

        wait_until(f"{self.store_name} is at {end[0]}", deadline_s, probe)

    def stop(self) -> None:
        """It follows no more; what it has can be read. The store goes on until this is left."""
        self._over.set()
        self.join()
