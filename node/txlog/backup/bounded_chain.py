"""Takes the next backup of a chain whose length is bounded: an incremental one, a merge before it, or a full one."""

from __future__ import annotations

from typing import NamedTuple

from txlog.backup.backup_errors import BackupFault, NoIncrement
from txlog.backup.backup_manifest import BackupManifest
from txlog.backup.backup_writer import BackupRequest, take_backup, write_backup
from txlog.backup.catalogue import count_merges
from txlog.backup.increment_writer import take_incremental_backup
from txlog.backup.pinned_snapshot import SourceWorker
from txlog.backup.progress import ProgressCallback, no_progress
from txlog.backup.read_lease import hold_lease
from txlog.backup.target import BackupTarget
from txlog.backup.verification import read_chain, read_contents, read_manifest
from txlog.model.errors import BadInput


class ChainBounds(NamedTuple):
    """``chain_max``: how many incremental backups may follow a full one. ``merges_max``: how many times in a row a
    chain that may not grow is merged into a full backup, before a worker is read again; 0: never."""

    chain_max: int
    merges_max: int = 0


class BackupTaken(NamedTuple):
    """``why_full``: why the backup is a full one although an incremental one was requested. ``merged``: the name of the
    full backup into which the chain was merged before; empty without one."""

    manifest: BackupManifest
    why_full: str = ""
    merged: str = ""


def take_incremental_or_full(
    source: SourceWorker,
    target: BackupTarget,
    order: BackupRequest,
    bounds: ChainBounds,
    on_progress: ProgressCallback = no_progress,
) -> BackupTaken:
    """An incremental backup where one is possible, else a full one. Raises what
    :func:`~txlog.backup.backup_writer.take_backup` raises."""
    merged = ""
    try:
        try:
            return BackupTaken(take_incremental_backup(source, target, order, bounds.chain_max, on_progress))
        except NoIncrement as full:
            before = _merge(target, full, order, bounds.merges_max, on_progress)
            merged = before.name
            made = take_incremental_backup(source, target, order, bounds.chain_max, on_progress, before)
            return BackupTaken(made, merged=merged)
    except NoIncrement as reason:
        return BackupTaken(take_backup(source, target, order, on_progress), str(reason), merged)


def _merge(
    target: BackupTarget, full: NoIncrement, order: BackupRequest, merges_max: int, on_progress: ProgressCallback
) -> BackupManifest:
    """The chain as a full backup, which the retention of scheduled ones deletes. :class:`NoIncrement` says why it is
    not merged: the worker's own copy is the safer one wherever something is unclear."""
    if not full.chain_end or not merges_max:
        raise full
    try:
        base = read_chain(target, read_manifest(target, full.chain_end))[0]
        merges = count_merges(target, base.name)
        if merges >= merges_max:
            raise NoIncrement(f"{full}; {base.name} is the {merges}. merge in a row, so a worker is read again")
        request = order._replace(why="schedule", retention="normal", name=None)
        return merge_chain(target, full.chain_end, request, on_progress)
    except BackupFault as fault:
        raise NoIncrement(f"{full}; its chain cannot be merged: {fault.name}: {fault}") from fault


def merge_chain(
    target: BackupTarget, name: str, order: BackupRequest, on_progress: ProgressCallback = no_progress
) -> BackupManifest:
    """Writes the content of an incremental backup as a full one at the same position: a synthetic full backup, without
    a worker. It is read back, and its digest is compared with that of the incremental one. ``order``: of the new one;
    cluster, data centre and worker are those of the incremental one. :class:`~txlog.model.errors.BadInput` for a full
    backup. Also raises the faults of each backup of the chain and the errors of the target."""
    merged = read_manifest(target, name)
    if merged.continues is None:
        raise BadInput(f"{name} is a full backup; name an incremental one (txlog backup list)")
    with hold_lease(target, name):
        merges = count_merges(target, read_chain(target, merged)[0].name) + 1
        return write_backup(
            read_contents(target, merged),
            merged.position,
            merged.worker,
            merged.engine,
            target,
            order._replace(cluster=merged.cluster, data_center=merged.data_center, merges=merges),
            on_progress,
            merged.quads,
            merged.base_content,
            merged.undecided_transactions,
            expected=merged,
        )
