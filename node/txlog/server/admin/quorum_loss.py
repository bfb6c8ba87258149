"""Removals of masters after which no view could decide about synchronous transactions any more. Pure."""

from __future__ import annotations

from collections.abc import Collection

from txlog.model.anchor import Anchor
from txlog.model.configuration import LEAVING, Configuration
from txlog.model.quorum import MAJORITY, compute_needs, count_votes, meets_needs


def find_quorum_loss(anchor: Anchor, members: Collection[str], now: Configuration, wanted: Configuration) -> str:
    """Why ``wanted`` removes the votes that later views need; empty where it does not. ``anchor``: of the quorate view
    at work; ``members``: of that view.

    Votes that are at work count until a view is decided by others. So the members that stay need a majority of them.
    A change of weights alone removes no member: it counts once a majority of both can decide."""
    stay = {master.node for master in wanted.masters if master.role != LEAVING}
    gone = [master.node for master in now.masters if master.role != LEAVING and master.node not in stay]
    needs, rest = compute_needs(MAJORITY, anchor.electorate), [node for node in members if node in stay]
    if not gone or meets_needs(needs, anchor.electorate, rest):
        return ""
    votes, voting = count_votes(anchor.electorate, rest), [m for m in anchor.electorate if m.weight]
    out = [master.node for master in voting if master.node not in members and master.node in stay]
    remedy = f"start {', '.join(out)}" if out else f"give {', '.join(gone)} no vote (txlog peer weight NODE 0)"
    return (
        f"without {', '.join(gone)} the view has {votes} of {needs.total} votes, and {needs.votes} are needed: graphs "
        f"with a quorum could never be written again. First {remedy}, and wait until txlog synchro shows the new votes"
    )
