"""The errors of rehearsals, by name. Names are stable: commands, alerts and tests depend on them."""

from __future__ import annotations

from txlog.model.errors import Refused


class RehearsalDiffers(Refused):
    """The restored store does not hold what the live worker held at the same place of the log."""


class NothingCompared(Refused):
    """Neither the live worker nor the restored store holds a graph, so nothing was proved."""


class RpoExceeded(Refused):
    """More would have been lost than ``maxRpo`` allows."""


class RtoExceeded(Refused):
    """The recovery took longer than ``maxRto`` allows."""


class NotArchivedInTime(Refused):
    """The archive did not come to the place of the live worker."""


class KeyForgotten(Refused):
    """The rehearsed cluster does not know an idempotency key that still counts."""


class NoScratchMaster(Refused):
    """The throw-away master does not become ready."""


class NoScratchStore(Refused):
    """No throw-away store of the cluster's engine can be started here."""
