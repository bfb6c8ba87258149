"""How views are closed before the next is opened (protocol sections 3 and 4): a pure function of the reports (rule 25).

The base begins with the log of the surviving view: the longest log among its members. Then follow all transactions in
those members' queues, in key order. Transactions of masters outside that view come last, with new stamps above all.
``branch_selection.py`` finds the surviving view; ``log_merge.py`` builds its base.
"""

from __future__ import annotations

from typing import NamedTuple

from txlog.model.bounds import SLOTS_MAX
from txlog.model.configuration import Configuration
from txlog.model.entry import Span
from txlog.model.ids import Origin, Txid
from txlog.model.records import ReassignedStamps
from txlog.model.view import NO_VIEW, STRATEGIES, Member, Number, View
from txlog.protocol.log.configuration_history import ConfigurationHistory
from txlog.protocol.log.log_index import LogIndex
from txlog.protocol.views.branch_selection import (
    InsufficientReports,
    ViewBranch,
    branch_weight,
    branches_with_all_final_entries,
    find_branches,
    group_by_view,
    surviving_branch,
)
from txlog.protocol.views.decided_branch import DecidedBranches
from txlog.protocol.views.log_merge import (
    MergedLog,
    TransactionRefs,
    branch_log,
    collect_transactions,
    merge_branches,
    transactions_known_to,
)
from txlog.protocol.views.quorate_view import NextViewLog, OwnSynchronous, compute_anchor, named_references
from txlog.protocol.views.view_lineage import extend_lineage
from txlog.wire.messages import Departure, ReportSummary, ViewReport


class NextView(NamedTuple):
    """The next view, and how the log of the computing master becomes its base: truncated after ``cut``, then ``spans``
    with ``stamps``. ``waiting``: the new queue. ``branches``: the views that were merged, the winner first.
    ``majority``: the members need a majority under each configuration of ``joint_configurations``. ``weights``: the
    branch weights that decided."""

    view: View
    truncate_to: int
    spans: list[Span]
    stamps: list[int]
    waiting: list[ReassignedStamps]
    branches: list[Number]
    majority: bool
    joint_configurations: list[Configuration]
    weights: dict[str, int]


def highest_view(outlines: list[ReportSummary]) -> Number:
    """The highest accepted view."""
    return max((one.view for one in outlines), default=NO_VIEW)


def summarize_report(report: ViewReport) -> ReportSummary:
    """The part of a report that decides the view change."""
    number = report.view.number if report.view is not None else NO_VIEW
    return ReportSummary(report.node, report.birth, number, report.log, report.stable, report.installed)


def compute_next_view(
    number: Number,
    members: list[Member],
    gone: list[Departure],
    reports: list[ViewReport],
    own: LogIndex,
    weights: dict[str, int],
    majority: bool,
    configurations: ConfigurationHistory | None = None,
    synchronous: OwnSynchronous | None = None,
) -> NextView:
    """The view of this number, of these members, each of which has sent one of these reports. ``own``: the log that
    the reports' ``shared`` positions refer to; ``weights``: of all configured masters, in order of precedence;
    ``configurations``: the configurations along ``own``. They decide wherever the cluster has a founding
    configuration. ``synchronous``: what this master knows of synchronous transactions. :class:`InsufficientReports`
    when the reports do not suffice."""
    branches = group_by_view(reports, own)
    if not branches:
        raise InsufficientReports("no reporting master has a view")
    if configurations is not None and configurations.latest.masters:
        shared = min(branch.shared for branch in branches)
        weights = {m.node: m.weight for m in configurations.at_index(shared).members}
    if majority:
        forks = keeping = [surviving_branch(branches)]
    else:
        decided = DecidedBranches(own, reports, named_references(synchronous, reports))
        forks = find_branches(branches, own, lambda one, other: decided.leads(one, [other]))
        leading = [b.number for b in forks if len(forks) > 1 and decided.leads(b, [o for o in forks if o is not b])]
        forks = sorted(
            forks,
            key=lambda b: (b.number in leading, branch_weight(b, branches, forks, members, weights)),
            reverse=True,
        )
        keeping = branches_with_all_final_entries(forks, own)
    winner = keeping[0]
    merged = len(keeping) > 1 and _shared_strategy(keeping) == "Simple"
    known_to = [transactions_known_to(fork, reports) for fork in keeping]
    base = merge_branches(own, keeping, known_to) if merged else branch_log(own, winner, known_to[0])
    floor = max([*(r.counter for r in reports), *(r.view.floor for r in reports if r.view is not None), base.highest])
    rest = collect_transactions([p for r in reports for p in [*r.pending, *r.parked]])
    waiting = _restamp_waiting(rest, base, floor)
    origins = _origins_of_view(own, members, base, waiting, rest)
    known = {Origin(w.node, w.birth): w.first_seq + len(w.stamps) - 1 for w in waiting}
    voting = weights
    along = _configurations_on(configurations, own, base, winner, reports)
    if along is not None:
        weights = {m.node: m.weight for m in along.latest.masters}
    out = bool(set(weights) - {m.node for m in members})
    epoch, ballot, coordinator = number
    silent = [node for node in _silent_members(winner, gone, members) if node in weights]
    mode, mode_before = _split_mode(winner, along, out)
    prefers = _preferred_strategies(members, reports)
    stable = max(report.stable for report in winner.reports)
    jointly = along.joint_configurations(stable) if along is not None else []
    configured = {m.node for one in jointly for m in one.masters} | set(weights)
    lineage = extend_lineage(winner, reports, configured)
    known_seqs = [known.get(Origin(*one), base.last_seq(Origin(*one))) for one in origins]
    ends = {Origin(*one): seq for one, seq in zip(origins, known_seqs, strict=True) if seq}
    settled = max(r.view.final_index(r.stable, r.installed) for r in winner.reports if r.view is not None)
    masters = along.latest.masters if along is not None else []
    begins = NextViewLog(base, waiting, ends, rest, settled, masters)
    anchor = compute_anchor(number, members, reports, begins, own, synchronous)
    view = View(
        epoch,
        ballot,
        coordinator,
        members,
        winner.view.cluster_id,
        base.length,
        base.hash,
        origins,
        lineage.ancestors,
        floor,
        _strategy(members, winner, prefers, bool(silent), anchor is not None),
        _diverged_index(winner, gone, members, majority, out),
        known_seqs,
        lineage.strategies,
        merged,
        silent,
        prefers,
        sorted(one.node for one in gone if one.why == "ordered"),
        winner.view.bootstrap_configuration,
        mode,
        mode_before,
        lineage.start,
        lineage.foreign_views,
        lineage.level,
        anchor,
    )
    needed = mode_before if winner.view.bootstrap_configuration is not None else majority
    numbers = [b.number for b in keeping]
    numbers += [b.number for b in forks if b.number not in numbers]
    return NextView(view, base.base_index, base.spans, base.stamps, waiting, numbers, needed, jointly, voting)


