"""How views are closed before the next is opened (protocol sections 3 and 4): a pure function of the reports (rule 25).

The base is the log of the view that goes on: the longest among those who are in it, then everything that they hold in
its queue, in key order. Only then come the transactions of masters that were not in it, with new stamps above all.
Which view goes on: the latest (``Majority``); in ``Continue`` there may be several that no other has closed (branches),
and the winner goes on. Under ``Simple`` the branches are merged behind what they share, with the stamps that they have.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from txlog.model.configuration import Configuration
from txlog.model.entry import Span
from txlog.model.hashes import HASH_BYTES, chain_leaf, chain_next, origin_tag
from txlog.model.ids import Origin, Txid
from txlog.model.records import Stamped
from txlog.model.view import NO_VIEW, Member, Number, View
from txlog.protocol.configurations import Configurations
from txlog.protocol.history import History
from txlog.wire.messages import Departure, Outline, Pending, Report

_ORIGINS_MAX: Final = 255
STRATEGIES: Final = ("Simple", "Smart", "None")
"""The safest first."""


class Unclosed(Exception):
    """These reports do not suffice; the text says what is missing. Another proposal may fare better."""


class Closed(NamedTuple):
    """The next view, and how the log of whoever computed it becomes its base: cut behind ``cut``, then ``spans`` with
    ``stamps``. ``waiting``: the new queue. ``branches``: the views that were brought together, the winner first.
    ``majority``: under each configuration of ``jointly`` its members have to have one. ``weights``: who won by them."""

    view: View
    cut: int
    spans: list[Span]
    stamps: list[int]
    waiting: list[Stamped]
    branches: list[Number]
    majority: bool
    jointly: list[Configuration]
    weights: dict[str, int]


class Cell(NamedTuple):
    stamp: int
    content: bytes


Cells = dict[Origin, dict[int, Cell]]
Name = tuple[Origin, int]
"""A transaction: origin and seq."""


class Branch(NamedTuple):
    """Those who report the same view. ``log``: the longest of their logs, behind ``shared`` entries of the log of
    whoever computes; ``hashes`` are its chain hashes behind these."""

    view: View
    reports: list[Report]
    shared: int
    log: list[Name]
    hashes: list[bytes]

    @property
    def number(self) -> Number:
        return self.view.number

    @property
    def length(self) -> int:
        return self.shared + len(self.log)

    @property
    def nodes(self) -> set[str]:
        return {report.node for report in self.reports}


def latest_view(outlines: list[Outline]) -> Number:
    """The highest accepted view."""
    return max((one.view for one in outlines), default=NO_VIEW)


def outline(report: Report) -> Outline:
    """The part of a report that decides."""
    number = report.view.number if report.view is not None else NO_VIEW
    return Outline(report.node, report.birth, number, report.log, report.stable, report.installed)


def close(
    number: Number,
    members: list[Member],
    gone: list[Departure],
    reports: list[Report],
    own: History,
    weights: dict[str, int],
    majority: bool,
    configurations: Configurations | None = None,
) -> Closed:
    """The view of this number, of these members, all of whom have sent one of these reports. ``own``: the log that
    the reports' ``shared`` places are in; ``weights``: of all configured masters, in order of precedence;
    ``configurations``: those along ``own``, which say so wherever the cluster has a founding configuration."""
    branches = branches_of(reports, own)
    if not branches:
        raise Unclosed("nobody who reports has a view")
    if configurations is not None and configurations.last.masters:
        shared = min(branch.shared for branch in branches)
        weights = {m.node: m.weight for m in configurations.place(shared).members}
    if majority:
        forks = keeping = [_latest(branches)]
    else:
        forks = _forks(branches, own)
        forks = sorted(forks, key=lambda b: _weight(b, branches, forks, members, weights), reverse=True)
        keeping = _keeping_what_is_settled(forks, own)
    winner = keeping[0]
    merged = len(keeping) > 1 and _shared_strategy(keeping) == "Simple"
    told = [_told(fork, reports) for fork in keeping]
    base = _merged(own, keeping, told) if merged else _closed(own, winner, told[0])
    floor = max([*(r.counter for r in reports), *(r.view.floor for r in reports if r.view is not None), base.highest])
    rest = _gathered([p for r in reports for p in [*r.pending, *r.parked]])
    waiting = _waiting(rest, base, floor)
    origins = _origins(own, members, base, waiting, rest)
    known = {Origin(w.node, w.birth): w.first_seq + len(w.stamps) - 1 for w in waiting}
    voting = weights
    along = _along(configurations, own, base, winner, reports)
    if along is not None:
        weights = {m.node: m.weight for m in along.last.masters}
    out = bool(set(weights) - {m.node for m in members})
    epoch, ballot, coordinator = number
    silent = [node for node in _silent(winner, gone, members) if node in weights]
    mode, mode_before = _mode(winner, along, out)
    prefers = _prefers(members, reports)
    view = View(
        epoch,
        ballot,
        coordinator,
        members,
        winner.view.cluster_id,
        base.length,
        base.hash,
        origins,
        [*winner.view.history, winner.number],
        floor,
        _strategy(members, winner, prefers, bool(silent)),
        _apart(winner, gone, members, majority, out),
        [known.get(Origin(*one), base.last(Origin(*one))) for one in origins],
        [*winner.view.strategies, winner.view.strategy],
        merged,
        silent,
        prefers,
        sorted(one.node for one in gone if one.why == "ordered"),
        winner.view.founding,
        mode,
        mode_before,
    )
    stable = max(report.stable for report in winner.reports)
    jointly = along.jointly(stable) if along is not None else []
    needed = mode_before if winner.view.founding is not None else majority
    numbers = [b.number for b in keeping]
    numbers += [b.number for b in forks if b.number not in numbers]
    return Closed(view, base.cut, base.spans, base.stamps, waiting, numbers, needed, jointly, voting)


def is_majority_change(reports: list[Report], configured: bool) -> bool:
    """Whether all views that are reported had ``splitMode: Majority``: then there is one line of them. ``configured``:
    what holds where no founding record says it."""
    views = [(report.view, report.installed) for report in reports if report.view is not None]
    return all(view.is_majority(installed) if view.founding is not None else configured for view, installed in views)


def _along(
    configurations: Configurations | None, own: History, base: Base, winner: Branch, reports: list[Report]
) -> Configurations | None:
    """The configurations along the base, as the chain of the winner judges what is in it."""
    if configurations is None or not configurations.last.masters:
        return None
    cut, spans = base.cut, base.spans
    other = configurations.judged_otherwise(own, own.start, winner.view.chain)
    if 0 < other <= cut:
        cut, spans = other - 1, own.spans(other - 1, cut) + spans
    along = configurations.copy(cut)
    held = {Txid(Origin(c.node, c.birth), c.seq): c.key for r in reports for c in r.changes}
    held.update(configurations.held)
    index = cut
    for span in spans:
        origin = Origin(span.node, span.birth)
        for seq in range(span.first_seq, span.first_seq + span.count) if held else ():
            key = held.get(Txid(origin, seq))
            if key is not None:
                along.enter(index + seq - span.first_seq + 1, Txid(origin, seq), key, winner.view.chain)
        index += span.count
    return along


def _mode(winner: Branch, along: Configurations | None, out: bool) -> tuple[bool, bool]:
    """The ``splitMode`` of the next view, and what binds until it is installed. It follows the configuration where
    nobody is out, who could go on under the other one."""
    before = winner.view
    installed = _is_installed(winner)
    binding = before.is_majority(installed)
    kept = before.majority if installed else before.majority and before.majority_before
    return (kept if out or along is None else along.last.majority), binding


def _prefers(members: list[Member], reports: list[Report]) -> list[str]:
    """The strategy that each member prefers, in their order."""
    told = {report.node: report.prefers for report in reports}
    return [told[m.node] for m in members]


def _strategy(members: list[Member], winner: Branch, prefers: list[str], split: bool) -> str:
    """The safest that its members prefer. One that only loses members keeps what it had; one of the same members, too,
    unless a preference was changed while nobody was out by silence."""
    before = winner.view
    same = [(m.node, m.birth) for m in members] == [(m.node, m.birth) for m in before.members]
    changed = same and not split and prefers != [before.preferred_by(m.node) for m in members]
    if not changed and all(before.has(m.origin) for m in members):
        return before.strategy
    return min(prefers, key=STRATEGIES.index)


def _shared_strategy(forks: list[Branch]) -> str:
    """Of the last view that all of these have grown from."""
    first = forks[0].view
    lines = [{*fork.view.history, fork.number} for fork in forks]
    for number, strategy in zip(reversed(first.history), reversed(first.strategies), strict=True):
        if all(number in line for line in lines):
            return strategy
    return first.strategy


def _apart(winner: Branch, gone: list[Departure], members: list[Member], majority: bool, out: bool) -> int:
    """Under ``Majority`` nobody goes on elsewhere, but by order."""
    ordered = any(one.why == "ordered" for one in gone) or _is_by_order(winner)
    if majority and not ordered:
        return -1
    return _apart_at(winner, gone, members) if out else _healed_at(winner)


def _apart_at(winner: Branch, gone: list[Departure], members: list[Member]) -> int:
    """What was stable in the last view that everybody was in stands at its place in every branch. One who did not say
    that it leaves may have gone into a view of its own, even if it is down by now."""
    before = _apart_until_now(winner)
    if before >= 0:
        return before
    apart = any(one.why != "left" for one in gone) or bool(_unspoken(winner, gone, members))
    return max(report.stable for report in winner.reports) if apart else -1


def _healed_at(winner: Branch) -> int:
    """Everybody is in, once everybody has accepted it."""
    before = _apart_until_now(winner)
    return -2 - before if before >= 0 else -1


def _apart_until_now(winner: Branch) -> int:
    """-1 when the view that goes on was installed with everybody in it."""
    return max(-1, winner.view.apart_until(_is_installed(winner)))


def _silent(winner: Branch, gone: list[Departure], members: list[Member]) -> list[str]:
    """Who is out because nobody heard it, now or since an earlier view."""
    here = {m.node for m in members}
    unspoken = _unspoken(winner, gone, members)
    return sorted({*winner.view.silent, *unspoken, *(one.node for one in gone if one.why == "silent")} - here)


def _unspoken(winner: Branch, gone: list[Departure], members: list[Member]) -> list[str]:
    """Members of the view that goes on which are left out, and of which whoever coordinates knows nothing: it is not of
    that view itself, another branch's or an earlier one's."""
    spoken = {*((one.node, one.birth) for one in gone), *((m.node, m.birth) for m in members)}
    return [m.node for m in winner.view.members if (m.node, m.birth) not in spoken]


# Branches


def branches_of(reports: list[Report], own: History) -> list[Branch]:
    """By view, in the order of their numbers."""
    found: dict[Number, list[Report]] = {}
    for report in reports:
        if report.view is not None:
            found.setdefault(report.view.number, []).append(report)
    branches: list[Branch] = []
    for number in sorted(found):
        longest = max(found[number], key=lambda r: (r.log.index, r.node))
        view = longest.view
        assert view is not None
        log = [
            (Origin(s.node, s.birth), seq) for s in longest.tail for seq in range(s.first_seq, s.first_seq + s.count)
        ]
        hashes = [longest.hashes[at * HASH_BYTES : (at + 1) * HASH_BYTES] for at in range(len(log))]
        shared = longest.shared.index
        if (
            shared > own.length
            or shared + len(log) != longest.log.index
            or len(longest.hashes) != HASH_BYTES * len(log)
        ):
            raise Unclosed(f"the report of {longest.node} does not fit the log here")
        shared, log, hashes = _above_foot(own, longest, log, hashes)
        same = 0
        while same < len(log) and shared + same < own.length and own.hash_at(shared + same + 1) == hashes[same]:
            same += 1
        shared, log, hashes = shared + same, log[same:], hashes[same:]
        branches.append(Branch(view, found[number], shared, log, hashes))
    return branches


def _above_foot(
    own: History, report: Report, log: list[Name], hashes: list[bytes]
) -> tuple[int, list[Name], list[bytes]]:
    """A log that is told from below the foot of the log here, which everybody has come by."""
    shared, below = report.shared, own.start - report.shared.index
    if below <= 0:
        if shared.index and own.hash_at(shared.index) != shared.hash:
            raise Unclosed(f"the log of {report.node} is told behind {shared.index}, which is another one here")
        return shared.index, log, hashes
    if below > len(log) or hashes[below - 1] != own.foot_hash:
        raise Unclosed(f"the log of {report.node} does not go through index {own.start}, from where it is kept here")
    return own.start, log[below:], hashes[below:]


def _hash_at(branch: Branch, index: int, own: History) -> bytes:
    return own.hash_at(index) if index <= branch.shared else branch.hashes[index - branch.shared - 1]


def _is_prefix(one: Branch, other: Branch, own: History) -> bool:
    return one.length <= other.length and _hash_at(one, one.length, own) == _hash_at(other, one.length, own)


def goes_on(views: Iterable[tuple[View, bool]]) -> View | None:
    """The view that goes on under ``Majority``, of those reported, each with whether it is installed there."""
    known = list(views)
    ends = [one for one in known if not any(one[0].number in other.history for other, _ in known)]
    return max(ends, key=lambda one: one[0].precedence(one[1]))[0] if ends else None


def _latest(branches: list[Branch]) -> Branch:
    view = goes_on((branch.view, _is_installed(branch)) for branch in branches)
    return next(branch for branch in branches if branch.view is view)


def _is_installed(branch: Branch) -> bool:
    return any(report.installed for report in branch.reports)


def _is_by_order(branch: Branch) -> bool:
    return branch.view.is_by_order(_is_installed(branch))


def _forks(branches: list[Branch], own: History) -> list[Branch]:
    """Those that are no laggers. A lagger's view is in the history of another, or came to nothing; or, among the rest,
    its log is a prefix of another's, and every member of its view is here or was seen in a later accepted one."""
    leaves = [b for b in branches if not any(_is_behind(b, other) for other in branches)]
    return [one for one in leaves if _absent(one, branches) or not any(_leads_on(one, other, own) for other in leaves)]


