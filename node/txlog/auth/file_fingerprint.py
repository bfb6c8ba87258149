"""Whether files have changed since they were read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

FileFingerprint = tuple[tuple[int, int, int] | None, ...]


def fingerprint_files(files: Iterable[Path | None]) -> FileFingerprint:
    """What changes when one of them does, also when a link to it is turned to another one (as Kubernetes does it). A
    file that is not there has none."""
    marks: list[tuple[int, int, int] | None] = []
    for file in files:
        try:
            found = file.stat() if file is not None else None
        except OSError:
            found = None
        marks.append(found and (found.st_mtime_ns, found.st_ino, found.st_size))
    return tuple(marks)
