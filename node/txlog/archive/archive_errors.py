"""The errors of archives, by name. Names are stable: commands, operators and tests depend on them."""

from __future__ import annotations

from typing import ClassVar

from txlog.backup.backup_errors import BackupFault
from txlog.model.errors import Refused


class FileDamaged(BackupFault):
    """A file of the archive differs from what was written: its checksums, name, chain, length or order."""


class FileMissing(BackupFault):
    """Files that the path of a stream needs are not on the target."""


class StreamTaken(Refused):
    """``stream.json`` belongs to another cluster or data centre, or is damaged."""


class NoConditionalPut(Refused):
    """The target writes over an object that it was asked only to create. Two archivers could then damage each other's
    records."""


class NoArchive(Refused):
    """The target holds no stream that fits the request."""

    status = 404


class OlderMaster(Refused):
    """The master runs a version that does not serve keys in the pages of the log."""

    status = 503
    reason: ClassVar[str] = "OlderMaster"


class BeyondArchive(Refused):
    """The moment is after the last archived entry, or the archive does not have it."""


class BeforeWindow(Refused):
    """The moment is before the first archived entry."""


class ArchiveGap(Refused):
    """The archive lacks entries that the restore needs: the masters trimmed them before they were archived."""


class AmbiguousTimeline(Refused):
    """Several timelines fit the request, and none of them continues the other ones."""


class AmbiguousPoint(Refused):
    """Several restore points have this name."""


class NoBase(Refused):
    """No backup from which the archived entries lead to the moment."""


class EntryRefused(Refused):
    """An archived entry holds what no master accepts, so no master wrote it."""