def _is_behind(one: Branch, other: Branch) -> bool:
    return one.number in other.view.history or _came_to_nothing(one, other)


def _came_to_nothing(one: Branch, other: Branch) -> bool:
    """Whether a view that was accepted was never installed, since a member of it went on from the view before it by a
    later one: who reported to a later proposal accepts the earlier one no more (rule 34). Those who did accept it have
    used nothing of it, and are where they were before."""
    return (
        other.number > one.number
        and one.view.history[-1:] != []
        and one.view.history[-1] in other.view.history
        and not _is_installed(one)
        and any(one.view.has(Origin(report.node, report.birth)) for report in other.reports)
    )


def _keeping_what_is_settled(forks: list[Branch], own: History) -> list[Branch]:
    """Those whose logs have all that is settled in any of them. All have, but for one that an order has put beside a
    line in which nobody was apart: what that has ordered meanwhile comes behind the others, as transactions."""
    found = [one for one in forks if all(_has_what_is_settled(one, other, own) for other in forks)]
    if not found:
        raise Unclosed("no branch has all that is settled in the others: a journal is an old copy of itself")
    return found


def _has_what_is_settled(one: Branch, other: Branch, own: History) -> bool:
    index = max(r.view.settled(r.stable, r.installed) for r in other.reports if r.view is not None)
    return index <= own.start or (index <= one.length and _hash_at(one, index, own) == _hash_at(other, index, own))


