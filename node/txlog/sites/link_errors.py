"""What a link cannot go on with until a person has changed something."""

from __future__ import annotations

from txlog.model.errors import TxLogError


class OtherLink(TxLogError):
    """The table, or the record in the log, is of another link: of other clusters, or of another kind of keys."""


class NamesDiffer(TxLogError):
    """The two sites do not list one another by the names that they call themselves."""


class KeysDiffer(TxLogError):
    """The two sites, or two data centres of one, do not decide conflicts on the same keys."""
