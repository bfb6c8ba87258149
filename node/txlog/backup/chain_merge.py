"""Makes a full backup of an incremental one and those before it: a synthetic full backup, without a worker."""

from __future__ import annotations

from txlog.backup.backup_manifest import BackupManifest
from txlog.backup.backup_writer import BackupRequest, write_backup
from txlog.backup.catalogue import count_merges
from txlog.backup.progress import ProgressCallback, no_progress
from txlog.backup.read_lease import hold_lease
from txlog.backup.target import BackupTarget
from txlog.backup.verification import read_chain, read_contents, read_manifest
from txlog.model.errors import BadInput


def merge_chain(
    target: BackupTarget, name: str, order: BackupRequest, on_progress: ProgressCallback = no_progress
) -> BackupManifest:
    """Writes the content of an incremental backup as a full one at the same position. It is read back, and its digest
    is compared with that of the incremental one. ``order``: of the new one; cluster, data centre and worker are those
    of the incremental one. :class:`~txlog.model.errors.BadInput` for a full backup. Also raises the faults of each
    backup of the chain and the errors of the target."""
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
