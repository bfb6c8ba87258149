"""The states of a master, as its HTTP API, its metrics and the operator show them."""

from __future__ import annotations

from enum import StrEnum


class MasterState(StrEnum):
    """One word for what a master does now. ``docs/reference/states-and-reasons.md`` says what each means."""

    AWAITING_BOOTSTRAP = "AwaitingBootstrap"
    """It was in a cluster and has lost its journal. It waits for a master that has the log, or for an operator's
    order."""
    FOUNDING = "Founding"
    """No cluster yet: the masters of the first view have not all accepted it."""
    LEARNING = "Learning"
    """It has no view and catches up with a cluster that exists."""
    STARTING = "Starting"
    """It asks its peers whether its journal is up to date, and votes for nothing yet."""
    DISK_FULL = "DiskFull"
    """Its disk has no room for transactions."""
    LEFT = "Left"
    """It has left its view, and its process ends."""
    REJOINING = "Rejoining"
    """The view is being changed, or the master has to rejoin a newer one."""
    SUSPECTED = "Suspected"
    """A member of the view is silent."""
    ISOLATED = "Isolated"
    """A configured master is out of the view because it was silent."""
    JOINED = "Joined"
    """All configured masters are in the view, and all are present."""
