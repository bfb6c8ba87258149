"""The errors of bulk loads, by name. Names are stable: commands and tests depend on them."""

from __future__ import annotations

from typing import ClassVar

from txlog.model.errors import BadInput, Refused, TxLogError


class BulkSyntax(BadInput):
    """Files that are no RDF, or hold what no worker may hold. The message has a line for each place."""

    @property
    def name(self) -> str:
        """The name that commands show."""
        return "Syntax"


class SourceChanged(BadInput):
    """A file has changed between its two readings."""


class BulkPartDamaged(TxLogError):
    """A part or the manifest of a load on a target is missing, or is not what was written."""

    status = 409

    @property
    def name(self) -> str:
        """The name that commands show."""
        return "PartDamaged"


class NotReady(Refused):
    """A master, pipeline or worker cannot take part in a load. The message names each of them with its reason."""

    status = 409
    reason: ClassVar[str] = "NotReady"


class UnknownKind(Refused):
    """A master or pipeline of an earlier version, which does not know bulk loads."""

    status = 409
    reason: ClassVar[str] = "UnknownKind"


class NoRoom(Refused):
    """The disk of a worker has too little room for a load."""

    status = 507
    reason: ClassVar[str] = "NoRoom"


class TooLate(Refused):
    """A load cannot be aborted any more: it was decided that it happens."""

    status = 409
    reason: ClassVar[str] = "TooLate"


class LoadAborted(Refused):
    """A load was aborted meanwhile, by another command."""

    status = 409
    reason: ClassVar[str] = "LoadAborted"


class BulkKeyForgotten(Refused):
    """It was decided so long ago that a load happens that its entry cannot be written under its key again."""

    status = 409
    reason: ClassVar[str] = "KeyForgotten"

    @property
    def name(self) -> str:
        """The name that commands show."""
        return "KeyForgotten"


class NoSuchLoad(Refused):
    """The target has no load of this id."""

    status = 404
    reason: ClassVar[str] = "NoSuchLoad"
