"""An archiver in a process of its own, which kills itself with SIGKILL before its n-th step: each request to a master,
each call of the target, each ``fsync``, ``link`` and ``unlink``.

See ``kill_at_a_step.py`` beside the tests of backups.
"""

from __future__ import annotations

import io
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "backup"))
from kill_at_a_step import Ended, KilledAtSteps, Step, serve, watch

from txlog.archive.archiver import Archiver, ArchiverSettings
from txlog.backup.folder_target import FolderTarget
from txlog.client import MasterClient
from txlog.telemetry.event_log import EventLog

DEADLINE_S = 60.0


class ArchiverVictims:
    def __init__(self) -> None:
        self._process = KilledAtSteps(Path(__file__))

    def run(self, at: int, folder: Path, index: int, *urls: str) -> Ended:
        """Until this index is archived, or killed before step ``at``, from 1 on."""
        return self._process.run(at, folder=str(folder), index=index, urls=urls)

    def end(self) -> None:
        self._process.end()


# -- in the other process


def _archive(step: Step, folder: str, index: int, urls: list[str]) -> None:
    watch(FolderTarget, ("create", "read", "list_nested"), step)
    watch(MasterClient, ("log_page", "status", "branch"), step)
    watch(os, ("fsync", "link", "unlink"), step)
    masters = [MasterClient(url) for url in urls]
    settings = ArchiverSettings("uk", 0.1, 1)
    archiver = Archiver(FolderTarget(Path(folder)), masters, settings, EventLog("victim", io.StringIO()))
    archiver.start()
    deadline = time.monotonic() + DEADLINE_S
    while archiver.reported is None or archiver.reported.index < index:
        assert time.monotonic() < deadline
        archiver.run_round()


if __name__ == "__main__":
    serve(_archive)
