"""What a long work tells on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple


class BackupProgress(NamedTuple):
    """``phase``: a word or two for people. ``done`` of ``total`` quads, None where nobody knows; ``detail`` more."""

    phase: str
    done: int
    total: int | None = None
    detail: str = ""


ProgressCallback = Callable[[BackupProgress], None]


def no_progress(_: BackupProgress) -> None:
    """Nobody is told."""


def report_progress(phase: str, total: int | None, told: ProgressCallback, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The same pieces, and how many quads have passed."""
    done = 0
    for piece in pieces:
        yield piece
        done += piece.count(b"\n")
        told(BackupProgress(phase, done, total))
