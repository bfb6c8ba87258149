"""What a long work tells on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple


class Progress(NamedTuple):
    """``phase``: a word or two for people. ``done`` of ``total`` quads, None where nobody knows; ``said`` more."""

    phase: str
    done: int
    total: int | None = None
    said: str = ""


Told = Callable[[Progress], None]


def nobody(_: Progress) -> None:
    """Nobody is told."""


def counted(phase: str, total: int | None, told: Told, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The same pieces, and how many quads have passed."""
    done = 0
    for piece in pieces:
        yield piece
        done += piece.count(b"\n")
        told(Progress(phase, done, total))
