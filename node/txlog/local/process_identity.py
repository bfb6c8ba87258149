"""Checks that a process id still belongs to the process that was started. Systems reuse ids, so start times are
compared."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from txlog.local.state_folder import StateFolder

log = logging.getLogger("txlog.local")


class ProcessIdentity(BaseModel):
    """A process id and its start time, in the notation of the system: no other process has both."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    pid: int
    began: str


def identity_of(pid: int) -> ProcessIdentity | None:
    """The identity of a running process; None for one that is gone (a zombie is gone)."""
    began = _start_time(pid)
    return ProcessIdentity(pid=pid, began=began) if began else None


def is_alive(mark: ProcessIdentity) -> bool:
    """Whether it still runs, and its id was not reused."""
    return _start_time(mark.pid) == mark.began


def terminate_all(marks: list[ProcessIdentity], deadline_s: float) -> list[int]:
    """Sends SIGTERM, then after ``deadline_s`` SIGKILL (to the whole process group) to those still alive. Returns ids
    of those that were alive. Never signals a process that only reuses the id."""
    alive = [mark for mark in marks if is_alive(mark)]
    _signal_all(alive, signal.SIGTERM)
    until = time.monotonic() + deadline_s
    while time.monotonic() < until and any(is_alive(mark) for mark in alive):
        time.sleep(0.05)
    _signal_all([mark for mark in alive if is_alive(mark)], signal.SIGKILL)
    return [mark.pid for mark in alive]


def end_leftovers(state: StateFolder) -> list[int]:
    """Ends the processes that a killed supervisor has left, by process id and start time; returns their ids. The caller
    holds the lock of the folder. Ports are chosen afterwards: one that a leftover holds would count as taken, and its
    process would get another port."""
    left = [ProcessIdentity.model_validate(mark) for mark in state.read("processes.json", {}).values()]
    ended = terminate_all(left, 10.0)
    if ended:
        log.info("ended %d processes that an earlier supervisor had left", len(ended))
    return ended


def _signal_all(marks: list[ProcessIdentity], number: signal.Signals) -> None:
    for mark in marks:
        try:
            if number == signal.SIGKILL and os.getpgid(mark.pid) == mark.pid:
                os.killpg(mark.pid, number)
            else:
                os.kill(mark.pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def _start_time(pid: int) -> str | None:
    if Path("/proc/self/stat").exists():
        try:
            text = Path(f"/proc/{pid}/stat").read_text()
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            return None
        fields = text.rpartition(")")[2].split()  # a command's name may contain anything, also spaces and brackets
        return None if fields[0] in "ZX" else f"{boot}:{fields[19]}"
    found = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    text = found.stdout.strip()
    return None if not text or text.startswith("Z") else text.partition(" ")[2].strip()
