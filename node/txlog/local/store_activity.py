"""Whether the stores of this machine are at work: a store takes a load's body faster than it sorts it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

LOOKS: Final = 10
BUSY_LOOKS: Final = 7
"""Of :data:`LOOKS`: a thread that sorts is at work at nearly all of them, and one that answers requests at a few, even
where it waits long for a processor."""
_AT_WORK: Final = ("R", "D")
"""A thread that uses or wants a processor, or waits for a disk."""


class StoreActivity:
    """``pids``: the processes of the stores by name. Where the system does not show its threads, a store counts as
    idle."""

    def __init__(self, pids: Mapping[str, int], processes: Path = Path("/proc")) -> None:
        self._pids, self._processes = pids, processes

    def find_busy(self, seconds: float) -> list[str]:
        """The stores of which one thread was at work for most of the next so many seconds. Requests of clients keep no
        store busy, unless one of them takes as long."""
        seen: Counter[tuple[str, str]] = Counter()
        for _ in range(LOOKS):
            time.sleep(seconds / LOOKS)
            seen.update((name, thread) for name, pid in self._pids.items() for thread in self._find_working(pid))
        return sorted({name for (name, _), looks in seen.items() if looks >= BUSY_LOOKS})

    def _find_working(self, pid: int) -> Iterator[str]:
        for path in (self._processes / str(pid) / "task").glob("*/stat"):
            try:
                # The name of a program may have spaces and brackets.
                state = path.read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if state in _AT_WORK:
                yield path.parent.name
