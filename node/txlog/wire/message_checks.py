"""What a decoded message must fulfil beyond the bounds of each value (:mod:`txlog.model.bounds`): the parts of one
message fit each other (rule 32).

Every count is compared with the bytes that came with it, before anything is expanded by it. Each function returns what
is wrong, in words; empty when nothing is.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from txlog.model.anchor import DOOMED_SPANS_MAX, ELECTORATES_MAX, Anchor
from txlog.model.bounds import COUNT_MAX, KEY_BYTES_MAX, NODE_CHARACTERS_MAX, SLOTS_MAX
from txlog.model.configuration import MASTERS_MAX, Configuration
from txlog.model.entry import Span
from txlog.model.hashes import HASH_BYTES
from txlog.model.ids import NODE_ID
from txlog.model.records import LogStart, ReassignedStamps, SynchronousState
from txlog.model.stamp import STAMP_MAX
from txlog.model.synchronous_entry import SYNCHRONOUS_AND_DECISION, key_error
from txlog.model.view import NO_VIEW, STRATEGIES, Member, View, bootstrap_view

if TYPE_CHECKING:
    from txlog.wire.messages import AcceptView, HelloReply, QueuedTransactions, ViewReport

DECIDED_NAMES_MAX: Final = 50_000_000
"""Rolled-back transactions that a log start may name; each takes memory."""
_BIRTH_MAX: Final = (1 << 64) - 1
_STAMP_BYTES: Final = 8


def _is_count(value: int) -> bool:
    return 0 <= value <= COUNT_MAX


def _is_origin(node: str, birth: int) -> bool:
    return NODE_ID.fullmatch(node) is not None and 0 <= birth <= _BIRTH_MAX


def _is_stamp(value: int) -> bool:
    return 0 <= value <= STAMP_MAX // 2


def _total(spans: list[Span]) -> int:
    return sum(span.count for span in spans)


def members_error(members: list[Member]) -> str:
    """Of the members of a view."""
    if not 1 <= len(members) <= MASTERS_MAX or len({m.node for m in members}) < len(members):
        return f"{len(members)} members: expected 1 to {MASTERS_MAX}, each node once"
    return ""


def configuration_error(configuration: Configuration | None) -> str:
    """Of a configuration: its numbers. Its meaning is checked where it takes effect."""
    if configuration is None:
        return ""
    numbers = [configuration.key_retention_ms, configuration.version, *(m.weight for m in configuration.masters)]
    if not all(_is_count(number) for number in numbers) or len(configuration.masters) > MASTERS_MAX:
        return "a number of the configuration is out of bounds"
    return ""


def anchor_error(anchor: Anchor | None) -> str:
    """Of what a view says of the latest quorate one. None is right."""
    if anchor is None:
        return ""
    nodes = [node for node, _ in anchor.members]
    electorates = [anchor.electorate, *anchor.under]
    if not 1 <= len(nodes) <= MASTERS_MAX or len(set(nodes)) < len(nodes) or len(anchor.voters) > SLOTS_MAX:
        return f"an anchor with {len(nodes)} members and {len(anchor.voters)} voters"
    if len(electorates) > ELECTORATES_MAX or any(len(each) > MASTERS_MAX for each in electorates):
        return f"an anchor with {len(electorates)} electorates, or with one of too many masters"
    if any(not _is_count(master.weight) for each in electorates for master in each):
        return "a vote weight of an anchor is out of bounds"
    if len(anchor.known) > SLOTS_MAX or len(anchor.doomed) > DOOMED_SPANS_MAX:
        return f"an anchor with {len(anchor.known)} incarnations and {len(anchor.doomed)} spans"
    if any(not _is_count(span.first_seq + span.count) for span in anchor.doomed):
        return "a span of an anchor is out of bounds"
    return ""


def view_error(view: View | None) -> str:
    """Of a view. None is right."""
    if view is None:
        return ""
    wrong = (
        members_error(view.members) or configuration_error(view.bootstrap_configuration) or anchor_error(view.anchor)
    )
    if wrong:
        return wrong
    origins = set(view.origins)
    if len(view.origins) > SLOTS_MAX or len(origins) < len(view.origins):
        return f"{len(view.origins)} incarnations in a view: expected at most {SLOTS_MAX}, each once"
    if not all(_is_origin(*one) for one in view.origins) or any(m.origin not in origins for m in view.members):
        return "a view with an incarnation that is none, or without one of its members"
    numbers = [view.epoch, view.ballot, view.base_index, *view.known_seqs, abs(view.diverged_index)]
    named = [view.lineage_start, *view.ancestors, *view.foreign_views]
    numbers += [view.level, *(number for epoch, ballot, _ in named for number in (epoch, ballot))]
    if not all(_is_count(number) for number in numbers) or not _is_stamp(view.floor):
        return "a number of the view is out of bounds"
    if view.lineage_start not in (NO_VIEW, *view.ancestors):
        return "a lineage that begins with a view that is not listed"
    if len(view.coordinator) > NODE_CHARACTERS_MAX or len(view.base_hash) != HASH_BYTES:
        return "a coordinator or a hash of another length"
    if len(view.cluster_id) != HASH_BYTES or len(view.known_seqs) not in (0, len(view.origins)):
        return "a cluster id or a vector of another length"
    if len(view.strategies) not in (0, len(view.ancestors)) or len(view.preferred_strategies) not in (
        0,
        len(view.members),
    ):
        return "a list of strategies of another length"
    strategies = {view.strategy, *view.strategies, *view.preferred_strategies}
    unknown = sorted(strategies - set(STRATEGIES))
    if unknown:
        return f"unknown strategies: {', '.join(unknown)[:80]}"
    return "" if view.ancestors or view == _as_founded(view) else "a view without ancestors that begins no cluster"


def _as_founded(view: View) -> View:
    """View 1 with what a founding may choose of it."""
    return bootstrap_view(
        view.ballot,
        view.coordinator,
        view.members,
        view.strategy,
        view.bootstrap_configuration,
        view.preferred_strategies,
        view.level,
    )


def queued_error(queued: list[QueuedTransactions]) -> str:
    """Of transactions in a report: a stamp and a hash of each."""
    if any(len(one.contents) != HASH_BYTES * len(one.stamps) for one in queued):
        return "stamps and contents of transactions do not match"
    return ""


def report_error(report: ViewReport) -> str:
    """Of a report."""
    count = _total(report.tail)
    if len(report.hashes) != HASH_BYTES * count or report.shared.index + count != report.log.index:
        return f"a log of {report.log.index} after {report.shared.index}, with {count} entries between them"
    if report.stable > report.log.index:
        return f"a log of {report.log.index} that is stable up to {report.stable}"
    if report.prefers not in STRATEGIES:
        return f"unknown strategy: {report.prefers[:40]}"
    return (
        view_error(report.view)
        or queued_error([*report.pending, *report.parked])
        or next(filter(None, (named_error(one.kind, one.key) for one in report.limbo)), "")
    )


def named_error(kind: int, key: str) -> str:
    """Of a synchronous transaction or a decision that comes without its payload."""
    if kind not in SYNCHRONOUS_AND_DECISION:
        return f"kind {kind} is no synchronous transaction and no decision"
    return key_error(kind, key)


def accept_error(accept: AcceptView) -> str:
    """Of the next view with its base and its queue."""
    view, count = accept.view, _total(accept.spans)
    wrong = view_error(view)
    if wrong:
        return wrong
    if len(accept.stamps) != _STAMP_BYTES * count or accept.cut + count != view.base_index:
        return f"a base of {view.base_index} after {accept.cut}, with {count} entries between them"
    origins = set(view.origins)
    named = {(one.node, one.birth) for one in accept.spans} | {(one.node, one.birth) for one in accept.waiting}
    if not named <= origins:
        return "transactions of an incarnation that is not in the view"
    stamps = array("Q", accept.stamps)
    if stamps and max(stamps) > view.floor:
        return "a stamp in the base lies above the floor of the view"
    return _waiting_error(accept.waiting, view.floor)


def _waiting_error(waiting: list[ReassignedStamps], floor: int) -> str:
    for several in waiting:
        last = floor
        for stamp in several.stamps:
            if stamp <= last:
                return "stamps of the next queue must grow from above the floor of the view"
            last = stamp
    return ""


def hello_reply_error(known: HelloReply) -> str:
    """Of the reply to a hello."""
    if len(known.held) > SLOTS_MAX + 1:
        return f"{len(known.held)} incarnations: expected at most {SLOTS_MAX}"
    return view_error(known.accepted) or configuration_error(known.configuration)


def log_start_error(start: LogStart, index: int) -> str:
    """Of a snapshot that came as the log start at ``index``."""
    if start.index != index or len(start.hash) != HASH_BYTES or not _is_stamp(start.stamp):
        return f"a log start at {start.index} instead of {index}, or with another hash or stamp than there can be"
    origins = {(node, birth) for node, birth, _ in start.seqs}
    if len(start.seqs) > SLOTS_MAX or len(origins) < len(start.seqs) or tuple(start.last) not in origins:
        return "the incarnations of the log start do not match"
    if any(not _is_origin(node, birth) or not 1 <= seq <= index for node, birth, seq in start.seqs):
        return "a last seq of an incarnation is out of bounds"
    for key in start.keys:
        if not _is_origin(key.node, key.birth) or not 0 <= key.seq < 1 << 48 or not _is_stamp(key.stamp):
            return "the transaction of an idempotency key is out of bounds"
        if len(key.content) != HASH_BYTES or len(key.key.encode()) > KEY_BYTES_MAX:
            return "an idempotency key is out of bounds"
    for branch in start.abandoned_branches:
        if not _is_count(branch.after) or len(branch.hashes) != HASH_BYTES * _total(branch.spans):
            return "an abandoned branch has another number of hashes than entries"
    since, configuration = start.configuration or (0, None)
    numbers = [since, start.retention, *(number for one in start.retentions for number in one)]
    numbers += [start.keys_index, *(number for index, _, _, seq in start.noops for number in (index, seq))]
    if not all(_is_count(number) for number in (*numbers, start.served_from, *(at for _, at in start.skips))):
        return "a number of the log start is out of bounds"
    return synchronous_error(start.synchronous) or configuration_error(configuration)


def synchronous_error(state: SynchronousState | None) -> str:
    """Of what a log start says about synchronous transactions. None is right."""
    if state is None:
        return ""
    names = [(one.node, one.birth, one.seq) for one in state.open]
    names += [row[:3] for row in state.early] + [name for _, *some in state.repeats for name in some]
    if not all(_is_origin(node, birth) and 1 <= seq <= COUNT_MAX for node, birth, seq in names):
        return "a synchronous transaction of the log start is out of bounds"
    spans = [*state.rolled_back, *(span for _, some in state.idle_names for span in some)]
    if sum(span.count for span in spans) > DECIDED_NAMES_MAX:
        return f"the log start names more than {DECIDED_NAMES_MAX} decided transactions"
    numbers = [state.index, *state.early_commits, *(one.index for one in state.open)]
    numbers += [number for row in state.reaches for number in row] + [at for at, _ in state.idle_names]
    stamps = [*(one.stamp for one in state.open), *(row[4] for row in state.early)]
    if not all(_is_count(number) for number in numbers) or not all(_is_stamp(stamp) for stamp in stamps):
        return "a number of what the log start says about synchronous transactions is out of bounds"
    errors = (named_error(one.kind, one.key) for one in state.open if len(one.content) == HASH_BYTES)
    return next(filter(None, errors), "")
