"""The capture store: an embedded store that follows the log, with the change log beside it.

What it holds is what its change log says: a change set is recorded before the store changes.

- After a **kill** the store has lost nothing. A start applies the change sets above the last *checkpoint* again, and
  takes back the operations of an entry that is not whole. Both may be repeated.
- After a **loss of power** the store and the log may each lack what was not synced, and the store may be ahead. So a
  checkpoint keeps a copy of the store's files (hard links), and a start on another boot begins with that copy.
- A **large** change is not recorded, so nothing takes it back. A checkpoint is made before the store changes by it and
  one after; a start between the two begins with the copy of the first.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from threading import RLock
from typing import Final, NamedTuple, TypeVar

import msgspec
import pyoxigraph as ox

from txlog.changesets.change_log import ChangeLog, LogEnd
from txlog.changesets.change_log_errors import CaptureStoreInUse, ChangeLogDamaged, ChangeNotKept, UnknownChangeLog
from txlog.changesets.change_record import CHAIN_START, CapturedEntry, ChangeRecord, FileHead, RecordKind, encode_large
from txlog.changesets.change_set import ChangeSet, combine
from txlog.changesets.operations import EntryRefused, apply_change, apply_entry, changed_graphs, data_changes
from txlog.config.atomic_file import write_durably
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.entry import CONTROL_KINDS, KIND_QUADS, Position
from txlog.model.errors import Unavailable
from txlog.model.synchronous_entry import SYNCHRONOUS_KINDS
from txlog.workers.adapter import StoreOperation

CHECKPOINT_ENTRIES: Final = 10_000
CHECKPOINT_VERSION: Final = 1
DATA_ENTRIES_MAX: Final = 500
"""Entries of data that are recorded and applied together."""
T = TypeVar("T")
QUADS_MAX: Final = 1_000_000
"""Quads of a change set; of a larger one only the graphs are kept."""


class LogStep(NamedTuple):
    """An entry to execute: what the log says of it, and its payload."""

    entry: CapturedEntry
    payload: bytes

    @property
    def changes_nothing(self) -> bool:
        """Whether workers only move their position over it."""
        return bool(self.entry.noop) or self.entry.kind in (*CONTROL_KINDS, *SYNCHRONOUS_KINDS)


class _Checkpoint(msgspec.Struct, frozen=True, rename="camel"):
    """``kept``: the folder with the copy of the store at ``index``. ``replay``: the index above which change sets are
    applied again after a kill. ``boot``: the boot of the machine on which it was written."""

    version: int
    index: int
    kept: str
    replay: int
    boot: str


class _LargeChangeMet(Exception):
    """A change of this size is not recorded."""


class CaptureStore:
    """The store in one folder, of which this process is the only owner. ``start``: the position where an empty folder
    begins, with the data there (``quads``). ``clock_ms``: milliseconds since 1970. ``quads_max``: quads of a change set
    that is kept."""

    def __init__(
        self,
        folder: Path,
        start: Position,
        quads: Iterable[ox.Quad] = (),
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        quads_max: int = QUADS_MAX,
    ) -> None:
        self._folder = folder
        self._quads_max = quads_max
        self._clock_ms = clock_ms
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(folder)
        self._writing = RLock()
        self._is_closed = False
        try:
            if not self.exists(folder):
                self._begin(FileHead(start.index, start.hash, CHAIN_START), quads)
            self._checkpoint = self._read_checkpoint()
            self._recover()
        except BaseException:
            os.close(self._lock)
            raise

    @staticmethod
    def exists(folder: Path) -> bool:
        """Whether the folder holds a store already."""
        return any((folder / "changes").glob("*.changes"))

    def _begin(self, head: FileHead, quads: Iterable[ox.Quad]) -> None:
        """The change log comes last: without it, what an earlier process began is removed."""
        for path in (self._folder / "quads", *self._folder.glob("kept-*")):
            shutil.rmtree(path, ignore_errors=True)
        store = ox.Store(str(self._folder / "quads"))
        store.bulk_extend(quads)
        store.flush()
        kept = self._keep_copy(store, 0)
        self._write_checkpoint(_Checkpoint(CHECKPOINT_VERSION, head.index, kept, head.index, read_boot_id()))
        ChangeLog.create(self._folder / "changes", head).close()

    def _recover(self) -> None:
        """The state after the last whole entry."""
        found, boot = self._checkpoint, read_boot_id()
        same_boot = found.boot == boot
        self._log = ChangeLog(self._folder / "changes", synced=None if same_boot else found.index)
        is_large_dropped = self._drop_large_change(found.index)
        is_store_sure = same_boot and not is_large_dropped
        if not is_store_sure:
            _restore_copy(self._folder / found.kept, self._folder / "quads")
        self._store = ox.Store(str(self._folder / "quads"))
        begin = found.replay if is_store_sure else found.index
        if begin > self._log.end.index:
            raise ChangeLogDamaged(
                f"{self._folder}: the store is at index {begin}, and the change log ends at "
                f"{self._log.end.index}: it was cut; make the store again"
            )
        for record in self._log.entries(begin):
            apply_change(self._store, record.change_set)
        for change in reversed(self._log.parts):
            apply_change(self._store, change.inverse())
        if self._log.parts:
            self._log.drop_parts()
        if not is_store_sure:
            self._make_checkpoint(self._log.end.index)

    def _drop_large_change(self, checkpoint: int) -> bool:
        """Whether an earlier process was at a large change, or had just recorded one, when it ended. The log then ends
        at the checkpoint that was made before it."""
        if self._log.end.index > checkpoint:
            is_recorded = any(each.record is RecordKind.LARGE for each in self._log.entries(checkpoint))
        else:
            is_recorded = False
        if not is_recorded and not self._log.is_large_begun:
            return False
        if is_recorded:
            self._log.truncate(checkpoint)
        self._log.drop_parts()
        return True

    def close(self) -> None:
        """Write a checkpoint and give the folder free."""
        with self._writing:
            if self._checkpoint.index != self._log.end.index:
                self._make_checkpoint(self._log.end.index)
            self._log.close()
            self._release()

    def abandon(self) -> None:
        """Give the folder free as a kill would: nothing more is written, and the next start finds what is whole."""
        with self._writing:
            self._log.abandon()
            self._release()

    def _release(self) -> None:
        self._is_closed = True
        del self._store
        os.close(self._lock)

    # -- position

    @property
    def end(self) -> LogEnd:
        """The last entry that was executed."""
        return self._log.end

    @property
    def begin(self) -> LogEnd:
        """The position before the first entry of which the change set is kept."""
        return self._log.begin

    def entries(self, after: int) -> Iterable[ChangeRecord]:
        """The entries above an index, with their change sets; errors as of :meth:`ChangeLog.entries`."""
        return self._log.entries(after)

    @property
    def quads(self) -> ox.Store:
        """The embedded store, to be read only."""
        return self._store

    def read_at_end(self, read: Callable[[ox.Store], T]) -> tuple[LogEnd, T]:
        """Read the store from any thread, between two entries. Returns the last entry, and what ``read`` found. Raises
        :class:`Unavailable` where the store is closed."""
        with self._writing:
            if self._is_closed:
                raise Unavailable("ChangeSetsLoading", "the change sets are being made; ask again")
            return self._log.end, read(self._store)

    def copy_at_end(self, folder: Path) -> LogEnd:
        """Copy the store's files between two entries, from any thread; most are hard links. Returns the last entry.
        ``folder`` must not exist. Raises as :meth:`read_at_end`."""
        return self.read_at_end(lambda quads: quads.backup(str(folder)))[0]

    # -- writing

    def apply(self, steps: Sequence[LogStep]) -> list[ChangeSet]:
        """Execute the next entries of the log; returns their change sets. Raises :class:`EntryRefused` for one that the
        store cannot execute: those before it are executed, and the store is at the last of them."""
        made: list[ChangeSet] = []
        while len(made) < len(steps):
            data = _data_steps(steps, len(made))
            with self._writing:
                made += self._apply_data(data) if data else [self._apply_update(steps[len(made)])]
        if self._log.end.index - self._checkpoint.index >= CHECKPOINT_ENTRIES:
            self._make_checkpoint(self._log.end.index)
        return made

    def _apply_data(self, steps: Sequence[LogStep]) -> list[ChangeSet]:
        """Entries of data, and those without effect: recorded together, then applied together."""
        try:
            made = data_changes(self._store, [b"" if each.changes_nothing else each.payload for each in steps])
        except (ValueError, SyntaxError) as wrong:
            raise EntryRefused(str(wrong)[:500]) from wrong
        now, changes = self._clock_ms(), made.changes
        large = next((at for at, change in enumerate(changes) if len(change) > self._quads_max), None)
        if large is not None:
            return self._apply_data(steps[:large]) if large else [self._apply_large(steps[0])]
        for step, change in zip(steps, changes, strict=True):
            self._log.append(step.entry, change, now)
        self._log.flush()
        apply_change(self._store, changes[0] if len(changes) == 1 else combine(changes), made.quads)
        return changes

    def _apply_update(self, step: LogStep) -> ChangeSet:
        recorded: list[ChangeSet] = []
        is_entry_recorded = False

        def record(change: ChangeSet, is_whole: bool) -> None:
            nonlocal is_entry_recorded
            if len(change) + sum(map(len, recorded)) > self._quads_max:
                raise _LargeChangeMet
            if is_whole:
                self._log.append(step.entry, change, self._clock_ms())
                is_entry_recorded = True
            else:
                recorded.append(change)
                self._log.append_part(step.entry, change, self._clock_ms())
            self._log.flush()

        made = None
        try:
            made = apply_entry(self._store, StoreOperation(step.entry.kind, step.payload), record)
        except EntryRefused:
            self._take_back(recorded)
            raise
        except _LargeChangeMet:
            self._take_back(recorded)
        if made is None:  # not in the handler: while it runs, the frames of the error hold the store open
            return self._apply_large(step)
        if not is_entry_recorded:
            self._log.append(step.entry, made, self._clock_ms())
            self._log.flush()
        return made

    def _take_back(self, recorded: Sequence[ChangeSet]) -> None:
        """Undo the operations of an entry that is not whole."""
        for change in reversed(recorded):
            apply_change(self._store, change.inverse())
        if recorded:
            self._log.drop_parts()

    def _apply_large(self, step: LogStep) -> ChangeSet:
        """Execute an entry of which the change is not kept. The operations are computed on the store as they are for
        any other entry."""
        self._make_checkpoint(self._log.end.index)
        self._log.begin_large(step.entry, self._clock_ms())
        self._log.flush()
        made = refusal = None
        try:
            made = apply_entry(self._store, StoreOperation(step.entry.kind, step.payload))
        except EntryRefused as wrong:
            refusal = str(wrong)
        if made is None:
            # Operations before the one that failed have changed the store, and nothing takes them back. Not in the
            # handler: while it runs, the frames of the error hold the store open.
            self._log.drop_parts()
            self._reopen_copy()
            raise EntryRefused(refusal)
        graphs = changed_graphs(made)
        self._log.append_large(step.entry, encode_large(made, graphs), self._clock_ms())
        self._log.flush()
        self._make_checkpoint(self._log.end.index)
        return ChangeSet(graphs=tuple(sorted(graphs)))

    def _reopen_copy(self) -> None:
        """Go on with the store of the last checkpoint."""
        del self._store
        _restore_copy(self._folder / self._checkpoint.kept, self._folder / "quads")
        self._store = ox.Store(str(self._folder / "quads"))

    def undo_to(self, index: int) -> list[ChangeRecord]:
        """Go back to an earlier index by the inverses of the change sets above it; returns these, in the log's order.
        Raises :class:`~txlog.changesets.change_log_errors.ChangesGone` where they are not kept, and
        :class:`~txlog.changesets.change_log_errors.ChangeNotKept` where one was too large to be kept."""
        undone = list(self._log.entries(index))
        large = next((each.entry.index for each in undone if each.record is RecordKind.LARGE), None)
        if large is not None:
            raise ChangeNotKept(f"the change of entry {large} was too large to be kept, so the store cannot go back")
        # Until the log is cut, a start applies all entries above this index again, also those that were undone by then.
        lower = min(index, self._checkpoint.replay)
        self._write_checkpoint(msgspec.structs.replace(self._checkpoint, replay=lower))
        with self._writing:
            apply_change(self._store, combine(record.change_set for record in undone).inverse())
            self._make_checkpoint(index)
            self._log.truncate(index)
        return undone

    def prune(self, keep_ms: int) -> None:
        """Forget change sets that are older, file by file. ``keep_ms``: milliseconds."""
        before_ms = self._clock_ms() - keep_ms
        if self._checkpoint.replay < self._log.end.index and self._log.would_prune(before_ms):
            self._make_checkpoint(self._log.end.index)
        self._log.prune(self._checkpoint.replay, before_ms)

    @property
    def change_log_size(self) -> int:
        """Bytes of the change log."""
        return self._log.size

    # -- checkpoints

    def _make_checkpoint(self, index: int) -> None:
        """Everything up to an index is on the disk, in the change log and in a copy of the store."""
        self._log.sync()
        self._store.flush()
        before = self._checkpoint.kept
        kept = self._keep_copy(self._store, int(before.rpartition("-")[2]) + 1)
        self._write_checkpoint(_Checkpoint(CHECKPOINT_VERSION, index, kept, index, read_boot_id()))
        shutil.rmtree(self._folder / before, ignore_errors=True)

    def _keep_copy(self, store: ox.Store, number: int) -> str:
        """A copy of the store's files, synced. Files that the store never changes are hard links."""
        folder = self._folder / f"kept-{number}"
        shutil.rmtree(folder, ignore_errors=True)
        store.backup(str(folder))
        for path in folder.iterdir():
            _sync(path)
        _sync(folder)
        return folder.name

    def _write_checkpoint(self, made: _Checkpoint) -> None:
        write_durably(self._folder / "checkpoint", msgspec.json.encode(made))
        self._checkpoint = made

    def _read_checkpoint(self) -> _Checkpoint:
        path = self._folder / "checkpoint"
        try:
            found = msgspec.json.decode(path.read_bytes(), type=_Checkpoint)
        except (*DECODE_ERRORS, OSError) as wrong:
            raise ChangeLogDamaged(f"{path} cannot be read: {wrong}; make the store again") from None
        if found.version != CHECKPOINT_VERSION:
            raise UnknownChangeLog(f"{path} has version {found.version}, and this program reads {CHECKPOINT_VERSION}")
        return found


def read_boot_id() -> str:
    """The boot of this machine: another one after each start of it. Empty where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _restore_copy(kept: Path, folder: Path) -> None:
    """Begin with a copy of the store's files. Those that are changed in place are copied, the others linked."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(kept, folder, copy_function=_link_table)


def _link_table(source: str, target: str) -> None:
    (os.link if source.endswith(".sst") else shutil.copyfile)(source, target)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _lock(folder: Path) -> int:
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise CaptureStoreInUse(f"another process uses the capture store in {folder}") from None
    return handle


def _data_steps(steps: Sequence[LogStep], begin: int) -> Sequence[LogStep]:
    """The steps from ``begin`` on that can be recorded together; empty where the first one is an update."""
    end = begin
    while end < len(steps) and end - begin < DATA_ENTRIES_MAX:
        if not steps[end].changes_nothing and steps[end].entry.kind != KIND_QUADS:
            break
        end += 1
    return steps[begin:end]
