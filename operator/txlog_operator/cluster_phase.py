"""Derives the phase of a data centre's masters from an observation. Known and unknown facts lead to different
phases."""

from __future__ import annotations

from enum import StrEnum

from txlog_operator.observation import ClusterObservation


class ClusterPhase(StrEnum):
    """The phase of a data centre, as far as its reachable masters know it."""

    UNKNOWN = "Unseen"
    """No master of this data centre answered. They may work well and be unreachable from the operator."""
    FOUNDING = "Founding"
    """All reachable masters wait for the bootstrap, which needs every master of every data centre once."""
    AWAITING_BOOTSTRAP = "AwaitingBootstrap"
    """A master lost its journal. It waits for a master that has the log, or for an operator's order."""
    JOINED = "Joined"
    """Every master of this data centre answered, is ``Joined``, and reports no master outside its view."""
    INCOMPLETE = "Incomplete"
    """All masters are ``Joined``, in a view that a master has left or was proved down in. They wait for no master."""
    JOINED_UNCERTAIN = "JoinedUncertain"
    """All reachable masters are ``Joined``, but one of this data centre did not answer and may be suspected soon."""
    SUSPECTED = "Suspected"
    """A reachable master waits for a silent member. It is not known to be split off: it may be slow or down."""
    SPLIT = "Split"
    """A reachable master works without a member that was silent: two orders may exist from now on."""
    REJOINING = "Rejoining"
    """No reachable master knows of a split any more; the masters agree on the next view."""
    CATCHING_UP = "CatchingUp"
    """A master fetches the log, repairs its journal, or has just started; no member is suspected or split off."""
    DEGRADED = "Troubled"
    """A master cannot accept writes for a reason of its own: its disk is full."""


_PHASE_BY_STATE = (
    ("Isolated", ClusterPhase.SPLIT),
    ("Suspected", ClusterPhase.SUSPECTED),
    ("Rejoining", ClusterPhase.REJOINING),
    ("DiskFull", ClusterPhase.DEGRADED),
    ("AwaitingBootstrap", ClusterPhase.AWAITING_BOOTSTRAP),
    ("Damaged", ClusterPhase.CATCHING_UP),
    ("Learning", ClusterPhase.CATCHING_UP),
    ("Starting", ClusterPhase.CATCHING_UP),
    ("Left", ClusterPhase.CATCHING_UP),
)
CALM_PHASES = (ClusterPhase.JOINED, ClusterPhase.INCOMPLETE)
"""In these phases every master of this data centre answered, so the newest configuration is known, and none waits."""
DIVERGED_PHASES = (ClusterPhase.SUSPECTED, ClusterPhase.SPLIT, ClusterPhase.REJOINING)
"""In these phases the operator disrupts nothing and does not change the split recovery."""


def cluster_phase_of(seen: ClusterObservation) -> ClusterPhase:
    """The worst state that any master reports decides. Nothing is assumed of masters that do not answer."""
    reachable = seen.reachable_masters
    states = {each.status.state for each in reachable.values()}
    if not reachable:
        return ClusterPhase.UNKNOWN
    for state, situation in _PHASE_BY_STATE:
        if state in states:
            return situation
    if "Founding" in states:
        return ClusterPhase.FOUNDING
    if len(reachable) < len(seen.masters):
        return ClusterPhase.JOINED_UNCERTAIN
    out = any(each.status.view.out for each in reachable.values())
    return ClusterPhase.INCOMPLETE if out else ClusterPhase.JOINED
