"""What an observation means for a data centre's masters: one word. What is known is kept apart from what is not."""

from __future__ import annotations

from enum import StrEnum

from txlog_operator.observation import ClusterObservation


class ClusterPhase(StrEnum):
    UNKNOWN = "Unseen"
    """No master of this data centre answered. Nothing is known: they may work well, and not be reached from here."""
    FOUNDING = "Founding"
    """All who answer wait for the cluster to be founded, which needs every master of every data centre once."""
    JOINED = "Joined"
    """Every master of this data centre answered, is Joined, and knows of nobody who is out of its view."""
    INCOMPLETE = "Incomplete"
    """All who answer are Joined, in a view that somebody has left, or was proved down: nobody is waited for."""
    JOINED_UNCERTAIN = "JoinedUncertain"
    """All who answer are Joined, but a master of this data centre did not answer: it may be suspected soon."""
    SUSPECTED = "Suspected"
    """Somebody who answers waits for a silent member. That it is apart is not known: it may be slow, or down."""
    SPLIT = "Split"
    """Somebody who answers works without a member that was silent: two orders may exist from now on."""
    REJOINING = "Rejoining"
    """Nobody is apart any more as far as those know who answer; the next view is being agreed on."""
    CATCHING_UP = "CatchingUp"
    """Somebody fetches the log or mends its journal, or has just started; nobody is suspected or apart."""
    DEGRADED = "Troubled"
    """Somebody cannot take work for a reason of its own: its disk is full."""


_PHASE_BY_STATE = (
    ("Isolated", ClusterPhase.SPLIT),
    ("Suspected", ClusterPhase.SUSPECTED),
    ("Rejoining", ClusterPhase.REJOINING),
    ("DiskFull", ClusterPhase.DEGRADED),
    ("Damaged", ClusterPhase.CATCHING_UP),
    ("Learning", ClusterPhase.CATCHING_UP),
    ("Starting", ClusterPhase.CATCHING_UP),
    ("Left", ClusterPhase.CATCHING_UP),
)
DIVERGED_PHASES = (ClusterPhase.SUSPECTED, ClusterPhase.SPLIT, ClusterPhase.REJOINING)
"""While one of these holds, nothing is disturbed, and how splits are recovered from stays as it is."""


def cluster_phase_of(seen: ClusterObservation) -> ClusterPhase:
    """The worst that somebody tells counts; those who do not answer are not guessed at."""
    heard = seen.reachable_masters
    states = {each.status.state for each in heard.values()}
    if not heard:
        return ClusterPhase.UNKNOWN
    for state, situation in _PHASE_BY_STATE:
        if state in states:
            return situation
    if "Founding" in states:
        return ClusterPhase.FOUNDING
    if len(heard) < len(seen.masters):
        return ClusterPhase.JOINED_UNCERTAIN
    out = any(each.status.view.out for each in heard.values())
    return ClusterPhase.INCOMPLETE if out else ClusterPhase.JOINED
