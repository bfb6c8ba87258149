"""Fronts that MessagePack reads into a type. A room of their own: compiled classes lose the annotations it needs."""

from __future__ import annotations

import msgspec

from txlog.model.entry import Span


class AddedFront(msgspec.Struct, array_like=True):
    """On disk."""

    spans: list[Span]
    hashes: bytes
    stable: int
