"""A lease beside a backup while a restore reads it, so that the backup is not deleted meanwhile."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from txlog.backup.backup_errors import TargetDenied, TargetFull
from txlog.backup.target import BackupTarget
from txlog.model.errors import TxLogError

LEASE_PREFIX: Final = "reading-"
"""Prefix of the lease's name."""
LEASE_TTL_S: Final = 24 * 3600.0
"""The lease of a killed reader protects its backup for so many seconds."""


@contextmanager
def hold_lease(target: BackupTarget, name: str) -> Iterator[None]:
    """Leases this existing backup until the context ends. Does nothing on a read-only target: there these credentials
    cannot delete backups either."""
    key = f"{name}/{LEASE_PREFIX}{secrets.token_hex(8)}.json"
    with suppress(TargetDenied, TargetFull):
        target.write(key, b"{}\n")
    try:
        yield
    finally:
        with suppress(TxLogError):
            target.delete([key])
