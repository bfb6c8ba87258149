"""Detects whether files have changed since they were read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

FileFingerprint = tuple[tuple[int, int, int] | None, ...]


def fingerprint_files(files: Iterable[Path | None]) -> FileFingerprint:
    """A value that changes when one of the files does, also when a link to it is switched to another one (as Kubernetes
    does it). A missing file is a value, too."""
    marks: list[tuple[int, int, int] | None] = []
    for file in files:
        try:
            found = file.stat() if file is not None else None
        except OSError:
            found = None
        marks.append(found and (found.st_mtime_ns, found.st_ino, found.st_size))
    return tuple(marks)
