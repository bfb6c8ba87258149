"""A note beside a backup that somebody reads from it, so that it is not deleted under a restore."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from txlog.backup.backup_errors import TargetDenied, TargetFull
from txlog.backup.target import BackupTarget
from txlog.model.errors import TxLogError

LEASE_PREFIX: Final = "reading-"
"""How the note's name begins."""
LEASE_TTL_S: Final = 24 * 3600.0
"""What a reader that was killed leaves keeps its backup for so long."""


@contextmanager
def hold_lease(target: BackupTarget, name: str) -> Iterator[None]:
    """This backup, which is there, stays until this is left. On a target that cannot be written to nothing is said:
    there nobody else deletes with these credentials either."""
    key = f"{name}/{LEASE_PREFIX}{secrets.token_hex(8)}.json"
    with suppress(TargetDenied, TargetFull):
        target.write(key, b"{}\n")
    try:
        yield
    finally:
        with suppress(TxLogError):
            target.delete([key])
