"""An object on a target: below the interface of targets and those that implement it."""

from __future__ import annotations

from typing import NamedTuple


class StoredObject(NamedTuple):
    """``modified`` in seconds since 1970, by the target's clock."""

    key: str
    bytes: int
    modified: float
