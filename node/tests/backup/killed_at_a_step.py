"""A backup, a restore or a rebuild in a process of its own, which kills itself with SIGKILL at its n-th step.

A step is whatever can be seen from outside, and whatever is told: each request to a store or a master, each call of the
target, each ``fsync`` and ``link``; the kill comes just before it. :class:`Victims` starts one after the other, each
forked from a process that has everything imported already. ``python killed_at_a_step.py`` is that process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

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
from txlog.backup.pinned_snapshot import read_system_graphs
from txlog.backup.progress import BackupProgress
from txlog.backup.store_adoption import adopt_store
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


class Ended(NamedTuple):
    """``steps``: by name, in order; where it was killed, the last one is the one before which that was."""

    killed: bool
    steps: list[str]


class Victims:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, at: int, way: str, **told: str) -> Ended:
        """Killed before step ``at``, from 1 on."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"at": at, "way": way, **told}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        status = answer["status"]
        assert status in (0, signal.SIGKILL), f"{way} ended by itself before step {at}: {status}, {answer['steps']}"
        return Ended(status == signal.SIGKILL, answer["steps"])

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
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


# -- in the other process


def _counted(at: int, told_to: int) -> Callable[[str], None]:
    left = at

    def step(name: str) -> None:
        nonlocal left
        os.write(told_to, name.encode() + b"\n")
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return step


def _watch(owner: Any, names: tuple[str, ...], step: Callable[[str], None]) -> None:
    for name in names:
        whole = getattr(owner, name)

        def watched(*arguments: Any, _whole: Any = whole, _name: str = name, **named: Any) -> Any:
            step(_name)
            return _whole(*arguments, **named)

        setattr(owner, name, watched)


def _on_chain(_: Position) -> None:
    """Any."""


def victim(step: Callable[[str], None], way: str, url: str, folder: str, name: str, source: str, master: str) -> None:
    """``url``: of the store; ``source``: of the one that is copied; ``master``: of a master."""
    dataset_load.BATCH_BYTES = 4000  # type: ignore[misc]  # several requests for little data
    part_codec.COALESCE_BYTES = 1000  # type: ignore[misc]  # and several pieces
    worker_lock.TAKEOVER_S = TAKEOVER_S  # type: ignore[misc]
    _watch(HttpTransport, ("send", "stream"), step)
    _watch(FolderTarget, ("write", "read", "list_objects", "delete"), step)
    _watch(MasterClient, ("pause_worker", "resume_worker", "report_worker"), step)
    _watch(os, ("fsync", "link"), step)

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


def _forked(at: int, told: dict[str, str]) -> dict[str, Any]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            victim(_counted(at, writing), **told)
        except BaseException:  # noqa: BLE001 - whatever it is, the process is over and says so
            traceback.print_exc()
            os._exit(3)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        steps = pipe.read().splitlines()
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return {"status": abs(code), "steps": steps}


def main() -> None:
    nothing = {"folder": "", "name": "", "source": "", "master": ""}
    for line in sys.stdin:
        asked = json.loads(line)
        assert asked["way"] in WAYS
        at = asked.pop("at")
        print(json.dumps(_forked(at, nothing | asked)), flush=True)


if __name__ == "__main__":
    main()