def _leads_on(one: Branch, other: Branch, own: History) -> bool:
    ahead = other.length > one.length or other.number > one.number
    return ahead and _is_prefix(one, other, own)


def _absent(branch: Branch, branches: list[Branch]) -> list[Member]:
    """Members of its view who do not report it, and whom nobody here has seen in a later accepted one."""
    later = [b for b in branches if b.number > branch.number]
    return [
        m
        for m in branch.view.members
        if m.node not in branch.nodes and not any(m.node in b.nodes and b.view.member(m.node) for b in later)
    ]


def _weight(
    branch: Branch, branches: list[Branch], forks: list[Branch], members: list[Member], weights: dict[str, int]
) -> tuple[int, int, int]:
    """Who wins: the most vote weight, then the longest log, then who holds the master first in precedence. The weight
    of a lagger counts for the branch that holds its view, or the one before it, if there is one only."""
    here = {m.node for m in members}
    nodes = set(branch.nodes)
    for other in branches:
        if other not in forks and _is_behind(other, branch):
            holders = [f for f in forks if _is_behind(other, f)]
            if len(holders) == 1:
                nodes |= other.nodes
    later = [b for b in branches if b.number > branch.number]
    for member in branch.view.members:
        if member.node not in here and not any(b.view.member(member.node) for b in later):
            nodes.add(member.node)
    order = {node: place for place, node in enumerate(weights)}
    first = min(order.get(node, len(order)) for node in branch.nodes)
    return sum(weights.get(node, 0) for node in nodes), branch.length, -first


