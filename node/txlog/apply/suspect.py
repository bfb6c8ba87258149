"""Recognises a transaction that a worker does not survive: its process ends, or it never answers (decision 51).

One failure proves nothing: a host restarts, a disk hangs, memory runs out. So a transaction is judged only after it
was sent alone, and only while the worker stays right before it. The judgement is a pure function of what was seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

ENDED_MIN: Final = 3
"""Requests, one after the other, at which the worker closed the connection without an answer, unless a manifest says
another number (``closedConnections``) ..."""
ENDED_ALONE_MIN: Final = 2
"""... and how many of them held the transaction alone."""
STALLED_MIN: Final = 2
"""Requests without an answer in time. The store was restarted between them, where TxLog can do that. The last one held
the transaction alone."""
RETRY_S: Final = 120.0
"""Seconds for which a judged transaction is not sent to the worker. Then it is sent once more: perhaps the worker has
more memory now, and others have executed the transaction, so that it is never skipped."""
ANNOUNCE_S: Final = 10.0
"""Seconds before that, in which the report says that the transaction may be executed again: longer than a master takes
to hear of it, so that no skip is decided while it runs."""
TRIAL_S: Final = 30.0
"""Seconds after a failure in which the others wait for this worker's verdict: it is back sooner, or away for long."""
SUSPECTED: Final = "suspected"
ABANDONED_S: Final = 45.0
"""Seconds after which a process believes that the request of another process is over: as for a worker's lock."""


class Fault(StrEnum):
    """What a worker does instead of an answer. The values are words of a report."""

    ENDED = "ended"
    """It closes the connection, as a process does that ends."""
    STALLED = "stalled"
    """It does not answer in time."""


class Suspect(NamedTuple):
    """The entries of the requests that failed while the worker stayed at index ``after``. ``txid``: of the transaction
    that the last request held alone; "" for several. The numbers count requests; ``alone`` those with ``txid`` alone.
    Times are seconds of the machine's monotonic clock. ``running_since``: of the last request, while it may still be
    executed; 0 otherwise. ``judged_at``: of the last failure, whether or not there was enough evidence.
    ``ended_min``: as :data:`ENDED_MIN`.

    Of an entry with several transactions, prefixes are tried and rolled back. ``searched``: how many they are; 0:
    nothing is searched. ``survived``: of the longest prefix that was answered. ``fatal``: of the shortest one that was
    not."""

    after: int
    last: int
    txid: str = ""
    ended: int = 0
    stalled: int = 0
    ended_alone: int = 0
    stalled_alone: int = 0
    running_since: float = 0.0
    judged_at: float = 0.0
    ended_min: int = ENDED_MIN
    searched: int = 0
    survived: int = 0
    fatal: int = 0

    @property
    def verdict(self) -> Fault | None:
        """The fault of the transaction ``txid``, once there is enough evidence."""
        if self.ended >= self.ended_min and self.ended_alone >= ENDED_ALONE_MIN:
            return Fault.ENDED
        if self.stalled >= STALLED_MIN and self.stalled_alone:
            return Fault.STALLED
        return None

    def is_held(self, now: float) -> bool:
        """Whether the transaction must not be sent to this worker now."""
        return self.verdict is not None and now < self.judged_at + RETRY_S

    def reported_fault(self, now: float) -> str | None:
        """The word of a report: the verdict, or ``suspected`` while the transaction may be sent to the worker soon."""
        age_s = now - self.judged_at
        if self.running_since:
            return Fault.STALLED
        if self.verdict is not None and age_s < RETRY_S - ANNOUNCE_S:
            return self.verdict
        return SUSPECTED if self.verdict is not None or age_s < TRIAL_S else None


def find_trial(suspect: Suspect | None, count: int) -> int | None:
    """How many of the ``count`` transactions of an entry are tried next; None: the entry is sent as it is. First the
    shortest prefix that fails is found. Then it is tried again until there is enough evidence against its last one."""
    if suspect is None or not suspect.searched or suspect.searched != count or suspect.verdict is not None:
        return None
    if suspect.fatal - suspect.survived > 1:
        return (suspect.survived + suspect.fatal) // 2
    return suspect.fatal


def add_survival(suspect: Suspect, prefix: int) -> Suspect:
    """What is known after the worker answered a trial. One that failed before and is answered now proves that something
    else was the cause, so the search is over."""
    if prefix >= suspect.fatal:
        return suspect._replace(txid="", ended_alone=0, stalled_alone=0, searched=0, survived=0, fatal=0)
    return suspect._replace(survived=max(suspect.survived, prefix))


def add_prefix_failure(
    known: Suspect | None,
    after: int,
    last: int,
    txids: Sequence[str],
    prefix: int,
    fault: Fault,
    now: float,
    ended_min: int = ENDED_MIN,
) -> Suspect:
    """As :func:`add_failure`, of a request with the first ``prefix`` transactions of the entry ``last``, which has
    ``txids``. It counts for one alone once the worker has survived all that precede it."""
    is_same = known is not None and known.searched == len(txids) and known.after <= after < known.last
    survived, fatal = (known.survived, min(known.fatal, prefix)) if known is not None and is_same else (0, prefix)
    txid = txids[fatal - 1] if fatal - survived == 1 else ""
    found = add_failure(known, after, last, txid, fault, now, ended_min)
    return found._replace(searched=len(txids), survived=survived, fatal=fatal)


def add_failure(
    known: Suspect | None, after: int, last: int, txid: str, fault: Fault, now: float, ended_min: int = ENDED_MIN
) -> Suspect:
    """What is known after one more request failed: with the entries from ``after`` + 1 to ``last``, ``txid`` when it
    was one transaction, at ``now``. ``ended_min``: how many closed connections count as evidence."""
    found = known if known is not None and known.after <= after < known.last else Suspect(after, last)
    if txid != found.txid:
        found = found._replace(ended_alone=0, stalled_alone=0)
    ended, alone = int(fault is Fault.ENDED), int(bool(txid))
    return found._replace(
        after=after,
        last=last if txid else max(last, found.last),
        txid=txid,
        ended=found.ended + ended,
        stalled=found.stalled + (1 - ended),
        ended_alone=found.ended_alone + ended * alone,
        stalled_alone=found.stalled_alone + (1 - ended) * alone,
        running_since=0.0 if ended else now,
        judged_at=now,
        ended_min=ended_min,
    )
