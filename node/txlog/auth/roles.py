"""The roles of clients."""

from __future__ import annotations

from enum import IntEnum


class Role(IntEnum):
    """Each role includes the rights of the one before it."""

    READER = 1
    """Queries, and the state of the cluster."""
    WRITER = 2
    """Transactions."""
    ADMIN = 3
    """Everything under ``/txlog``: the log itself, members, settings, duties."""

    @property
    def label(self) -> str:
        """The name as used in files."""
        return self.name.lower()
