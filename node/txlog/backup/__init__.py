"""Backups of a worker at an exact position of the log: made, checked, kept, restored."""

from txlog.backup.adopting import adopt, beginning_of
from txlog.backup.catalogue import Listed, catalogue, delete, leftovers, newest, release
from txlog.backup.chain import OnChain, chain_of, cluster_of
from txlog.backup.checking import check, manifest_of
from txlog.backup.creating import Order, create
from txlog.backup.loading import Into
from txlog.backup.manifest import Manifest
from txlog.backup.progress import Progress, Told
from txlog.backup.rebuilding import rebuild_from_backup, rebuild_from_worker
from txlog.backup.repairing import Repaired, repair
from txlog.backup.restoring import Restored, restore
from txlog.backup.retention import retain
from txlog.backup.standing import Source
from txlog.backup.target import Target, open_target

__all__ = [
    "Into",
    "Listed",
    "Manifest",
    "OnChain",
    "Order",
    "Progress",
    "Repaired",
    "Restored",
    "Source",
    "Target",
    "Told",
    "adopt",
    "beginning_of",
    "catalogue",
    "chain_of",
    "check",
    "cluster_of",
    "create",
    "delete",
    "leftovers",
    "manifest_of",
    "newest",
    "open_target",
    "rebuild_from_backup",
    "rebuild_from_worker",
    "release",
    "repair",
    "restore",
    "retain",
]
