"""What the process that makes change sets reports to the masters of its data centre: ``POST /txlog/changesets``."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from txlog.wire.archive_report import ArchivePlace


class ChangeSetState(StrEnum):
    """The states that a report may carry."""

    LOADING = "Loading"
    """It copies a worker; there are no change sets yet."""
    FOLLOWING = "Following"
    WAITING = "Waiting"
    """No master answers, or no worker can be copied."""
    BLOCKED = "Blocked"
    """It cannot execute an entry that a worker has executed."""
    FAILED = "Failed"
    """Its disk refuses, or what is there was written by a newer version."""


class ChangeSetReport(msgspec.Struct, frozen=True, rename="camel"):
    """``executed``: the last entry that the store has executed; None while it has no data. ``state``: a
    :class:`ChangeSetState`, or one of a newer version. ``begin``: change sets are kept above this index. ``rebuilds``
    count since the process started, ``bytes`` are those of the change log."""

    executed: ArchivePlace | None
    state: str
    begin: int = 0
    bytes: int = 0
    rebuilds: int = 0
    error: str = ""
