"""From which index on the archive of a data centre has files that moments of its recovery window need."""

from __future__ import annotations

from typing import Final

from txlog.backup.checked_json import decode_checked
from txlog.backup.target import BackupTarget

ARCHIVE_ROOT: Final = "_archive"
"""No backup has a name like this, so no listing of backups finds the archive."""
RECORD_BYTES_MAX: Final = 1 << 16


def read_archive_floor(target: BackupTarget, cluster: str, data_center: str) -> int:
    """The index after which the files of the stream on this target begin (:class:`txlog.archive.stream.Stream`); 0
    before any was deleted. Backups below it lead to no moment any more. Raises the errors of the target."""
    floor = 0
    for each in target.list_nested(f"{ARCHIVE_ROOT}/{cluster}/{data_center}/begin"):
        fields = decode_checked(target.read(each.key, RECORD_BYTES_MAX)) if each.key.endswith(".json") else None
        found = fields.get("floor") if fields is not None else None
        if isinstance(found, int):
            floor = max(floor, found)
    return floor
