"""The masters are told which verified backups of a data centre there are: they keep the log that these need."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from txlog.backup.catalogue import newest_backups
from txlog.backup.target import BackupTarget
from txlog.client import MasterClient
from txlog.model.errors import TxLogError


def register_backups(target: BackupTarget, masters: Sequence[MasterClient], cluster: str, data_center: str) -> None:
    """As many masters as answer; they tell each other. Nobody has to hear it: what a master does not know of holds its
    log back."""
    found = [
        {"name": each.name, "index": each.manifest.place.index, "hash": each.manifest.place.hash, "split": each.held}
        for each in newest_backups(target, cluster)
        if each.manifest is not None and each.manifest.data_center == data_center
    ]
    for master in masters:
        with suppress(TxLogError):
            master.register_backups(found)
