"""The anchor of the next view, from the reports: whether it is quorate, and what it dooms (rules S4, S5, S8, S9).

The rules are in ``anchors.py``. Here they get what the reports and this master's log say: a pure function of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from txlog.model.anchor import Anchor
from txlog.model.configuration import Master
from txlog.model.entry import Span
from txlog.model.ids import Origin, Txid
from txlog.model.records import ReassignedStamps
from txlog.model.synchronous_entry import (
    KIND_DECISION,
    SYNCHRONOUS_KINDS,
    decode_decision,
    decode_synchronous_key,
)
from txlog.model.view import NO_VIEW, Member, Number
from txlog.protocol.log.limbo import Limbo, LimboEntry
from txlog.protocol.log.log_index import LogIndex
from txlog.protocol.log.synchronous_effects import SynchronousEffects
from txlog.protocol.views.anchors import AnchorReport, Candidate, NextLog, first_anchor, next_anchor
from txlog.protocol.views.branch_selection import InsufficientReports
from txlog.protocol.views.log_merge import MergedLog, TransactionRefs
from txlog.wire.messages import ViewReport
from txlog.wire.protocol_level import LEVEL_SYNCHRONOUS
from txlog.wire.report_parts import SynchronousReference

References = Mapping[Txid, SynchronousReference]


class OwnSynchronous(NamedTuple):
    """What the computing master brings. ``effects``: of its log. ``references``: of the part of its log that may still
    change, and of its queue. ``may_begin``: its configuration allows synchronous transactions, so that a view without
    an anchor before it may have the first one. ``given_up``: masters whose votes an operator has given up for good."""

    effects: SynchronousEffects
    references: References
    may_begin: bool
    given_up: frozenset[str] = frozenset()


class NextViewLog(NamedTuple):
    """What the next view begins with. ``known``: the last seq of each origin in base and queue. ``refs``: stamps that
    the reports name. ``settled``: the index up to which every later base is the same."""

    base: MergedLog
    waiting: Sequence[ReassignedStamps]
    known: Mapping[Origin, int]
    refs: TransactionRefs
    settled: int
    configured: Sequence[Master]


def named_references(own: OwnSynchronous | None, reports: Sequence[ViewReport]) -> References:
    """The synchronous transactions and decisions that the reports or this master name."""
    found = dict(own.references) if own is not None else {}
    for report in reports:
        for one in report.limbo:
            found[Txid(Origin(one.node, one.birth), one.seq)] = one
    return found


def compute_anchor(
    number: Number,
    members: Sequence[Member],
    reports: Sequence[ViewReport],
    closed: NextViewLog,
    history: LogIndex,
    own: OwnSynchronous | None,
) -> Anchor | None:
    """The anchor that the next view carries; None while the cluster has none. ``history``: this master's log.
    :class:`InsufficientReports` when a member's program is too old to read anchors."""
    anchors = [report.view.anchor for report in reports if report.view is not None and report.view.anchor is not None]
    births = [(member.node, member.birth) for member in members]
    older = [report.node for report in reports if report.level < LEVEL_SYNCHRONOUS]
    if not anchors:
        nodes = {member.node for member in members}
        is_whole = bool(closed.configured) and {master.node for master in closed.configured} <= nodes
        if own is None or not own.may_begin or older or not is_whole:
            return None
        return msgspec.structs.replace(first_anchor(number, births, closed.configured), voters=births)
    if older:
        raise InsufficientReports(f"the program of {', '.join(older)} cannot read anchors; update it")
    assert own is not None, "a cluster with an anchor has a configuration"
    voters = _voters(anchors, reports)
    folded = _fold(closed, history, own, named_references(own, reports))
    doomed = {txid for anchor in anchors for txid in anchor.doomed_names()}
    log = NextLog(
        closed.configured,
        closed.known,
        folded.candidates,
        {txid for txid in doomed if 0 < folded.limbo.rolled_back.get(txid, 0) <= closed.settled},
    )
    given = [_anchor_report(report, voters, history, own.given_up) for report in reports]
    found = next_anchor(number, births, given, log)
    return msgspec.structs.replace(found.anchor, voters=sorted(voters))


def _voters(anchors: Sequence[Anchor], reports: Sequence[ViewReport]) -> set[tuple[str, int]]:
    """The births that have accepted a quorate view, or were in the first one: before that, none could have been
    forgotten. A node that reports has no other birth any more."""
    found = {voter for anchor in anchors for voter in anchor.voters}
    found |= {(report.node, report.birth) for report in reports if report.view is not None and report.view.is_quorate}
    births = {report.node: report.birth for report in reports}
    return {(node, birth) for node, birth in found if births.get(node, birth) == birth}


