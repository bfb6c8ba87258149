"""Whether the next view is quorate, and the anchor that it carries: electorate, and what it dooms. All is pure.

Quorate views are numbered, and any two of them share a master whose report is a promise and names the anchor. So *may a
COMMIT exist?* has one answer at every view change, and no transaction has both a COMMIT and a ROLLBACK that count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from txlog.model.anchor import DOOMED_SPANS_MAX, Anchor
from txlog.model.configuration import Master
from txlog.model.entry import Span
from txlog.model.ids import Origin, Txid, ViewNumber
from txlog.model.quorum import MAJORITY, compute_needs, meets_needs
from txlog.model.stamp import LOGICAL_BITS
from txlog.model.synchronous import NO_TIMEOUT
from txlog.model.synchronous_entry import join_spans


class AnchorReport(NamedTuple):
    """What a master's report says about anchors. ``view``: the view that it reports, ``installed`` there; False for a
    learner, which has no ``anchor`` either. ``has_voted``: its birth has accepted a quorate view. ``counter``: the
    highest. ``held``: the last seq of each origin in its log and queue; ``parked``: what it holds behind a gap."""

    node: str
    birth: int
    view: ViewNumber
    installed: bool
    anchor: Anchor | None
    has_voted: bool
    counter: int
    held: Mapping[Origin, int]
    parked: Collection[Txid] = ()

    def holds(self, txid: Txid) -> bool:
        """Whether it has a transaction on its disk."""
        return txid.seq <= self.held.get(txid.origin, 0) or txid in self.parked


class Candidate(NamedTuple):
    """A synchronous transaction of the next view's base and queue that no decision there names. ``stamp``: the least
    one that is reported."""

    stamp: int
    txid: Txid
    timeout_ms: int

    def is_late(self, counter: int) -> bool:
        """Whether its time to take effect was over by a counter."""
        return self.timeout_ms != NO_TIMEOUT and self.stamp + (self.timeout_ms << LOGICAL_BITS) < counter


class NextLog(NamedTuple):
    """What the next view begins with. ``configured``: the masters by the configuration at the end of its base.
    ``known``: the last seq of each origin in base and queue. ``candidates``: in any order. ``rolled_back``: whose
    ROLLBACK is at or below an index that is in every later base."""

    configured: Sequence[Master]
    known: Mapping[Origin, int]
    candidates: Sequence[Candidate] = ()
    rolled_back: Collection[Txid] = ()


class NextAnchor(NamedTuple):
    """The anchor of the next view, and whether that view is quorate: then it is its own anchor."""

    anchor: Anchor
    quorate: bool


def first_anchor(number: ViewNumber, members: Sequence[tuple[str, int]], configured: Sequence[Master]) -> Anchor:
    """The anchor of a view of every configured master, the first one with a level that knows anchors."""
    return Anchor(number, list(members), list(configured))


def next_anchor(
    number: ViewNumber, members: Sequence[tuple[str, int]], reports: Sequence[AnchorReport], log: NextLog
) -> NextAnchor:
    """The anchor of the view of this number, members and log, from all their reports. One of them has an anchor."""
    previous = max((each.anchor for each in reports if each.anchor is not None), key=lambda anchor: anchor.number)
    is_seen = any(each.view == previous.number and each.installed for each in reports)
    under = [] if is_seen else previous.under
    voters = [each.node for each in reports if each.has_voted]
    if not all(_is_majority(electorate, voters) for electorate in (previous.electorate, *under)):
        return NextAnchor(_with_under(previous, under), quorate=False)
    may_elect = _is_majority(log.configured, [node for node, _ in members])
    counted = [previous.electorate, *(each for each in under if each != previous.electorate)]
    anchor = Anchor(
        number,
        list(members),
        list(log.configured) if may_elect else previous.electorate,
        counted,
        [(*origin, seq) for origin, seq in sorted(log.known.items())],
        _doom(previous, reports, log),
    )
    return NextAnchor(anchor, quorate=True)


def _is_majority(electorate: Sequence[Master], nodes: Collection[str]) -> bool:
    return meets_needs(compute_needs(MAJORITY, electorate), electorate, nodes)


def _with_under(anchor: Anchor, under: list[list[Master]]) -> Anchor:
    return Anchor(anchor.number, anchor.members, anchor.electorate, under, anchor.known, anchor.doomed)


def _doom(previous: Anchor, reports: Sequence[AnchorReport], log: NextLog) -> list[Span]:
    """What the anchor doomed stays doomed until its ROLLBACK is in every later base. What it knew else never becomes
    doomed. Of the rest: what is late, and what no quorum of the anchor's view can hold."""
    known, counter = previous.known_seqs(), max(each.counter for each in reports)
    doomed = set(_unsettled(previous.doomed, log.rolled_back))
    span_count = len(join_spans(doomed))
    for candidate in sorted(log.candidates):
        txid = candidate.txid
        if txid.seq <= known.get(txid.origin, 0):
            continue
        if not candidate.is_late(counter) or _may_be_held(txid, previous, reports):
            continue
        adjacent = (Txid(txid.origin, txid.seq - 1) in doomed) + (Txid(txid.origin, txid.seq + 1) in doomed)
        span_count += 1 - adjacent
        if span_count > DOOMED_SPANS_MAX:
            break
        doomed.add(txid)
    return join_spans(doomed)


def _unsettled(doomed: Iterable[Span], rolled_back: Collection[Txid]) -> list[Txid]:
    """The transactions of these spans, but for spans that are rolled back as a whole: no span becomes two."""
    found: list[Txid] = []
    for span in doomed:
        names = [Txid(Origin(span.node, span.birth), span.first_seq + at) for at in range(span.count)]
        if not all(name in rolled_back for name in names):
            found += names
    return found


def _may_be_held(txid: Txid, previous: Anchor, reports: Sequence[AnchorReport]) -> bool:
    """Whether a quorum of the anchor's view may hold a transaction: all its members but those that report without it,
    from the journal that they had there."""
    lacking = {each.node for each in reports if previous.birth_of(each.node) == each.birth and not each.holds(txid)}
    return _is_majority(previous.electorate, [node for node, _ in previous.members if node not in lacking])
