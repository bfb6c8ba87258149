"""Deletes the files of a stream that no moment of the recovery window needs.

*Write, then look*: a restore writes its lease, then waits while something is retired. What is retired is announced
first, then leases are looked for. Whichever sees the other stops or waits.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from txlog.archive.moment_restore import to_base
from txlog.archive.stream import Stream
from txlog.archive.stream_reader import StreamReader
from txlog.archive.window_plan import WindowBase, WindowPlan, plan_window
from txlog.backup.backup_errors import TargetDenied, TargetFull
from txlog.backup.catalogue import COMPLETE, catalogue
from txlog.backup.target import BackupTarget
from txlog.model.errors import Conflict, TxLogError
from txlog.model.stamp import stamp_ms

LEASE_TTL_S: Final = 24 * 3600.0
"""The lease of a killed restore protects the stream for so many seconds."""
RETIRING_TTL_S: Final = 3600.0
"""What a killed retention announced counts for so many seconds."""
WAIT_S: Final = 120.0
_POLL_S: Final = 0.5


def find_window(stream: Stream, backups: BackupTarget, keep_s: float, now: float) -> WindowPlan:
    """What :func:`retire_files` would do. Only backups of the stream's own data centre count: the retention of another
    one does not know this window. ``keep_s``: length of the window. It ends at ``now``, in seconds since 1970,
    or at the last archived entry where that is earlier. Raises what reading the stream raises."""
    reader = StreamReader(stream)
    timelines = reader.with_sound_files(reader.find_timelines)
    bases = [
        WindowBase(to_base(found.manifest), int(found.manifest.finished * 1000), found.held)
        for found in catalogue(backups)
        if found.state == COMPLETE
        and found.manifest is not None
        and (found.manifest.cluster, found.manifest.data_center) == (stream.id.cluster.hex(), stream.id.data_center)
    ]
    last_ms = max((stamp_ms(file.last_stamp) for one in timelines.current for file in one.files()), default=0)
    begin_ms = min(int(now * 1000), last_ms) - int(keep_s * 1000)
    return reader.with_sound_files(
        lambda: plan_window(list(reader.sizes), reader.starts, timelines, bases, begin_ms, reader.read)
    )


def retire_files(
    stream: Stream, backups: BackupTarget, keep_s: float, now: Callable[[], float] = time.time
) -> WindowPlan:
    """Deletes what the window does not need, and leftovers of an earlier run. Returns what it did. Each step can be
    repeated after a kill."""
    key = stream.announce("retiring", secrets.token_hex(8))
    try:
        if stream.is_announced("lease", key, LEASE_TTL_S):
            return WindowPlan("a restore reads the stream; try again when that is done")
        plan = find_window(stream, backups, keep_s, now())
        carry_out(stream, plan)
        return plan
    finally:
        with suppress(TxLogError):
            stream.withdraw(key)


def carry_out(stream: Stream, plan: WindowPlan) -> None:
    """Deletes what a plan says, and leftovers of earlier ones. Each step can be repeated after a kill."""
    if plan.files or plan.branches:
        stream.delete_files(plan.branches)
        _record(stream, plan)
    stream.delete_files(stream.retired_files())


def _record(stream: Stream, plan: WindowPlan) -> None:
    stream.record_skips(plan.floor, plan.begins, plan.skips)
    stream.record_begins(plan.floor, plan.begins)


@contextmanager
def hold_stream(stream: Stream, wait_s: float = WAIT_S) -> Iterator[None]:
    """No file of the stream is retired until the context ends. On a target where this process may not write, nothing
    is done: retention then runs with other credentials, and a restore must not take longer than the window allows."""
    try:
        key = stream.announce("lease", secrets.token_hex(8))
    except (TargetDenied, TargetFull):
        yield
        return
    try:
        until = time.monotonic() + wait_s
        while stream.is_announced("retiring", key, RETIRING_TTL_S):
            if time.monotonic() > until:
                raise Conflict(f"{stream.location}: files are being retired; try again in a minute")
            time.sleep(_POLL_S)
        yield
    finally:
        with suppress(TxLogError):
            stream.withdraw(key)
