"""An archiver in a process of its own, which kills itself with SIGKILL before its n-th step: each request to a master,
each call of the target, each ``fsync``, ``link`` and ``unlink``.

Each one is forked from a process that has everything imported already. ``python archiver_at_a_step.py`` is that
process: one line of JSON for each archiver, and one back.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from txlog.archive.archiver import Archiver, ArchiverSettings
from txlog.backup.folder_target import FolderTarget
from txlog.client import MasterClient
from txlog.telemetry.event_log import EventLog

DEADLINE_S = 60.0


class StepsTaken(NamedTuple):
    """``steps``: by name; where it was killed, the last one is the one before which that was."""

    killed: bool
    steps: list[str]


class ArchiverVictims:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, at: int, folder: Path, index: int, *urls: str) -> StepsTaken:
        """Until this index is archived, or killed before step ``at``, from 1 on."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"at": at, "folder": str(folder), "index": index, "urls": urls}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert answer["status"] in (0, signal.SIGKILL), answer
        return StepsTaken(answer["status"] == signal.SIGKILL, answer["steps"])

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


# -- in the other process


def _watch(owner: Any, names: tuple[str, ...], step: Callable[[str], None]) -> None:
    for name in names:
        whole = getattr(owner, name)

        def watched(*arguments: Any, _whole: Any = whole, _name: str = name, **named: Any) -> Any:
            step(_name)
            return _whole(*arguments, **named)

        setattr(owner, name, watched)


def _archive(step: Callable[[str], None], folder: str, index: int, urls: list[str]) -> None:
    _watch(FolderTarget, ("create", "read", "list_nested"), step)
    _watch(MasterClient, ("log_page", "status", "branch"), step)
    _watch(os, ("fsync", "link", "unlink"), step)
    masters = [MasterClient(url) for url in urls]
    settings = ArchiverSettings("uk", 0.1, 1)
    archiver = Archiver(FolderTarget(Path(folder)), masters, settings, EventLog("victim", io.StringIO()))
    archiver.start()
    deadline = time.monotonic() + DEADLINE_S
    while archiver.reported is None or archiver.reported.index < index:
        assert time.monotonic() < deadline
        archiver.run_round()


def _forked(at: int, told: dict[str, Any]) -> dict[str, Any]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        left = at

        def step(name: str) -> None:
            nonlocal left
            os.write(writing, name.encode() + b"\n")
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            _archive(step, **told)
        except BaseException:  # noqa: BLE001 - whatever it is, the process is over and says so
            traceback.print_exc()
            os._exit(3)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        steps = pipe.read().splitlines()
    _, status = os.waitpid(child, 0)
    return {"status": abs(os.waitstatus_to_exitcode(status)), "steps": steps}


def main() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        at = asked.pop("at")
        print(json.dumps(_forked(at, asked)), flush=True)


if __name__ == "__main__":
    main()
