"""Registers the verified backups of a data centre with its masters: the masters keep the log that these backups
need."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from txlog.backup.catalogue import newest_backups
from txlog.backup.target import BackupTarget
from txlog.client import MasterClient
from txlog.model.errors import TxLogError


def register_backups(target: BackupTarget, masters: Sequence[MasterClient], cluster: str, data_center: str) -> None:
    """Registers with each master that answers; masters forward it to each other. A missed registration is safe: it only
    makes the masters keep more of the log."""
    found = [
        {"name": each.name, "index": each.manifest.place.index, "hash": each.manifest.place.hash, "split": each.held}
        for each in newest_backups(target, cluster)
        if each.manifest is not None and each.manifest.data_center == data_center
    ]
    for master in masters:
        with suppress(TxLogError):
            master.register_backups(found)
