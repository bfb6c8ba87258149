"""Which errors mean that a disk has no room now, and may have some later."""

from __future__ import annotations

import errno

from txlog.model.errors import JournalFull


def is_disk_full(error: BaseException) -> bool:
    """Whether the error, or the one that it was raised for, says that there is no room on the disk."""
    if isinstance(error, JournalFull):
        return True
    cause = error if isinstance(error, OSError) else error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)
