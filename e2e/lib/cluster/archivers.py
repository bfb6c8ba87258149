"""Real archivers: as processes, and as processes that kill themselves with SIGKILL at a chosen call."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from txlog.archive.__main__ import run_archiver
from txlog.backup.folder_target import FolderTarget
from txlog.client import MasterClient
from txlog.client.json_calls import JsonCalls
from txlog.config.process_config import ArchiverConfig
from txlog.telemetry.event_log import EventLog

END_S: Final = 60.0
RUN_S: Final = 4.0
"""A victim whose call does not come ends after so many seconds."""


class ArchiverProcess:
    """``python -m txlog.archive`` with this configuration. Its events are in ``log``."""

    def __init__(self, folder: Path, name: str, config: ArchiverConfig) -> None:
        self.config = config
        self.log = folder / f"{name}.log"
        self._file = folder / f"{name}.json"
        self._file.write_text(config.model_dump_json())
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "txlog.archive", "--config", str(self._file)]
        with self.log.open("ab") as log:  # through a pipe: a limit of the archiver's files is not one of its log
            writer = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=log)
        assert writer.stdin is not None
        self._process = subprocess.Popen(command, stdout=writer.stdin, stderr=writer.stdin)
        writer.stdin.close()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def end(self, how: int = signal.SIGTERM) -> int:
        """The exit code; 0 when it does not run."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(how)
        try:
            return process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait(END_S)

    def events(self) -> list[dict[str, Any]]:
        """What it wrote to its log so far, of all its lives."""
        found = []
        for line in self.log.read_bytes().splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue  # no event, or half a line of a killed process
        return found

    def count(self, event: str) -> int:
        return sum(each.get("event") == event for each in self.events())


CALLS: Final = (
    *("target create", "target read", "target list", "target delete"),
    *("master log_page", "master status", "master branch", "report", "fsync", "link", "unlink"),
)
"""The calls at which an archiver may be killed: each before it begins, ``target create`` also after it ended."""


def kill_at_call(config: ArchiverConfig, call: str, nth: int, *, after: bool = False) -> bool:
    """Runs an archiver that kills itself at the ``nth`` call of this kind. False when it ended without one."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    victim = context.Process(target=_run_victim, args=(config, call, nth, after))
    victim.start()
    victim.join(END_S)
    if victim.exitcode is None:
        victim.kill()
        victim.join()
    return victim.exitcode == -signal.SIGKILL


def _run_victim(config: ArchiverConfig, call: str, nth: int, after: bool) -> None:
    left = nth

    def count(name: str) -> None:
        nonlocal left
        if name == call:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    for kind in (FolderTarget, *_s3_targets()):
        for name in ("create", "read", "delete"):
            _watch(kind, name, f"target {name}", count, after)
        _watch(kind, "list_nested", "target list", count, after)
    for name in ("log_page", "status", "branch"):
        _watch(MasterClient, name, f"master {name}", count, after)
    _watch(JsonCalls, "post", "report", count, after)
    for name in ("fsync", "link", "unlink"):
        _watch(os, name, name, count, after)
    stop = threading.Event()
    threading.Timer(RUN_S, stop.set).start()
    run_archiver(config, EventLog("victim", io.StringIO()), stop)


def _s3_targets() -> list[type]:
    from txlog.backup.s3_target import S3Target

    return [S3Target]


def _watch(owner: Any, name: str, call: str, count: Callable[[str], None], after: bool) -> None:
    whole = getattr(owner, name)

    def watched(*arguments: Any, **named: Any) -> Any:
        if not after:
            count(call)
        found = whole(*arguments, **named)
        if after:
            count(call)
        return found

    setattr(owner, name, watched)