def _without(anchor: Anchor, given_up: frozenset[str]) -> Anchor:
    """The anchor as if these masters had had no votes, and held nothing."""
    if not given_up:
        return anchor
    electorates = [[m for m in each if m.node not in given_up] for each in (anchor.electorate, *anchor.under)]
    members = [(node, birth) for node, birth in anchor.members if node not in given_up]
    return msgspec.structs.replace(anchor, members=members, electorate=electorates[0], under=electorates[1:])


def _anchor_report(
    report: ViewReport, voters: set[tuple[str, int]], history: LogIndex, given_up: frozenset[str]
) -> AnchorReport:
    view = report.view
    return AnchorReport(
        report.node,
        report.birth,
        view.number if view is not None else NO_VIEW,
        view is not None and report.installed,
        _without(view.anchor, given_up) if view is not None and view.anchor is not None else None,
        (report.node, report.birth) in voters,
        report.counter,
        _held_seqs(report, history),
    )


def _held_seqs(report: ViewReport, history: LogIndex) -> dict[Origin, int]:
    """The last seq of each origin that the reporting master holds in its view; it holds all before it. What it parks
    came after its view was closed: no COMMIT of that view, or of one before it, can have counted it."""
    held: dict[Origin, int] = {}
    if report.log.index >= history.start:
        index = min(max(report.shared.index, history.start), history.length)
        held = {Origin(node, birth): seq for node, birth, seq in history.seqs_at(index)}
    for origin, last in _last_seqs(report):
        held[origin] = max(held.get(origin, 0), last)
    return held


def _last_seqs(report: ViewReport) -> Iterator[tuple[Origin, int]]:
    for span in report.tail:
        yield Origin(span.node, span.birth), span.first_seq + span.count - 1
    for queued in report.pending:
        yield queued.origin, queued.first_seq + len(queued.stamps) - 1


class _Folded(NamedTuple):
    """``limbo``: at the end of the base. ``candidates``: what no decision of base or queue names."""

    limbo: Limbo
    candidates: list[Candidate]


def _fold(closed: NextViewLog, history: LogIndex, own: OwnSynchronous, named: References) -> _Folded:
    base, known_until = closed.base, own.effects.known_until
    if base.base_index < own.effects.limbo.final_index and base.base_index < history.length:
        raise InsufficientReports(f"the base would be cut at {base.base_index}, below what is final here")
    limbo = own.effects.limbo.copy_at(max(base.base_index, own.effects.limbo.final_index))
    places = _places(base, named)

    def place_of(txid: Txid) -> int:
        index = history.index_of(txid.origin, txid.seq)
        if 0 < index <= base.base_index:
            return index
        return places.get(txid, 0) or (history.start if history.is_trimmed(txid.origin, txid.seq) else 0)

    for txid, index in places.items():  # in the order of the base
        one = named[txid]
        if index > known_until:
            stamp = base.stamps[index - base.base_index - 1]
            limbo.apply(LimboEntry(index, txid, one.kind, one.key, stamp, b""), place_of)
    undecided = {txid: (one.stamp, one.key.timeout_ms) for txid, one in limbo.open.items()}
    decided = set(limbo.early)
    for txid in _waiting_names(closed.waiting, named):
        one = named[txid]
        if one.kind == KIND_DECISION:
            decided.update(decode_decision(one.key).names())
        elif one.kind in SYNCHRONOUS_KINDS:
            undecided[txid] = (_stamp_of(closed.refs, txid), decode_synchronous_key(one.key).timeout_ms)
    candidates = [
        Candidate(min(stamp, _stamp_of(closed.refs, txid, stamp)), txid, timeout_ms)
        for txid, (stamp, timeout_ms) in undecided.items()
        if txid not in decided
    ]
    return _Folded(limbo, candidates)


def _stamp_of(refs: TransactionRefs, txid: Txid, default: int = 0) -> int:
    """The least stamp that a report names."""
    cell = refs.get(txid.origin, {}).get(txid.seq)
    return cell.stamp if cell is not None else default


def _places(base: MergedLog, named: References) -> dict[Txid, int]:
    """The indices of the named transactions in the part of the base that the reports bring, in its order."""
    found: dict[Txid, int] = {}
    index = base.base_index
    for span in base.spans:
        for txid in _names(span) if named else ():
            if txid in named:
                found[txid] = index + txid.seq - span.first_seq + 1
        index += span.count
    return found


def _names(span: Span) -> Iterator[Txid]:
    origin = Origin(span.node, span.birth)
    return (Txid(origin, seq) for seq in range(span.first_seq, span.first_seq + span.count))


def _waiting_names(waiting: Sequence[ReassignedStamps], named: References) -> Iterator[Txid]:
    for several in waiting:
        origin = Origin(several.node, several.birth)
        for seq in range(several.first_seq, several.first_seq + len(several.stamps)):
            txid = Txid(origin, seq)
            if txid in named:
                yield txid
