"""A backup, a restore or a rebuild in a process of its own, which kills itself with SIGKILL at its n-th step.

A step is whatever can be seen from outside, and whatever is told: each request to a store or a master, each call of the
target, each ``fsync`` and ``link``; the kill comes just before it. See ``kill_at_a_step.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kill_at_a_step import Ended, KilledAtSteps, Step, serve, watch

from txlog.backup import (
    BackupRequest,
    RestoreTarget,
    SourceWorker,
    dataset_load,
    open_target,
    part_codec,
    rebuild_from_backup,
    rebuild_from_worker,
    restore_backup,
    take_backup,
    worker_lock,
)
from txlog.backup.folder_target import FolderTarget
from txlog.backup.marker_change import adopt_store
from txlog.backup.pinned_snapshot import read_system_graphs
from txlog.backup.progress import BackupProgress
from txlog.client import MasterClient
from txlog.config.process_config import FolderConfig
from txlog.model.entry import Position
from txlog.model.hashes import chain_start
from txlog.workers import OxigraphAdapter
from txlog.workers.http_transport import HttpTransport

WAYS: Final = ("create", "restore", "rebuild", "copy", "adopt")
ADOPTING: Final = b"\x0a" * 16
"""The cluster that adopts a store."""
TAKEOVER_S: Final = 0.05
"""In place of 45 s: whoever had the lock of a worker is known to be dead here."""


class Victims:
    def __init__(self) -> None:
        self._process = KilledAtSteps(Path(__file__))

    def run(self, at: int, way: str, **told: str) -> Ended:
        """Killed before step ``at``, from 1 on."""
        assert way in WAYS
        return self._process.run(at, way=way, **told)

    def each(self, way: str, **told: str) -> Iterator[str]:
        """Killed before every step there is, in turn; the step's name each time. ``NUMBER`` in what is told is the
        step's number. It ends with one that was not killed."""
        number = 1
        while True:
            ended = self.run(number, way, **{name: text.replace("NUMBER", str(number)) for name, text in told.items()})
            if not ended.killed:
                return
            yield ended.steps[-1]
            number += 1

    def end(self) -> None:
        self._process.end()


# -- in the other process


def _on_chain(_: Position) -> None:
    """Any."""


def victim(
    step: Step, way: str, url: str, folder: str = "", name: str = "", source: str = "", master: str = ""
) -> None:
    """``url``: of the store; ``source``: of the one that is copied; ``master``: of a master."""
    dataset_load.BATCH_BYTES = 4000  # type: ignore[misc]  # several requests for little data
    part_codec.COALESCE_BYTES = 1000  # type: ignore[misc]  # and several pieces
    worker_lock.TAKEOVER_S = TAKEOVER_S  # type: ignore[misc]
    watch(HttpTransport, ("send", "stream"), step)
    watch(FolderTarget, ("write", "read", "list_objects", "delete"), step)
    watch(MasterClient, ("pause_worker", "resume_worker", "report_worker"), step)
    watch(os, ("fsync", "link"), step)

    def told(progress: BackupProgress) -> None:
        step(progress.phase)

    target = open_target(FolderConfig(folder=Path(folder)))
    masters = [MasterClient(master)] if master else []
    with HttpTransport(url) as transport, HttpTransport(source or url) as other:
        into = RestoreTarget("uk-worker-2", OxigraphAdapter(), transport)
        cluster = "ab" * 16
        if way == "create":
            order = BackupRequest(cluster, "uk", name=name, part_bytes=2000)
            take_backup(SourceWorker("uk-worker-1", OxigraphAdapter(), transport, masters), target, order, told)
        elif way == "restore":
            restore_backup(target, name, into, cluster, _on_chain, on_progress=told)
        elif way == "rebuild":
            rebuild_from_backup(target, into, masters, cluster, _on_chain, name=name, on_progress=told)
        elif way == "adopt":
            was = read_system_graphs(into.adapter, transport).markers[0]
            first = Position(1, 0, chain_start(ADOPTING))
            adopt_store(SourceWorker("uk-worker-2", OxigraphAdapter(), transport), was, ADOPTING, first)
        else:
            live = SourceWorker("uk-worker-1", OxigraphAdapter(), other, masters)
            rebuild_from_worker(live, into, masters, _on_chain, on_progress=told)


if __name__ == "__main__":
    serve(victim)
