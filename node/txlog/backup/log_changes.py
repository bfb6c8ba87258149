"""Reads what a stretch of the log changes, as workers get it from the masters."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from txlog.backup.backup_errors import NoIncrement
from txlog.backup.progress import BackupProgress, ProgressCallback
from txlog.backup.quad_changes import QuadChanges
from txlog.client import MasterUnreachable
from txlog.model.entry import KIND_UPDATE, LogEntry, Position
from txlog.model.entry_effects import find_effects
from txlog.model.errors import LogAhead, TxLogError, Unavailable
from txlog.wire.log_page import LogPage

PAGE_BYTES: Final = 4 << 20
WAIT_S: Final = 10.0
"""Some of the masters has executed what a worker has; the others may lag for so long."""
_POLL_S: Final = 0.2


class LogPages(Protocol):
    """A master, as far as its log is read: :class:`~txlog.client.MasterClient`."""

    def log_page(
        self, after: int, at_hash: bytes | None = None, upto: int | None = None, max_bytes: int | None = None
    ) -> LogPage: ...


def read_changes(
    masters: Sequence[LogPages],
    after: Position,
    upto: Position,
    form: Callable[[bytes], bytes],
    bytes_max: int,
    on_progress: ProgressCallback,
) -> QuadChanges:
    """What workers execute after ``after`` up to ``upto``. ``form``: converts payloads to the form in which the store
    returns quads. ``bytes_max``: of the changes in memory.

    :class:`~txlog.backup.backup_errors.NoIncrement` where the log has an update, whose effect it does not say, for too
    many changes, and when ``upto`` is not on the log. ``LogDiverged`` when ``after`` is not, ``LogNeedsRestore`` when
    the log does not begin before it any more. Raises the error of the last master when none has the log."""
    changes, at = QuadChanges(bytes_max), after
    while at.index < upto.index:
        entries = _read_page(masters, at, upto.index).log_entries()
        for entry in entries:
            _apply(changes, entry, form)
        at = Position(upto.epoch, entries[-1].index, entries[-1].hash)
        on_progress(BackupProgress("reading the log", at.index - after.index, upto.index - after.index))
    if at.hash != upto.hash:
        raise NoIncrement(
            f"the worker is at {upto.index}:{upto.hash.hex()}, and the log has another hash there: {at.hash.hex()}"
        )
    return changes


def _apply(changes: QuadChanges, entry: LogEntry, form: Callable[[bytes], bytes]) -> None:
    for effect in find_effects(entry):
        if effect.kind == KIND_UPDATE:
            raise NoIncrement(
                f"the transaction {effect.txid} at index {entry.index} is an update, and the log does not say which "
                "quads it changed"
            )
        changes.change(form(effect.payload))


def _read_page(masters: Sequence[LogPages], at: Position, upto: int) -> LogPage:
    """At least one entry."""
    until = time.monotonic() + WAIT_S
    while True:
        missing: TxLogError = LogAhead(f"no master has the log from index {at.index} to {upto} yet")
        for master in masters:
            try:
                page = master.log_page(at.index, at.hash, upto, PAGE_BYTES)
            except (MasterUnreachable, Unavailable, LogAhead) as error:
                missing = error
                continue
            if page.entries:
                return page
        if time.monotonic() > until:
            raise missing
        time.sleep(_POLL_S)
