"""What may follow from an operator's order, and from nothing else (protocol section 3; rules 20, 27).

Whatever an order says, rightly or wrongly: one view has one log (``log.py``), nothing that somebody who stays holds is
lost (``acknowledgements.py``), and who was named is in again when it is back (``liveness.py``). Views beside each other
come of an order as they come of silence (``views.py``). Here: whom a view may let go by order, and who is enough then.
"""

from __future__ import annotations

from txlog.model.view import View
from txlog.wire.messages import Departure, ViewReport
from txlog_simulation.violation import LOG, ViolationLog


class OverrideChecker:
    """``excluded``: members, by node and birth, that operators let go with an order that was taken.
    ``bootstrap_members``: those that operators named to begin the cluster. ``weights``: of all configured masters;
    seeds with orders change none."""

    def __init__(self, findings: ViolationLog, weights: dict[str, int]) -> None:
        self.findings = findings
        self.weights = weights
        self.excluded: set[tuple[str, int]] = set()
        self.bootstrap_members: set[tuple[str, ...]] = set()

    @property
    def may_be_two_clusters(self) -> bool:
        """Two orders named others to begin the cluster: there may be two, for good
        (docs/how-to/add-remove-masters.md)."""
        return len(self.bootstrap_members) > 1

    def on_view_change(self, gone: list[Departure], reports: list[ViewReport], view: View, before: View | None) -> None:
        """A coordinator accepts the view that it has put together. ``before``: what it has grown from."""
        ordered = {(one.node, one.birth) for one in gone if one.why == "ordered"}
        if not ordered:
            return
        unnamed = sorted(node for node, birth in ordered if (node, birth) not in self.excluded)
        if unnamed:
            self._report("27", f"{view.number} lets {', '.join(unnamed)} go by order, and nobody gave one")
        if sorted(node for node, _ in ordered) != view.excluded_by_override:
            self._report("20", f"{view.number} keeps {view.excluded_by_override} of an order about {sorted(ordered)}")
        if before is None or not (before.majority or before.majority_before):
            return
        without = ordered | {(one.node, one.birth) for one in gone if one.why == "lost"}
        know = {r.node for r in reports if r.view is not None}
        if not self._is_majority(know, set(self.weights)) and not self._is_majority(
            know, {m.node for m in before.members if (m.node, m.birth) not in without}
        ):
            text = (
                f"{view.number}: {', '.join(sorted(know))} go on by order, and are not most of those that are unnamed"
            )
            self._report("20", text)

    def admits_without_majority(self, reports: list[ViewReport], view: View, before: View | None) -> bool:
        """Whether those that an order left over let others in, and have no majority themselves."""
        know = {r.node for r in reports if r.view is not None}
        by_order = before is not None and before.majority_before and before.diverged_index >= 0
        return (
            by_order and not self._is_majority(know, set(self.weights)) and bool({m.node for m in view.members} - know)
        )

    def _is_majority(self, there: set[str], among: set[str]) -> bool:
        return 2 * sum(self.weights[n] for n in there & among) > sum(self.weights[n] for n in among)

    def _report(self, rule: str, text: str) -> None:
        self.findings.add(LOG, rule, text)