def is_majority_change(reports: list[ViewReport], configured: bool) -> bool:
    """Whether all reported views had ``splitMode: Majority``: then they form one line. ``configured``: the setting
    that applies where no founding record holds one."""
    views = [(report.view, report.installed) for report in reports if report.view is not None]
    return all(
        view.is_majority(installed) if view.bootstrap_configuration is not None else configured
        for view, installed in views
    )


def _configurations_on(
    configurations: ConfigurationHistory | None,
    own: LogIndex,
    base: MergedLog,
    winner: ViewBranch,
    reports: list[ViewReport],
) -> ConfigurationHistory | None:
    """The configurations along the base, as the winner's chain judges the changes in it."""
    if configurations is None or not configurations.latest.masters:
        return None
    cut = configurations.valid_up_to(own, own.start, base.base_index, winner.view.is_or_descends_from)
    spans = own.spans(cut, base.base_index) + base.spans
    along = configurations.copy_up_to(cut)
    held = {Txid(Origin(c.node, c.birth), c.seq): c.key for r in reports for c in r.changes}
    held.update(configurations.held)
    index = cut
    for span in spans:
        origin = Origin(span.node, span.birth)
        for seq in range(span.first_seq, span.first_seq + span.count) if held else ():
            key = held.get(Txid(origin, seq))
            if key is not None:
                along.apply(index + seq - span.first_seq + 1, Txid(origin, seq), key, winner.view.is_or_descends_from)
        index += span.count
    return along


def _split_mode(winner: ViewBranch, along: ConfigurationHistory | None, out: bool) -> tuple[bool, bool]:
    """The ``splitMode`` of the next view, and the one that binds until it is installed. It follows the configuration
    only when no master is out that could continue under the other mode."""
    before = winner.view
    installed = winner.is_installed
    binding = before.is_majority(installed)
    kept = before.majority if installed else before.majority and before.majority_before
    return (kept if out or along is None else along.latest.majority), binding


def _preferred_strategies(members: list[Member], reports: list[ViewReport]) -> list[str]:
    """The strategy that each member prefers, in their order."""
    preferred = {report.node: report.prefers for report in reports}
    return [preferred[m.node] for m in members]


def _strategy(members: list[Member], winner: ViewBranch, prefers: list[str], split: bool, one_order: bool) -> str:
    """The safest strategy that its members prefer. A view that only loses members keeps its strategy. So does one of
    the same members, unless a preference was changed while no master was out by silence. ``one_order``: the cluster has
    synchronous transactions, so that workers have to go back to one order: never ``None``."""
    chosen = _preferred_strategy(members, winner, prefers, split)
    return "Smart" if one_order and chosen == "None" else chosen


