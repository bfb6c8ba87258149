"""How views are closed before the next is opened (protocol sections 3 and 4): a pure function of the reports (rule 25).

The base is the log of the view that goes on: the longest among those who are in it, then everything that they hold in
its queue, in key order. Only then come the transactions of masters that were not in it, with new stamps above all.
Who goes on is found in ``branches.py``; its base is put together in ``bases.py``.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from txlog.model.configuration import Configuration
from txlog.model.entry import Span
from txlog.model.ids import Origin, Txid
from txlog.model.records import ReassignedStamps
from txlog.model.view import NO_VIEW, STRATEGIES, Member, Number, View
from txlog.protocol.log.log_index import LogIndex
from txlog.protocol.membership.configuration_history import ConfigurationHistory
from txlog.protocol.views.branch_selection import (
    InsufficientReports,
    ViewBranch,
    branch_weight,
    branches_with_all_final_entries,
    find_branches,
    group_by_view,
    surviving_branch,
)
from txlog.protocol.views.log_merge import (
    MergedLog,
    TransactionRefs,
    branch_log,
    collect_transactions,
    merge_branches,
    transactions_known_to,
)
from txlog.wire.messages import Departure, ReportSummary, ViewReport

_ORIGINS_MAX: Final = 255


class NextView(NamedTuple):
    """The next view, and how the log of whoever computed it becomes its base: cut behind ``cut``, then ``spans`` with
    ``stamps``. ``waiting``: the new queue. ``branches``: the views that were brought together, the winner first.
    ``majority``: under each configuration of ``joint_configurations`` its members have to have one. ``weights``: who
    won by them."""

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
    """The part of a report that decides."""
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
) -> NextView:
    """The view of this number, of these members, all of whom have sent one of these reports. ``own``: the log that
    the reports' ``shared`` places are in; ``weights``: of all configured masters, in order of precedence;
    ``configurations``: those along ``own``, which say so wherever the cluster has a founding configuration."""
    branches = group_by_view(reports, own)
    if not branches:
        raise InsufficientReports("nobody who reports has a view")
    if configurations is not None and configurations.latest.masters:
        shared = min(branch.shared for branch in branches)
        weights = {m.node: m.weight for m in configurations.at_index(shared).members}
    if majority:
        forks = keeping = [surviving_branch(branches)]
    else:
        forks = find_branches(branches, own)
        forks = sorted(forks, key=lambda b: branch_weight(b, branches, forks, members, weights), reverse=True)
        keeping = branches_with_all_final_entries(forks, own)
    winner = keeping[0]
    merged = len(keeping) > 1 and _shared_strategy(keeping) == "Simple"
    told = [transactions_known_to(fork, reports) for fork in keeping]
    base = merge_branches(own, keeping, told) if merged else branch_log(own, winner, told[0])
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
    view = View(
        epoch,
        ballot,
        coordinator,
        members,
        winner.view.cluster_id,
        base.length,
        base.hash,
        origins,
        [*winner.view.ancestors, winner.number],
        floor,
        _strategy(members, winner, prefers, bool(silent)),
        _diverged_index(winner, gone, members, majority, out),
        [known.get(Origin(*one), base.last_seq(Origin(*one))) for one in origins],
        [*winner.view.strategies, winner.view.strategy],
        merged,
        silent,
        prefers,
        sorted(one.node for one in gone if one.why == "ordered"),
        winner.view.bootstrap_configuration,
        mode,
        mode_before,
    )
    stable = max(report.stable for report in winner.reports)
    jointly = along.joint_configurations(stable) if along is not None else []
    needed = mode_before if winner.view.bootstrap_configuration is not None else majority
    numbers = [b.number for b in keeping]
    numbers += [b.number for b in forks if b.number not in numbers]
    return NextView(view, base.base_index, base.spans, base.stamps, waiting, numbers, needed, jointly, voting)


def is_majority_change(reports: list[ViewReport], configured: bool) -> bool:
    """Whether all views that are reported had ``splitMode: Majority``: then there is one line of them. ``configured``:
    what holds where no founding record says it."""
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
    """The configurations along the base, as the chain of the winner judges what is in it."""
    if configurations is None or not configurations.latest.masters:
        return None
    cut = configurations.valid_up_to(own, own.start, base.base_index, winner.view.lineage)
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
                along.apply(index + seq - span.first_seq + 1, Txid(origin, seq), key, winner.view.lineage)
        index += span.count
    return along


def _split_mode(winner: ViewBranch, along: ConfigurationHistory | None, out: bool) -> tuple[bool, bool]:
    """The ``splitMode`` of the next view, and what binds until it is installed. It follows the configuration where
    nobody is out, who could go on under the other one."""
    before = winner.view
    installed = winner.is_installed
    binding = before.is_majority(installed)
    kept = before.majority if installed else before.majority and before.majority_before
    return (kept if out or along is None else along.latest.majority), binding


def _preferred_strategies(members: list[Member], reports: list[ViewReport]) -> list[str]:
    """The strategy that each member prefers, in their order."""
    told = {report.node: report.prefers for report in reports}
    return [told[m.node] for m in members]


def _strategy(members: list[Member], winner: ViewBranch, prefers: list[str], split: bool) -> str:
    """The safest that its members prefer. One that only loses members keeps what it had; one of the same members, too,
    unless a preference was changed while nobody was out by silence."""
    before = winner.view
    same = [(m.node, m.birth) for m in members] == [(m.node, m.birth) for m in before.members]
    changed = same and not split and prefers != [before.preferred_by(m.node) for m in members]
    if not changed and all(before.has_member(m.origin) for m in members):
        return before.strategy
    return min(prefers, key=STRATEGIES.index)


def _shared_strategy(forks: list[ViewBranch]) -> str:
    """Of the last view that all of these have grown from."""
    first = forks[0].view
    lines = [{*fork.view.ancestors, fork.number} for fork in forks]
    for number, strategy in zip(reversed(first.ancestors), reversed(first.strategies), strict=True):
        if all(number in line for line in lines):
            return strategy
    return first.strategy


def _diverged_index(winner: ViewBranch, gone: list[Departure], members: list[Member], majority: bool, out: bool) -> int:
    """Under ``Majority`` nobody goes on elsewhere, but by order."""
    ordered = any(one.why == "ordered" for one in gone) or winner.is_forced
    if majority and not ordered:
        return -1
    return _diverged_index_after(winner, gone, members) if out else _healed_index(winner)


def _diverged_index_after(winner: ViewBranch, gone: list[Departure], members: list[Member]) -> int:
    """What was stable in the last view that everybody was in stands at its place in every branch. One who did not say
    that it leaves may have gone into a view of its own, even if it is down by now."""
    before = _diverged_until_now(winner)
    if before >= 0:
        return before
    apart = any(one.why != "left" for one in gone) or bool(_unexplained_absences(winner, gone, members))
    return max(report.stable for report in winner.reports) if apart else -1


def _healed_index(winner: ViewBranch) -> int:
    """Everybody is in, once everybody has accepted it."""
    before = _diverged_until_now(winner)
    return -2 - before if before >= 0 else -1


def _diverged_until_now(winner: ViewBranch) -> int:
    """-1 when the view that goes on was installed with everybody in it."""
    return max(-1, winner.view.diverged_at(winner.is_installed))


def _silent_members(winner: ViewBranch, gone: list[Departure], members: list[Member]) -> list[str]:
    """Who is out because nobody heard it, now or since an earlier view."""
    here = {m.node for m in members}
    unspoken = _unexplained_absences(winner, gone, members)
    return sorted({*winner.view.silent_members, *unspoken, *(one.node for one in gone if one.why == "silent")} - here)


def _unexplained_absences(winner: ViewBranch, gone: list[Departure], members: list[Member]) -> list[str]:
    """Members of the view that goes on which are left out, and of which whoever coordinates knows nothing: it is not of
    that view itself, another branch's or an earlier one's."""
    spoken = {*((one.node, one.birth) for one in gone), *((m.node, m.birth) for m in members)}
    return [m.node for m in winner.view.members if (m.node, m.birth) not in spoken]


# What comes from outside


def _restamp_waiting(cells: TransactionRefs, base: MergedLog, floor: int) -> list[ReassignedStamps]:
    """In the order of its old stamps, with new ones above ``floor``. These may fall within an origin, where some of its
    transactions have had new ones before; each comes behind its predecessor all the same."""
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
                continue  # behind a gap: whoever fills it brings it
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
    if len(origins) > _ORIGINS_MAX:
        raise InsufficientReports(f"{len(origins)} births of masters in one log; {_ORIGINS_MAX} are the most")
    return origins
