"""Fronts that MessagePack reads into a type. A room of their own: compiled classes lose the annotations it needs."""

from __future__ import annotations

import msgspec

from txlog.model.entry import Span
from txlog.model.view import View


class AppendedPrologue(msgspec.Struct, array_like=True):
    """On disk."""

    spans: list[Span]
    hashes: bytes
    stable: int


class RestampedPrologue(msgspec.Struct, array_like=True):
    """On disk. ``stamps``: u64 each, end to end."""

    node: str
    birth: int
    first_seq: int
    stamps: bytes


class ViewAcceptedPrologue(msgspec.Struct, array_like=True):
    """On disk. ``cut`` and the number of the change stand in the record's head."""

    view: View
    spans: list[Span]
    hashes: bytes
    stamped: list[RestampedPrologue]