def _preferred_strategy(members: list[Member], winner: ViewBranch, prefers: list[str], split: bool) -> str:
    before = winner.view
    same = [(m.node, m.birth) for m in members] == [(m.node, m.birth) for m in before.members]
    changed = same and not split and prefers != [before.preferred_by(m.node) for m in members]
    if not changed and all(before.has_member(m.origin) for m in members):
        return before.strategy
    return min(prefers, key=STRATEGIES.index)


def _shared_strategy(forks: list[ViewBranch]) -> str:
    """The strategy of the last view that all of these descend from."""
    first = forks[0].view
    lines = [{*fork.view.ancestors, fork.number} for fork in forks]
    for number, strategy in zip(reversed(first.ancestors), reversed(first.strategies), strict=False):
        if all(number in line for line in lines):
            return strategy
    return first.strategy


def _diverged_index(winner: ViewBranch, gone: list[Departure], members: list[Member], majority: bool, out: bool) -> int:
    """In ``Majority`` mode no other branch can progress unless an operator forced it."""
    ordered = any(one.why == "ordered" for one in gone) or winner.is_forced
    if majority and not ordered:
        return -1
    return _diverged_index_after(winner, gone, members) if out else _healed_index(winner)


def _diverged_index_after(winner: ViewBranch, gone: list[Departure], members: list[Member]) -> int:
    """Entries that were stable in the last view with every master in it have the same index in every branch. A member
    that did not announce its departure may have entered a view of its own, even if it is down by now."""
    before = _diverged_until_now(winner)
    if before >= 0:
        return before
    apart = any(one.why != "left" for one in gone) or bool(_unexplained_absences(winner, gone, members))
    return max(report.stable for report in winner.reports) if apart else -1


def _healed_index(winner: ViewBranch) -> int:
    """Every master is in the view, once every member has accepted it."""
    before = _diverged_until_now(winner)
    return -2 - before if before >= 0 else -1


def _diverged_until_now(winner: ViewBranch) -> int:
    """-1 when the surviving view was installed with every master in it."""
    return max(-1, winner.view.diverged_at(winner.is_installed))


def _silent_members(winner: ViewBranch, gone: list[Departure], members: list[Member]) -> list[str]:
    """The masters that are out because they were silent, now or since an earlier view."""
    here = {m.node for m in members}
    unspoken = _unexplained_absences(winner, gone, members)
    return sorted({*winner.view.silent_members, *unspoken, *(one.node for one in gone if one.why == "silent")} - here)


def _unexplained_absences(winner: ViewBranch, gone: list[Departure], members: list[Member]) -> list[str]:
    """Members of the surviving view that the next one excludes, and of which the coordinator knows nothing. The
    coordinator is not in that view itself, but in another branch's or an earlier one's."""
    spoken = {*((one.node, one.birth) for one in gone), *((m.node, m.birth) for m in members)}
    return [m.node for m in winner.view.members if (m.node, m.birth) not in spoken]


# Transactions from outside


def _restamp_waiting(cells: TransactionRefs, base: MergedLog, floor: int) -> list[ReassignedStamps]:
    """In the order of the old stamps, with new ones above ``floor``. The old stamps may fall within an origin, where
    some of its transactions had new ones before. Each still follows its predecessor."""
    rows: list[tuple[int, Origin, int]] = []
    for origin, mine in cells.items():
        stamp = 0
        for seq in sorted(mine):
            if seq > base.last_seq(origin):  # what one that lags says of the base orders nothing behind it
                stamp = max(stamp, mine[seq].stamp)
                rows.append((stamp, origin, seq))
    found: dict[Origin, ReassignedStamps] = {}
    for _, origin, seq in sorted(rows):
        floor += 1
        if origin not in found:
            if seq != base.last_seq(origin) + 1:
                continue  # after a gap: the report that fills it brings it
            found[origin] = ReassignedStamps(origin.node, origin.birth, seq, [])
        several = found[origin]
        if seq == several.first_seq + len(several.stamps):
            several.stamps.append(floor)
    return [found[origin] for origin in sorted(found)]


def _origins_of_view(
    own: LogIndex, members: list[Member], base: MergedLog, waiting: list[ReassignedStamps], rest: TransactionRefs
) -> list[tuple[str, int]]:
    origins = [(o.node, o.birth) for o in own.origins]
    named = [(m.node, m.birth) for m in members]
    named += [(one.node, one.birth) for one in base.spans] + [(one.node, one.birth) for one in waiting]
    named += [(origin.node, origin.birth) for origin in sorted(rest)]
    for name in named:
        if name not in origins:
            origins.append(name)
    if len(origins) > SLOTS_MAX:
        raise InsufficientReports(f"{len(origins)} incarnations of masters in one log; the most are {SLOTS_MAX}")
    return origins
