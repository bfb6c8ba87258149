"""The machine under the measurement: which disk, how often it syncs, who uses the processor, from /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs", "devtmpfs")
SYNC_RECORD = bytes(range(256)) * 2


class NotOnDisk(Exception):
    """The folder is on a file system that forgets: a durable write there costs nothing and proves nothing."""


def file_system(folder: Path) -> str:
    """``type (mount point)`` of the file system that holds ``folder``."""
    wanted = folder.resolve()
    best = ("unknown", Path("/"))
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        mount = Path(left.split()[4].replace("\\040", " "))
        if wanted.is_relative_to(mount) and len(mount.parts) >= len(best[1].parts):
            best = (right.split()[0], mount)
    return f"{best[0]} ({best[1]})"


def disk_of(folder: Path) -> str:
    """The file system of ``folder``; :class:`NotOnDisk` when it is none on a disk."""
    folder.mkdir(parents=True, exist_ok=True)
    kind = file_system(folder)
    if kind.split()[0] in MEMORY_FILE_SYSTEMS:
        raise NotOnDisk(f"{folder} is on {kind}; journals are measured on a disk only, choose another folder")
    return kind


def fsync_rate(folder: Path, seconds: float = 1.0) -> float:
    """How often a second the disk makes one small record durable: pwrite and fdatasync into a file whose blocks
    are already written, as a journal's are. This bounds what one client can reach."""
    path = folder / "fsync-rate"
    size = 8 << 20
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.pwrite(file, bytes(size), 0)
        os.fsync(file)
        done, at = 0, 0
        began = time.perf_counter()
        while (took := time.perf_counter() - began) < seconds:
            os.pwrite(file, SYNC_RECORD, at)
            os.fdatasync(file)
            at = (at + len(SYNC_RECORD)) % (size - len(SYNC_RECORD))
            done += 1
        return done / took
    finally:
        os.close(file)
        path.unlink()


def machine_seconds() -> float:
    """Processor seconds that all processes of this machine have used since it began, user and system."""
    user, nice, system = (int(text) for text in Path("/proc/stat").read_text().split(maxsplit=4)[1:4])
    return (user + nice + system) / CLOCK_TICKS_PER_S


def cpu_seconds(pid: int, *, children: bool = False) -> float:
    """Processor time of a process so far (with ``children``: of those it started, too, also when they have ended and
    their parent knows it); 0 when it is gone."""
    pids = [pid, *descendants(pid)] if children else [pid]
    last = 15 if children else 13  # proc(5): utime, stime, and those of children that were waited for
    total = 0
    for each in pids:
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:last]))
    return total / CLOCK_TICKS_PER_S


def rss_mb(pid: int) -> float:
    """Resident memory in MB (10^6 bytes); 0 when the process is gone."""
    return _status_mb(f"/proc/{pid}/status", "VmRSS:")


def reset_peak(pid: int) -> float:
    """Of a process: its peak of memory is from now on where it stands now, in MB. Source: proc(5), clear_refs."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return rss_mb(pid)


def peak_mb(pid: int) -> float:
    """The most resident memory since :func:`reset_peak`, in MB; 0 when the process is gone."""
    return _status_mb(f"/proc/{pid}/status", "VmHWM:")


def memory_growth_mb(run: Callable[[], object]) -> float:
    """How far ``run`` brought the memory of this process above where it was before. Not by ``ru_maxrss``: a process
    inherits that from the one that started it."""
    before = reset_peak(os.getpid())
    run()
    return peak_mb(os.getpid()) - before


def _status_mb(path: str, field: str) -> float:
    try:
        for line in Path(path).read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) * 1024 / 1e6
    except OSError:
        pass
    return 0.0


def descendants(pid: int) -> list[int]:
    """The processes that this one started, and those that they started."""
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *descendants(int(child))]
    except OSError:
        pass
    return found


def busy_seconds() -> float:
    """Processor time that the whole machine has used."""
    user, nice, system, _idle, _iowait, irq, softirq, *_ = (
        int(each) for each in Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    )
    return (user + nice + system + irq + softirq) / CLOCK_TICKS_PER_S


def fsync_rate_shared(folder: Path, writers: int = 3, seconds: float = 1.0) -> float:
    """The rate of each of ``writers`` that sync files of their own on one disk at the same time, as masters on one
    machine do; the mean of them. A sync leaves the interpreter alone, so threads will do."""
    folders = [folder / f"writer-{number}" for number in range(writers)]
    for each in folders:
        each.mkdir()
    try:
        with ThreadPoolExecutor(writers) as pool:
            return sum(pool.map(lambda each: fsync_rate(each, seconds), folders)) / writers
    finally:
        for each in folders:
            each.rmdir()


class CpuMeter:
    """The share of one core that each named process uses between :meth:`begin` and :meth:`shares`: with what it
    started, unless it is this very process, whose children are measured by their own names."""

    def __init__(self, pids: dict[str, int]) -> None:
        self.pids = pids
        self.begin()

    def begin(self) -> None:
        self.began = time.perf_counter()
        self.before = self._used()
        self.most = dict(self.before)
        self.busy = busy_seconds()

    def sample(self) -> None:
        """What they have used so far is not forgotten when they end: for processes that end while they are measured."""
        self.most = {name: max(self.most[name], seconds) for name, seconds in self._used().items()}

    def shares(self) -> dict[str, float]:
        """In percent of one core; ``others``: what the rest of the machine used meanwhile."""
        took = time.perf_counter() - self.began
        self.sample()
        used = {name: self.most[name] - self.before[name] for name in self.most}
        shares = {name: 100 * seconds / took for name, seconds in used.items()}
        shares["others"] = max(0.0, 100 * (busy_seconds() - self.busy - sum(used.values())) / took)
        return shares

    def _used(self) -> dict[str, float]:
        return {name: cpu_seconds(pid, children=pid != os.getpid()) for name, pid in self.pids.items()}
