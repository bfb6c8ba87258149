"""The errors of a recovery from an archive, by name. Names are stable: commands, operators and tests depend on them."""

from __future__ import annotations

from txlog.model.errors import Refused


class AlreadyRecovered(Refused):
    """Another cluster has taken the place of the lost one from this stream."""


class StillThere(Refused):
    """A configured master has a journal: not everything is lost."""


class KeysUnknown(Refused):
    """The archive lacks entries that are younger than ``keyRetention``, so a retry could be executed twice."""


class NothingArchived(Refused):
    """The archive has no entry at or before the moment."""


class OtherFounder(Refused):
    """This folder has begun a recovery with other options."""


class JournalInUse(Refused):
    """A process works in the journal that is to be rescued from."""


class NoSurvivor(Refused):
    """The folder holds no journal of a master that was in a cluster."""

    status = 404


class NotASuccessor(Refused):
    """The cluster has taken no other one's place, as far as the target knows, or the place of another cluster."""


class KeysUncertain(Refused):
    """It cannot be known which transactions were given again already, so none is."""
