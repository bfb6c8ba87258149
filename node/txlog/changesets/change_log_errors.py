"""Why a change log cannot be used."""

from __future__ import annotations

from txlog.model.errors import Refused, TxLogError


class ChangeLogDamaged(TxLogError):
    """A record of a change log is bad, and it is no torn tail. The message names the file and the offset."""


class UnknownChangeLog(TxLogError):
    """A file of another format or version: a newer TxLog wrote it, or it is none of TxLog's."""


class ChangesGone(Refused):
    """The change log begins above the position that was asked for."""

    status = 410


class CaptureStoreInUse(Refused):
    """Another process has the folder of the capture store open."""


class ChangeNotKept(TxLogError):
    """The way back leads over an entry of which the change was too large to be kept: the store is made again."""
