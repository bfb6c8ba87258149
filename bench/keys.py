"""Idempotency keys: what a master holds in memory for them, how long a trim takes it, and its start behind the trim.

The master is one executor with its journal, in a process of its own and without a network: it takes writes in batches,
each with a key of its own, and then trims near the end of the log. A *turn* is what a master's loop does at once.
"""

from __future__ import annotations

import gc
import json
import os
import secrets
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from e2e.lib.host_metrics import rss_mb
from e2e.lib.report import BenchReport, CannotMeasure, Figure, build_table, print_table
from txlog.journal import Journal, OsVfs
from txlog.model.entry import KIND_UPDATE
from txlog.model.hashes import content_hash
from txlog.model.ids import Txid
from txlog.model.stamp import LOGICAL_BITS
from txlog.protocol.core import Core
from txlog.protocol.events import ClockReading, ConfiguredMember, ProtocolSettings, Submission
from txlog.protocol.log.key_table import NAME_BYTES, FirstUse
from txlog.protocol.log.log_trim import BACKUP, WORKER, RetentionPosition
from txlog.runtime.executor import Executor

BATCH: Final = 1000
KEPT: Final = 1000
"""Entries behind the log start."""
MEMORY_MB: Final = 200.0
TURN_MS: Final = 50.0
START_S: Final = 2.0
COUNT: Final = 1_000_000
"""The bound of memory is for so many keys; each more may take ``KEY_BYTES``, and as much while a start loads it."""
KEY_BYTES: Final = 80
PAYLOAD_BYTES: Final = 200
DAY_KEYS: Final = 8_640_000
"""Keys of a day at 100 a second."""
_PROGRAM: Final = (
    "from txlog.native import install_import_hook; install_import_hook(); from bench.keys import main; main()"
)
"""Compiled modules have to be chosen before the first one is imported."""