# The base


class Base:
    """A log that is being put together behind the first ``cut`` entries of ``own``. ``highest``: of its stamps."""

    def __init__(self, own: History, cut: int) -> None:
        self.cut = cut
        self.length = cut
        self.hash = own.hash_at(cut)
        self.spans: list[Span] = []
        self.stamps: list[int] = []
        self.highest = 0
        self.hashes: list[bytes] = []
        self._own = own
        self._last: dict[Origin, int] = {}
        self._tags: dict[Origin, bytes] = {}

    def last(self, origin: Origin) -> int:
        """The last seq of an origin in it."""
        if origin not in self._last:
            slot = self._own.slot(origin)
            self._last[origin] = self._own.seq_within(slot, self.cut) if slot is not None else 0
            self._tags[origin] = origin_tag(origin)
        return self._last[origin]

    def put(self, origin: Origin, seq: int, cell: Cell) -> None:
        if seq != self.last(origin) + 1:
            raise Unclosed(f"{origin}.{seq} would follow {self.last(origin)}")
        self._last[origin] = seq
        self.hash = chain_next(self.hash, chain_leaf(cell.stamp, self._tags[origin], seq, cell.content))
        self.hashes.append(self.hash)
        self.length += 1
        self.stamps.append(cell.stamp)
        self.highest = max(self.highest, cell.stamp)
        before = self.spans[-1] if self.spans else None
        if before is not None and (before.node, before.birth) == origin:
            self.spans[-1] = Span(before.node, before.birth, before.first_seq, before.count + 1)
        else:
            self.spans.append(Span(origin.node, origin.birth, seq, 1))

    def put_all(self, rows: Iterable[tuple[Origin, int]], cells: Cells) -> None:
        for origin, seq in rows:
            cell = cells.get(origin, {}).get(seq)
            if cell is None:
                raise Unclosed(f"nobody who reports names {origin}.{seq} in full")
            self.put(origin, seq, cell)

    def queue(self, cells: Cells, floor: int) -> list[Name]:
        """What these hold that is not in it, in key order. ``floor``: of their view, in whose queue the stamps of each
        origin grow from above it. Where they do not, that one and those behind it came from another branch: they were
        fetched there while this view was stopped, with the stamps that they have there."""
        rows: list[tuple[int, Origin, int]] = []
        for origin, mine in cells.items():
            last = mine.get(self.last(origin))
            before = max(floor, last.stamp) if last is not None else floor
            for seq in sorted(mine):
                if seq <= self.last(origin):
                    continue
                if mine[seq].stamp <= before:
                    break
                before = mine[seq].stamp
                rows.append((before, origin, seq))
        return [(origin, seq) for _, origin, seq in sorted(rows)]


