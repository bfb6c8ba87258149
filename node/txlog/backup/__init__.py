"""Backups of a worker at an exact position of the log: create, verify, keep, restore."""

from txlog.backup.adoption import adopt, initial_position
from txlog.backup.backup_manifest import BackupManifest
from txlog.backup.backup_writer import BackupRequest, take_backup
from txlog.backup.bounded_chain import ChainBounds, merge_chain, take_incremental_or_full
from txlog.backup.catalogue import (
    CatalogueEntry,
    catalogue,
    delete_backup,
    delete_incomplete_backups,
    newest_backups,
    release_backup,
)
from txlog.backup.chain_check import ChainCheck, make_chain_check, read_cluster_id
from txlog.backup.dataset_load import RestoreTarget
from txlog.backup.graph_repair import RepairResult, repair_graphs
from txlog.backup.pinned_snapshot import SourceWorker
from txlog.backup.progress import BackupProgress, ProgressCallback
from txlog.backup.restoration import RestoreResult, restore_backup
from txlog.backup.retention import apply_retention
from txlog.backup.target import BackupTarget, open_target
from txlog.backup.verification import check_backup, read_manifest
from txlog.backup.worker_rebuild import rebuild_from_backup, rebuild_from_worker

__all__ = [
    "BackupManifest",
    "BackupProgress",
    "BackupRequest",
    "BackupTarget",
    "CatalogueEntry",
    "ChainBounds",
    "ChainCheck",
    "ProgressCallback",
    "RepairResult",
    "RestoreResult",
    "RestoreTarget",
    "SourceWorker",
    "adopt",
    "apply_retention",
    "catalogue",
    "check_backup",
    "delete_backup",
    "delete_incomplete_backups",
    "initial_position",
    "make_chain_check",
    "merge_chain",
    "newest_backups",
    "open_target",
    "read_cluster_id",
    "read_manifest",
    "rebuild_from_backup",
    "rebuild_from_worker",
    "release_backup",
    "repair_graphs",
    "restore_backup",
    "take_backup",
    "take_incremental_or_full",
]