def measure_keys(folder: Path, count: int, report: BenchReport) -> None:
    """Run the master in a process, and report its figures."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", _PROGRAM, str(folder), str(count)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise CannotMeasure(f"the master ended: {ran.stderr[-2000:]}")
    found: dict[str, float] = json.loads(ran.stdout)
    limits = {
        "memory_mb": MEMORY_MB + max(0, count - COUNT) * KEY_BYTES / 1e6,
        "trim_turn_ms_max": TURN_MS,
        "start_s": START_S,
        "day_trim_turn_ms_max": TURN_MS,
        "day_start_s": START_S,
    }
    rows: list[list[Figure]] = []
    for name, value in found.items():
        limit = limits.get(name)
        if limit is None:
            report.figure(f"keys_{name}", value)
        else:
            report.at_most(f"keys_{name}", value, limit)
        rows.append([name, value, limit])
    report.equal("keys_kept", found["after_start"], found["keys"])
    print_table(build_table("idempotency keys of one master", ("", "measured", "at most"), rows))


class _AlwaysWorth:
    """A journal for which each trim frees enough."""

    def __init__(self, inner: Journal) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def segments_freed_by(self, log_start_index: int, seqs: object, key_bytes: int = 0) -> int:
        """One."""
        return 1


class _Master:
    """One master, driven by hand."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._began = time.monotonic()
        self.executor, self.journal = self._open()
        self.turn_s_max = 0.0

    def _now(self) -> ClockReading:
        return ClockReading(time.time_ns() // 1000, int((time.monotonic() - self._began) * 1000) + 1000)

    def _open(self) -> tuple[Executor, Journal]:
        journal, recovered = Journal.open(OsVfs(self._folder), node="a", draw_birth=lambda: 1)
        settings = ProtocolSettings("a", (ConfiguredMember("a", "uk", 1),), keys_max=1 << 40)
        return Executor(Core(settings, recovered, self._now()), journal), journal

    def turn(self) -> None:
        """What the loop does at once; the sync is another thread's."""
        began = time.perf_counter()
        self.executor.poll(self._now())
        sync = self.executor.begin_sync()
        self.turn_s_max = max(self.turn_s_max, time.perf_counter() - began)
        if sync is not None:
            sync.run()
            began = time.perf_counter()
            self.executor.end_sync()
            self.executor.release()
            self.turn_s_max = max(self.turn_s_max, time.perf_counter() - began)
        spare = self.journal.begin_preallocation()
        if spare is not None:
            spare.run()
            self.journal.end_preallocation(spare)

    def write(self, count: int) -> None:
        """So many transactions, each with a key as the clients of TxLog draw them."""
        for first in range(0, count, BATCH):
            batch = []
            for at in range(first, min(first + BATCH, count)):
                key, payload = secrets.token_hex(16), (b"INSERT DATA { <urn:s> <urn:p> %d }" % at).ljust(PAYLOAD_BYTES)
                batch.append(Submission(KIND_UPDATE, key, payload, content_hash(KIND_UPDATE, key, payload)))
            self.executor.submit(batch, self._now())
            self.turn()

    def trim(self) -> int:
        """Trim; returns the number of turns that it took."""
        log = self.executor.core.log_state
        assert log is not None
        index, turns = log.stable - KEPT, 0
        places = [RetentionPosition(kind, "one", index, log.log_index.hash_at(index)) for kind in (WORKER, BACKUP)]
        self.turn_s_max = 0.0
        began = time.perf_counter()
        self.executor.trim(places, 1 << 60)
        self.turn_s_max = max(self.turn_s_max, time.perf_counter() - began)
        while log.log_index.start < index:
            self.turn()
            turns += 1
            if turns > 100_000:
                raise CannotMeasure("the log is not trimmed")
        self.turn()
        while (removal := self.journal.begin_removal()) is not None:
            removal.run()
            self.journal.end_removal(removal)
        return turns

    def restart(self) -> tuple[float, float]:
        """Seconds of a start again, and seconds of processor. Before it, the scrubber has read each sealed segment."""
        while (task := self.journal.begin_scrub()) is not None:
            task.run()
            self.journal.end_scrub(task)
        self.journal.close()
        del self.executor, self.journal
        gc.collect()
        began, used = time.perf_counter(), time.process_time()
        self.executor, self.journal = self._open()
        return time.perf_counter() - began, time.process_time() - used

    def fill_table(self, count: int) -> None:
        """So many keys more in the table, as of transactions that were trimmed long ago: nothing of them is written.
        From now on each trim is worth it."""
        log = self.executor.core.log_state
        assert log is not None
        first = log.last_stamp - (1 << LOGICAL_BITS)
        for at in range(count):
            log.keys.final.add(secrets.token_bytes(NAME_BYTES), FirstUse(Txid(log.own.origin, at + 1), first, b"cc"))
        self.executor.journal = _AlwaysWorth(self.journal)

    @property
    def keys(self) -> int:
        """The keys that it keeps."""
        log = self.executor.core.log_state
        assert log is not None
        return len(log.keys)


def _life(folder: Path, count: int) -> dict[str, float]:
    master = _Master(folder)
    for _ in range(5):
        master.turn()
        time.sleep(0.05)
    began = time.perf_counter()
    master.write(count)
    master.turn()
    found = {"keys": master.keys, "writes_per_s": count / (time.perf_counter() - began)}
    gc.collect()
    found["memory_mb"] = rss_mb(os.getpid())
    found["trim_turns"] = master.trim()
    found["trim_turn_ms_max"] = 1000 * master.turn_s_max
    gc.collect()
    found["memory_behind_trim_mb"] = rss_mb(os.getpid())
    found["start_s"], found["start_cpu_s"] = master.restart()
    found["after_start"] = master.keys
    master.fill_table(DAY_KEYS - count)
    master.write(2 * KEPT)
    found["day_keys"] = master.keys
    found["day_trim_turns"] = master.trim()
    found["day_trim_turn_ms_max"] = 1000 * master.turn_s_max
    gc.collect()
    found["day_memory_mb"] = rss_mb(os.getpid())
    found["day_start_s"], found["day_start_cpu_s"] = master.restart()
    return found


def main() -> None:
    """In the process of the master: its folder, and how many keys."""
    print(json.dumps(_life(Path(sys.argv[1]), int(sys.argv[2]))))
