"""Whether the stores of this machine are at work: a store takes a load's body faster than it sorts it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

BUSY_SHARE: Final = 0.2
"""Of one processor: a store that uses more has something to do."""
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class StoreActivity:
    """``pids``: the processes of the stores by name. Where the system does not show the time that a process has used,
    a store counts as idle."""

    def __init__(self, pids: Mapping[str, int], processes: Path = Path("/proc")) -> None:
        self._pids, self._processes = pids, processes
        self._before = self._read()
        self._read_at = time.monotonic()

    def find_busy(self) -> list[str]:
        """The stores that were at work since the last call."""
        now, at = self._read(), time.monotonic()
        elapsed_s = max(0.001, at - self._read_at)
        used = {name: now[name] - self._before[name] for name in now if name in self._before}
        self._before, self._read_at = now, at
        busy = {name for name, seconds in used.items() if seconds > BUSY_SHARE * elapsed_s}
        return sorted(busy | {name for name, pid in self._pids.items() if self._has_work(pid)})

    def _has_work(self, pid: int) -> bool:
        """Whether a thread waits for a processor or for a disk: on a busy machine it has used little time."""
        for path in (self._processes / str(pid) / "task").glob("*/stat"):
            try:
                state = path.read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if state in ("R", "D"):
                return True
        return False

    def _read(self) -> dict[str, float]:
        """Seconds of processor time by store."""
        found: dict[str, float] = {}
        for name, pid in self._pids.items():
            try:
                text = (self._processes / str(pid) / "stat").read_text()
            except OSError:
                continue
            fields = text.rpartition(")")[2].split()  # the name of a program may have spaces
            found[name] = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
        return found