def _gathered(pieces: list[Pending]) -> Cells:
    """Every transaction that one of them names in full, with the least of its stamps."""
    cells: Cells = {}
    for pending in pieces:
        mine = cells.setdefault(pending.origin, {})
        for offset, stamp in enumerate(pending.stamps):
            seq = pending.first_seq + offset
            before = mine.get(seq)
            if before is None or stamp < before.stamp:
                mine[seq] = Cell(stamp, pending.contents[offset * HASH_BYTES : (offset + 1) * HASH_BYTES])
    return cells


def _told(branch: Branch, reports: list[Report]) -> Cells:
    """What its members name. What is settled there they name no more: who has not heard so, in a view that it has grown
    from, holds that. The chain of the log tells whether it is the same."""
    cells = _gathered([p for r in branch.reports for p in r.pending])
    missing = [(origin, seq) for origin, seq in branch.log if seq not in cells.get(origin, {})]
    if missing:
        before = [r for r in reports if r.view is not None and r.view.number in branch.view.history]
        older = _gathered([p for r in before for p in r.pending])
        for origin, seq in missing:
            cell = older.get(origin, {}).get(seq)
            if cell is not None:
                cells.setdefault(origin, {})[seq] = cell
    return cells


def _closed(own: History, branch: Branch, cells: Cells) -> Base:
    """The longest log of a branch, and its queue behind it."""
    base = Base(own, branch.shared)
    base.put_all(branch.log, cells)
    if branch.log and base.hash != branch.hashes[-1]:
        raise Unclosed(f"the log of view {branch.number}, {branch.length} long, cannot be put together here")
    base.put_all(base.queue(cells, branch.view.floor), cells)
    return base


