"""Leases beside a backup: while a restore reads it, and while an incremental backup that continues it is made.

*Write, then look*: a deletion announces itself first, then looks for leases, then for backups that continue this one.
Who makes one writes its lease first, then looks for announcements. Whichever sees the other stops.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Final

from txlog.backup.backup_errors import NoIncrement, TargetDenied, TargetFull
from txlog.backup.target import BackupTarget
from txlog.model.errors import TxLogError

LEASE_PREFIX: Final = "reading-"
"""Prefix of the lease's name."""
LEASE_TTL_S: Final = 24 * 3600.0
"""The lease of a killed reader protects its backup for so many seconds."""
DELETING_PREFIX: Final = "deleting-"
"""Prefix of the name of an announced deletion."""
DELETING_TTL_S: Final = 3600.0
"""What a killed deletion announced counts for so many seconds."""


def hold_lease(target: BackupTarget, name: str) -> AbstractContextManager[None]:
    """Leases this existing backup until the context ends. Does nothing on a read-only target: there these credentials
    cannot delete backups either."""
    return _put_beside(target, name, LEASE_PREFIX, TargetDenied, TargetFull)


@contextmanager
def hold_base(target: BackupTarget, name: str) -> Iterator[None]:
    """Leases a backup that an incremental one continues. :class:`~txlog.backup.backup_errors.NoIncrement` while it is
    being deleted. Raises what the target raises: without a lease no incremental backup is made."""
    with _put_beside(target, name, LEASE_PREFIX):
        if is_leased(target, name, DELETING_PREFIX, DELETING_TTL_S):
            raise NoIncrement(f"{name} is being deleted")
        yield


def announce_deletion(target: BackupTarget, name: str) -> AbstractContextManager[None]:
    """Announces that this backup is deleted. On a full target nothing is written: no lease can be written there
    either."""
    return _put_beside(target, name, DELETING_PREFIX, TargetFull)


@contextmanager
def _put_beside(target: BackupTarget, name: str, prefix: str, *accepted: type[TxLogError]) -> Iterator[None]:
    """An object beside the backup until the context ends; none where the target refuses it with one of ``accepted``."""
    key = f"{name}/{prefix}{secrets.token_hex(8)}.json"
    with suppress(*accepted):
        target.write(key, b"{}\n")
    try:
        yield
    finally:
        with suppress(TxLogError):
            target.delete([key])


def is_leased(target: BackupTarget, name: str, prefix: str = LEASE_PREFIX, ttl_s: float = LEASE_TTL_S) -> bool:
    """Whether a lease, or what else has this prefix, was written within ``ttl_s`` seconds by the target's clock."""
    start = f"{name}/{prefix}"
    return any(
        each.key.startswith(start) and time.time() - each.modified < ttl_s for each in target.list_objects(f"{name}/")
    )
