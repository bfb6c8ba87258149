"""Which rare situations of synchronous transactions a run has met: for coverage only, nothing is judged here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from txlog.model.anchor import Anchor
from txlog.model.synchronous_entry import Decision, DecisionKind
from txlog.model.view import Number, View
from txlog.protocol.core import Core
from txlog.protocol.views.anchors import Candidate
from txlog.wire.messages import ViewReport


class SynchronousCoverage:
    """``rejoins``: views that joined several branches."""

    def __init__(self, met: Counter[str]) -> None:
        self._met = met
        self.rejoins: set[Number] = set()

    def on_view(self, view: View, reports: Iterable[ViewReport], *, joins_branches: bool) -> None:
        """A coordinator accepts the view that follows from the reports."""
        if joins_branches:
            self.rejoins.add(view.number)
        anchors = [one.view.anchor for one in reports if one.view is not None and one.view.anchor is not None]
        if not anchors or not view.is_quorate:
            return
        before, after = max(anchors, key=lambda anchor: anchor.number), view.anchor
        assert after is not None
        if after.electorate != before.electorate:
            self._met["electorate changed"] += 1
        if _births_that_do_not_count(before, view):
            self._met["fresh birth in a quorate view"] += 1

    def on_decision(self, core: Core, decision: Decision) -> None:
        """A master writes a decision; its log does not have it yet."""
        view, log = core.view, core.log_state
        if decision.verdict is not DecisionKind.COMMIT or view is None or view.anchor is None or log is None:
            return
        known = view.anchor.known_seqs()
        found = [one for txid in decision.names() if (one := log.synchronous.limbo.open.get(txid)) is not None]
        if view.number in self.rejoins and any(one.txid.seq <= known.get(one.txid.origin, 0) for one in found):
            self._met["commit after a rejoin"] += 1
        if any(Candidate(one.stamp, one.txid, one.key.timeout_ms).is_late(log.last_stamp) for one in found):
            self._met["late, and committed"] += 1


def _births_that_do_not_count(before: Anchor, view: View) -> list[str]:
    """Members whose journals are newer than the anchor's voters (rule S4)."""
    return [member.node for member in view.members if (member.node, member.birth) not in before.voters]