def _merged(own: History, forks: list[Branch], named: list[Cells]) -> Base:
    """Behind what all branches share, each transaction once, at its least stamp (``Simple``)."""
    closed = [_closed(own, fork, cells) for fork, cells in zip(forks, named, strict=True)]
    cut = min(base.cut for base in closed)
    shortest = min(own.length, *(base.length for base in closed))
    while cut < shortest and all(_base_hash(base, cut + 1, own) == own.hash_at(cut + 1) for base in closed):
        cut += 1
    cells: Cells = {}
    names: set[Name] = set()
    for base, mine in zip(closed, named, strict=True):
        for origin, told in mine.items():
            known = cells.setdefault(origin, {})
            for seq, its in told.items():
                if seq <= base.last(origin):  # what it only holds for another branch counts there
                    known[seq] = min(its, known.get(seq, its))
        behind = _names(base.spans)[max(0, cut - base.cut) :]
        names |= {*_names(own.spans(min(cut, base.cut), base.cut)), *behind}
    merged = Base(own, cut)
    rows: list[tuple[int, Origin, int]] = []
    for origin, seq in names:
        cell = cells.get(origin, {}).get(seq)
        if cell is None:
            raise Unclosed(f"nobody who reports names {origin}.{seq} in full")
        rows.append((cell.stamp, origin, seq))
    merged.put_all([(origin, seq) for _, origin, seq in sorted(rows)], cells)
    return merged


def _base_hash(base: Base, index: int, own: History) -> bytes:
    return own.hash_at(index) if index <= base.cut else base.hashes[index - base.cut - 1]


def _names(spans: list[Span]) -> list[Name]:
    return [(Origin(s.node, s.birth), seq) for s in spans for seq in range(s.first_seq, s.first_seq + s.count)]


# What comes from outside


def _waiting(cells: Cells, base: Base, floor: int) -> list[Stamped]:
    """In the order of its old stamps, with new ones above ``floor``. These may fall within an origin, where some of its
    transactions have had new ones before; each comes behind its predecessor all the same."""
    rows: list[tuple[int, Origin, int]] = []
    for origin, mine in cells.items():
        stamp = 0
        for seq in sorted(mine):
            if seq > base.last(origin):  # what one that lags says of the base orders nothing behind it
                stamp = max(stamp, mine[seq].stamp)
                rows.append((stamp, origin, seq))
    found: dict[Origin, Stamped] = {}
    for _, origin, seq in sorted(rows):
        floor += 1
        if origin not in found:
            if seq != base.last(origin) + 1:
                continue  # behind a gap: whoever fills it brings it
            found[origin] = Stamped(origin.node, origin.birth, seq, [])
        several = found[origin]
        if seq == several.first_seq + len(several.stamps):
            several.stamps.append(floor)
    return [found[origin] for origin in sorted(found)]


def _origins(
    own: History, members: list[Member], base: Base, waiting: list[Stamped], rest: Cells
) -> list[tuple[str, int]]:
    origins = [(o.node, o.birth) for o in own.origins]
    named = [(m.node, m.birth) for m in members]
    named += [(one.node, one.birth) for one in base.spans] + [(one.node, one.birth) for one in waiting]
    named += [(origin.node, origin.birth) for origin in sorted(rest)]
    for name in named:
        if name not in origins:
            origins.append(name)
    if len(origins) > _ORIGINS_MAX:
        raise Unclosed(f"{len(origins)} births of masters in one log; {_ORIGINS_MAX} are the most")
    return origins
