"""How a view must be closed, word for word (protocol sections 3, 4; rules 25, 26), beside what a coordinator computed.

Works on whole logs, as the masters made them durable, with nothing clever; ``tests/protocol/test_closing.py`` holds the
shipped code against the small model in the same way, on drawn reports. Here the reports are those of real changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from txlog.model.hashes import HASH_BYTES
from txlog.model.ids import Origin
from txlog.model.view import NO_VIEW, Number, View
from txlog.protocol.views.next_view import NextView
from txlog.wire.messages import QueuedTransactions, ViewReport
from txlog_simulation.checkers.log import LogChecker
from txlog_simulation.violation import LOG, ViolationLog


class OrderedTransaction(NamedTuple):
    """In key order."""

    stamp: int
    origin: Origin
    seq: int


OriginSeq = tuple[Origin, int]


class MemberReport(NamedTuple):
    """What one member has: its log as far as all of it is known, what else it holds in its view, what it parked."""

    node: str
    view: View | None
    log: list[OrderedTransaction]
    queue: list[OrderedTransaction]
    parked: list[OrderedTransaction]
    origin: Origin
    installed: bool
    settled: int


def check_next_view(
    findings: ViolationLog,
    log: LogChecker,
    closed: NextView,
    reports: list[ViewReport],
    weights: dict[str, int],
    majority: bool,
    met: Counter[str],
) -> None:
    """Who wins, the base and the new queue, as they follow from these reports. ``met``: counts the branches that would
    have lost by votes, and won by their decisions (rule S12)."""
    masters: list[MemberReport] = []
    for report in reports:
        one = _member_report(report, log)
        if one is None:
            return  # its log is not durable yet
        masters.append(one)
    number = closed.view.number
    forgotten = [r.node for r in reports if r.view is not None and r.view.number < closed.view.lineage_start]
    if forgotten:
        findings.add(LOG, "21", f"{number} does not list the views that {', '.join(forgotten)} report")
    with_views, here = [m for m in masters if m.view is not None], {r.node for r in reports}
    model = _NextViewModel(with_views, here, weights, majority, log.transactions.is_decision)
    if model.order[0] != closed.branches[0] or set(model.order) != set(closed.branches):
        findings.add(LOG, "25", f"{number} grows from {closed.branches}, these reports mean {model.order}")
        return
    if len(model.reports_by_view) > 1 and any(m.view is not None and m.view.anchor is not None for m in with_views):
        by_votes = _NextViewModel(with_views, here, weights, majority, lambda origin, seq: False)
        met["won by decisions"] += by_votes.order[0] != model.order[0]
    base = model.base()
    found = [t[1:] for t in base[: closed.truncate_to]]
    rows = iter(closed.stamps)
    mine = [
        OrderedTransaction(next(rows), Origin(s.node, s.birth), s.first_seq + i)
        for s in closed.spans
        for i in range(s.count)
    ]
    if len(found) != closed.truncate_to or base[closed.truncate_to :] != mine:
        findings.add(
            LOG, "26", f"{number} has another base behind {closed.truncate_to} than follows from these reports"
        )
        return
    waiting: list[OrderedTransaction] = []
    for w in closed.waiting:
        waiting += [
            OrderedTransaction(stamp, Origin(w.node, w.birth), w.first_seq + i) for i, stamp in enumerate(w.stamps)
        ]
    if [t[1:] for t in sorted(waiting)] != model.waiting(masters, base):
        findings.add(LOG, "26", f"{number} has another queue than follows from these reports")


def _is_ancestor(number: Number, view: View) -> bool:
    """What nobody can report any more is not listed, and has been agreed to by everybody."""
    return number in view.ancestors or number < view.lineage_start


def _member_report(report: ViewReport, log: LogChecker) -> MemberReport | None:
    origin = Origin(report.node, report.birth)
    if report.view is None:
        return MemberReport(
            report.node,
            None,
            [],
            _ordered_transactions(report.pending),
            _ordered_transactions(report.parked),
            origin,
            False,
            0,
        )
    branch = log.branches.get(report.view.number)
    entries = branch.entries[: report.log.index] if branch is not None else []
    if len(entries) < report.log.index:
        return None
    mine = [OrderedTransaction(e.stamp, e.txid.origin, e.txid.seq) for e in entries]
    names = {t[1:] for t in mine}
    queue = [t for t in _ordered_transactions(report.pending) if t[1:] not in names]
    settled = report.view.final_index(report.stable, report.installed)
    return MemberReport(
        report.node, report.view, mine, queue, _ordered_transactions(report.parked), origin, report.installed, settled
    )


def _ordered_transactions(pieces: list[QueuedTransactions]) -> list[OrderedTransaction]:
    assert all(len(p.contents) == HASH_BYTES * len(p.stamps) for p in pieces)
    return [OrderedTransaction(stamp, p.origin, p.first_seq + i) for p in pieces for i, stamp in enumerate(p.stamps)]


class _NextViewModel:
    """``order``: the branches, the winner first. ``complete_count``: how many of them have what is settled in the
    others."""

    def __init__(
        self,
        masters: list[MemberReport],
        here: set[str],
        weights: dict[str, int],
        majority: bool,
        is_decision: Callable[[Origin, int], bool],
    ) -> None:
        self.is_decision = is_decision
        self.reports_by_view: dict[Number, list[MemberReport]] = {}
        self.view: dict[Number, View] = {}
        for one in masters:
            if one.view is not None:
                self.reports_by_view.setdefault(one.view.number, []).append(one)
                self.view[one.view.number] = one.view
        self.present_nodes = here
        self.weights = weights
        self.places = {node: place for place, node in enumerate(weights)}
        self.log = {n: max((m.log for m in several), key=len) for n, several in self.reports_by_view.items()}
        self.nodes = {n: {m.node for m in several} for n, several in self.reports_by_view.items()}
        self.leaves = [
            n for n in self.reports_by_view if not any(self._is_superseded_by(n, z) for z in self.reports_by_view)
        ]
        if majority:
            # what an order has put beside another gives way to what had its majority, or had it for longer
            ends = [
                n for n in self.reports_by_view if not any(_is_ancestor(n, self.view[z]) for z in self.reports_by_view)
            ]
            majorities = [n for n in ends if not self._is_forced(n)]
            self.order = [max(majorities) if majorities else max(ends, key=lambda n: (self._diverged_at(n), n))]
            self.complete_count = 1
        else:
            forks = [n for n in self.leaves if not self._is_lagger(n)]
            self.order = sorted(
                forks,
                key=lambda n: (
                    self._has_all_final(n, forks),
                    self._leads(n, [z for z in forks if z != n]),
                    self._weight(n, forks),
                ),
                reverse=True,
            )
            self.complete_count = sum(self._has_all_final(n, forks) for n in forks)

    def _members(self, number: Number) -> set[str]:
        return {m.node for m in self.view[number].members}

    def _is_forced(self, n: Number) -> bool:
        """An order is in its line, and not everybody has been in since."""
        view = self.view[n]
        whole = view.diverged_index == -1 or (
            view.diverged_index < -1 and any(one.installed for one in self.reports_by_view[n])
        )
        return view.majority_before and not whole

    def _diverged_at(self, n: Number) -> int:
        """Where the log of an order's line began to be no majority's; a view that was to heal it has -2 - x."""
        at = self.view[n].diverged_index
        return at if at >= 0 else -2 - at

    def _is_superseded_by(self, n: Number, z: Number) -> bool:
        """``z`` has grown from it; or it never came about: nobody installed it, and one of those whose accept it needed
        has gone on from where it began, by a later number."""
        mine, other = self.view[n], self.view[z]
        if _is_ancestor(n, other):
            return True
        needed = {m.origin for m in mine.members}
        gone_on = z > n and any(one.origin in needed for one in self.reports_by_view[z])
        idle = not any(one.installed for one in self.reports_by_view[n])
        return gone_on and idle and bool(mine.ancestors) and _is_ancestor(mine.ancestors[-1], other)

    def _is_lagger(self, n: Number) -> bool:
        seen = {node for z in self.reports_by_view if z > n for node in self._members(z) & self.nodes[z]}
        if self._members(n) - self.nodes[n] - seen:
            return False
        mine = self.log[n]
        return any(
            self.log[z][: len(mine)] == mine and (len(self.log[z]) > len(mine) or z > n) and not self._leads(n, [z])
            for z in self.leaves
            if z != n
        )

    def _leads(self, n: Number, others: list[Number]) -> bool:
        """S12: it is of the latest anchor, which not all are of, and has, closed, a decision that others lack."""
        anchors = {z: anchor.number for z in (n, *others) if (anchor := self.view[z].anchor) is not None}
        if n not in anchors or not others:
            return False
        theirs = [anchors.get(z, NO_VIEW) for z in others]
        if max(theirs) > anchors[n] or min(theirs) == anchors[n]:
            return False
        mine, logs = self._closed_log(n), [self._closed_log(z) for z in others]
        shared = 0
        while shared < len(mine) and all(log[shared : shared + 1] == mine[shared : shared + 1] for log in logs):
            shared += 1
        return any(self.is_decision(one.origin, one.seq) for one in mine[shared:])

    def _has_all_final(self, n: Number, forks: list[Number]) -> bool:
        """What is settled never moves: where a fork lacks some of it, its own comes behind."""
        settled = [(self.log[z], one.settled) for z in forks for one in self.reports_by_view[z]]
        return all(self.log[n][:index] == log[:index] for log, index in settled)

    def _weight(self, n: Number, forks: list[Number]) -> tuple[int, int, int]:
        counted = set(self.nodes[n])
        for z in self.reports_by_view:
            if z not in forks and [f for f in forks if self._is_superseded_by(z, f)] == [n]:
                counted |= self.nodes[z]
        absent = self._members(n) - self.present_nodes
        counted |= {node for node in absent if not any(node in self._members(z) for z in self.reports_by_view if z > n)}
        first = min(self.places.get(node, len(self.places)) for node in self.nodes[n])
        return sum(self.weights.get(node, 0) for node in counted), len(self.log[n]), -first

    def _closed_log(self, n: Number) -> list[OrderedTransaction]:
        """The longest log of a branch, then what its members hold in its queue, in key order. In a queue the stamps of
        each origin grow from above the floor: what falls below what it follows, and all behind that, is of another
        branch."""
        inside = {t[1:] for t in self.log[n]}
        floor = self.view[n].floor
        before = {t.origin: max(floor, t.stamp) for t in self.log[n]}
        least: dict[OriginSeq, OrderedTransaction] = {}
        for one in (t for m in self.reports_by_view[n] for t in m.queue if t[1:] not in inside):
            least[one[1:]] = min(one, least.get(one[1:], one))
        found: list[OrderedTransaction] = []
        for one in sorted(least.values(), key=lambda t: (t.origin, t.seq)):
            if one.stamp <= before.get(one.origin, floor):
                before[one.origin] = 1 << 64
                continue
            before[one.origin] = one.stamp
            found.append(one)
        return self.log[n] + sorted(found)

    def base(self) -> list[OrderedTransaction]:
        branches = [self._closed_log(n) for n in self.order[: self.complete_count]]
        if len(branches) < 2 or self._strategy() != "Simple":
            return branches[0]
        shared = 0
        while all(len(b) > shared for b in branches) and len({b[shared] for b in branches}) == 1:
            shared += 1
        least: dict[OriginSeq, OrderedTransaction] = {}
        for one in (t for branch in branches for t in branch[shared:]):
            least[one[1:]] = min(one, least.get(one[1:], one))
        return branches[0][:shared] + sorted(least.values())

    def _strategy(self) -> str:
        """Of the last view that all have grown from."""
        views = [self.view[n] for n in self.order[: self.complete_count]]
        strategies = dict(zip(views[0].ancestors, views[0].strategies, strict=True))
        shared = set.intersection(*({*view.ancestors} for view in views))
        return strategies[max(shared)]

    def waiting(self, masters: list[MemberReport], base: list[OrderedTransaction]) -> list[OriginSeq]:
        """What comes from outside, in the order of its least stamps; nothing before its predecessor, nothing behind a
        gap."""
        inside = {t[1:] for t in base}
        last: dict[Origin, int] = {}
        for one in base:
            last[one.origin] = one.seq
        least: dict[OriginSeq, OrderedTransaction] = {}
        for master in masters:
            for one in [*master.log, *master.queue, *master.parked]:
                if one[1:] not in inside:
                    least[one[1:]] = min(one, least.get(one[1:], one))
        highest: dict[Origin, int] = {}
        rows: list[OrderedTransaction] = []
        for one in sorted(least.values(), key=lambda t: (t.origin, t.seq)):
            highest[one.origin] = max(highest.get(one.origin, 0), one.stamp)
            rows.append(one._replace(stamp=highest[one.origin]))
        found: list[OriginSeq] = []
        for one in sorted(rows):
            if one.seq == last.get(one.origin, 0) + 1:
                last[one.origin] = one.seq
                found.append(one[1:])
        return found
