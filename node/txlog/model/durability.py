"""The durability levels that a client may wait for (protocol section 5), from weakest to strongest but for
``archived``, which is beside those of workers."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Durability(StrEnum):
    """What a write waits for before the master answers."""

    ACCEPTED = "accepted"
    """Durable on the master that answered."""
    QUORUM = "quorum"
    """Durable on more than half of all configured vote weight."""
    SYNCED = "synced"
    """Stable: durable on every member of the view, and in the log."""
    APPLIED = "applied"
    """Executed by one worker of this data centre."""
    APPLIED_ALL = "applied-all"
    """Executed by every worker of every reachable data centre."""
    ARCHIVED = "archived"
    """Stable, and in the archive of one data centre: the loss of every disk does not lose it. It says nothing of
    workers."""


WORKER_LEVELS: Final = (Durability.APPLIED, Durability.APPLIED_ALL)
"""The levels that need workers. A transaction that workers refuse does not reach them."""
