"""Fronts that MessagePack decodes into a type. A module of their own: compiled classes lose the annotations it
needs."""

from __future__ import annotations

import msgspec

from txlog.model.entry import Span
from txlog.model.view import View


class AppendedPrologue(msgspec.Struct, array_like=True):
    """On disk: the front of an Added record."""

    spans: list[Span]
    hashes: bytes
    stable: int


class RestampedPrologue(msgspec.Struct, array_like=True):
    """On disk. ``stamps``: u64 each, concatenated."""

    node: str
    birth: int
    first_seq: int
    stamps: bytes


class ViewAcceptedPrologue(msgspec.Struct, array_like=True):
    """On disk. The record's head contains ``cut`` and the number of the change."""

    view: View
    spans: list[Span]
    hashes: bytes
    stamped: list[RestampedPrologue]
