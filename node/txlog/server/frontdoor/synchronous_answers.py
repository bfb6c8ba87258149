"""What a client is answered about its synchronous write. Pure.

RDF4J's client takes each status below 300 for done, wherever it expects no content. So 202 goes only to a client that
shows that it knows it; any other one gets 504, which it raises as an error whose outcome is unknown.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from txlog.model.durability import Durability
from txlog.protocol.views.decisions import SynchronousAnswer

UNDECIDED: Final = "Undecided"
ROLLED_BACK: Final = "RolledBack"


class SynchronousReply(NamedTuple):
    """``reason``: for ``TxLog-Error``, empty for none. ``answer``: for ``TxLog-Synchronous``. ``has_location``: whether
    the reply names where to ask again."""

    status: int
    reason: str
    answer: SynchronousAnswer
    has_location: bool
    text: str


_TEXTS: Final = {
    SynchronousAnswer.COMMITTED: "",
    SynchronousAnswer.PENDING: "its quorum is not known to hold it; it may still take effect, or be rolled back",
    SynchronousAnswer.ROLLED_BACK: "no quorum held it in time; nothing of it took effect; its key is free again",
}
_REPLIES: Final[dict[tuple[SynchronousAnswer, bool], tuple[int, str]]] = {
    (SynchronousAnswer.COMMITTED, True): (204, ""),
    (SynchronousAnswer.COMMITTED, False): (204, ""),
    (SynchronousAnswer.PENDING, True): (202, ""),
    (SynchronousAnswer.PENDING, False): (504, UNDECIDED),
    (SynchronousAnswer.ROLLED_BACK, True): (409, ROLLED_BACK),
    (SynchronousAnswer.ROLLED_BACK, False): (409, ROLLED_BACK),
}
"""By what is known, and by whether the client shows that it knows 202."""


def find_reply(known: SynchronousAnswer, level: Durability, *, knows_pending: bool) -> SynchronousReply:
    """The reply to a write. ``known``: what may be answered at ``level`` now. A client that asked for ``accepted`` does
    not wait: it is never answered that its transaction takes effect."""
    if level is Durability.ACCEPTED and known is SynchronousAnswer.COMMITTED:
        known = SynchronousAnswer.PENDING
    status, reason = _REPLIES[known, knows_pending]
    return SynchronousReply(status, reason, known, known is SynchronousAnswer.PENDING, _TEXTS[known])
