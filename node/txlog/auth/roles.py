"""What a client may do."""

from __future__ import annotations

from enum import IntEnum


class Role(IntEnum):
    """Each may do what the one before it may, and more."""

    READER = 1
    """Queries, and how the cluster is."""
    WRITER = 2
    """Transactions."""
    ADMIN = 3
    """Everything under ``/txlog``: the log itself, members, settings, duties."""

    @property
    def label(self) -> str:
        """As it stands in files."""
        return self.name.lower()
