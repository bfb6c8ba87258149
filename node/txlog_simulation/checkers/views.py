"""Which views may stand beside each other, and what must have been done before they do (rules 20, 23, 24, 27)."""

from __future__ import annotations

from txlog.model.view import Number, View
from txlog_simulation.violation import LOG, WORKER, ViolationLog


class ViewChecker:
    """``accepted`` and ``installed``: by number, of every master whose disk was never lost."""

    def __init__(self, findings: ViolationLog) -> None:
        self.findings = findings
        self.accepted: dict[Number, View] = {}
        self.installed: dict[Number, View] = {}
        self.majority_diverged = False
        """An order has put two views of ``splitMode: Majority`` beside each other: one of them gives way."""

    def on_accepted(self, view: View) -> None:
        """It is durable at a master."""
        self.accepted.setdefault(view.number, view)

    def ancestors_of(self, view: View) -> list[Number]:
        """All views that it descends from, oldest first: also those that it does not list any more."""
        first = self.accepted.get(view.lineage_start)
        if first is None:
            return view.ancestors
        return [*self.ancestors_of(first), *view.ancestors[view.ancestors.index(view.lineage_start) :]]

    def lineage_of(self, view: View) -> list[Number]:
        """The same, and itself."""
        return [*self.ancestors_of(view), view.number]

    def on_installed(self, node: str, view: View, *, torn: bool = False) -> None:
        """Two views, neither of which has grown from the other: only silence makes such, and never ``Majority``; or an
        operator's order. ``torn``: two orders named others to begin the cluster, so there are two."""
        if view.number in self.installed:
            return
        self.installed[view.number] = view
        mine = self.lineage_of(view)
        for other in self.installed.values():
            if other.number in mine or view.number in self.ancestors_of(other):
                continue
            if torn and view.cluster_id != other.cluster_id:
                continue
            ordered = self._parted_by_override(view, other) or self._parted_by_override(other, view)
            if ordered:
                self.majority_diverged = self.majority_diverged or view.majority or other.majority
            elif self._was_majority(view, other):
                self._report("20", f"{node} installs {view.number}, {other.number} stands beside it")
            elif not self._parted_by_silence(view, other) and not self._parted_by_silence(other, view):
                self._report("27", f"{node} installs {view.number} beside {other.number}, and nobody was silent")

    def _was_majority(self, view: View, other: View) -> bool:
        """Whether the view where the two parted had ``splitMode: Majority``, and was installed."""
        parted = max({*self.ancestors_of(view)} & {*self.ancestors_of(other)}, default=None)
        before = self.installed.get(parted) if parted is not None else None
        return before is not None and before.majority

    def _parted_by_silence(self, view: View, other: View) -> bool:
        """Whether somebody was out because nobody heard it, on the way to ``view`` from where the two parted."""
        return any(one is None or one.silent_members for one in self._views_since_fork(view, other))

    def _parted_by_override(self, view: View, other: View) -> bool:
        """Whether an operator let somebody go on the way to ``view`` from where the two parted."""
        return any(one is not None and one.excluded_by_override for one in self._views_since_fork(view, other))

    def _views_since_fork(self, view: View, other: View) -> list[View | None]:
        shared = set(self.lineage_of(other))
        return [self.accepted.get(number) for number in self.lineage_of(view) if number not in shared]

    def on_split(self, before: View, after: View, backups: bool) -> None:
        """A member that is silent is left behind. ``backups``: a worker of those who go on has a split backup."""
        binding = before.majority or before.majority_before
        if not binding and before.strategy != "None" and not backups:
            text = f"{after.number} goes on without {', '.join(after.silent_members)}, and no worker has a backup"
            self.findings.add(WORKER, "23", text)

    def forget_all_but(self, known: set[Number], begun: set[Number]) -> None:
        """A disk is lost, and with it the views that nobody else has accepted or grown from, and a founding that nobody
        else has begun with: those who only agreed to it may found once more."""
        self.accepted = {number: view for number, view in self.accepted.items() if number in known}
        self.installed = {
            number: view
            for number, view in self.installed.items()
            if number in known and (view.ancestors or number in begun)
        }

    def _report(self, rule: str, text: str) -> None:
        self.findings.add(LOG, rule, text)
