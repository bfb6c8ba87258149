"""What an archiver reports to the masters of its data centre, and masters to one another: ``POST /txlog/archive``."""

from __future__ import annotations

from typing import Final

import msgspec

PLACES_REPORTED_MAX: Final = 16
"""Places of one kind in a report."""


class ArchivePlace(msgspec.Struct, frozen=True):
    """A place of the log. ``hash``: the chain hash there, as 32 hexadecimal digits."""

    index: int
    hash: str


class ArchiveReport(msgspec.Struct, frozen=True, rename="camel"):
    """What an archiver reports of its stream: where its files end, by branch of the log (``archived``), and up to where
    they were read back and proved (``verified``), the newest last. ``state``: ``Shipping``, ``Unreachable``, ``Full``,
    ``Denied``, ``Refused`` or ``Waiting``. ``files``, ``bytes`` and ``errors`` count since its start, ``gaps`` and
    ``losses`` are those that the stream has."""

    archived: list[ArchivePlace]
    verified: list[ArchivePlace] = []
    state: str = "Shipping"
    error: str = ""
    stream: str = ""
    files: int = 0
    bytes: int = 0
    errors: int = 0
    gaps: int = 0
    losses: int = 0
