"""Progress reports of long operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple


class BackupProgress(NamedTuple):
    """``phase``: a word or two for people. ``done`` of ``total`` quads, None if unknown; ``detail``: more text."""

    phase: str
    done: int
    total: int | None = None
    detail: str = ""


ProgressCallback = Callable[[BackupProgress], None]


def no_progress(_: BackupProgress) -> None:
    """Ignores the report."""


def report_progress(
    phase: str, total: int | None, on_progress: ProgressCallback, pieces: Iterator[bytes]
) -> Iterator[bytes]:
    """Passes the pieces on and reports the number of quads so far."""
    done = 0
    for piece in pieces:
        yield piece
        done += piece.count(b"\n")
        on_progress(BackupProgress(phase, done, total))
