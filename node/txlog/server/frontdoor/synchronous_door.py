"""Makes a write synchronous where a rule or its request asks for it: by the graphs that it may write.

The kind and key of a synchronous transaction say its terms. Both are part of its content, so that no master judges it
again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from txlog.http.write_options import WriteOptions
from txlog.model.configuration import Configuration
from txlog.model.durability import Durability
from txlog.model.entry import KIND_QUADS, KIND_UPDATE, RunItem
from txlog.model.errors import JournalDamaged, KeyTaken, Refused, Unavailable
from txlog.model.graph_set import NO_GRAPH, GraphSet, WrittenGraphs
from txlog.model.hashes import content_hash
from txlog.model.ids import Txid
from txlog.model.quorum import format_quorum, implies_quorum
from txlog.model.synchronous import (
    NO_REQUEST,
    GraphRule,
    SynchronousRequest,
    SynchronousTerms,
    compute_terms,
    least_timeout,
)
from txlog.model.synchronous_entry import (
    KIND_SYNCHRONOUS_QUADS,
    KIND_SYNCHRONOUS_UPDATE,
    SYNCHRONOUS_KINDS,
    SynchronousKey,
    decode_synchronous_key,
    encode_synchronous_key,
    idempotency_key_of,
)
from txlog.protocol.events import Submission, SubmissionAccepted
from txlog.runtime.master_status import MasterStatus
from txlog.sparql import TransactionBody
from txlog.sparql.analysis.written_graphs import find_written_graphs

_KINDS = {KIND_UPDATE: KIND_SYNCHRONOUS_UPDATE, KIND_QUADS: KIND_SYNCHRONOUS_QUADS}
NO_RULES: Sequence[GraphRule] = ()
_NOTHING_LOGGED = ("NoQuorum", "SynchroNone", "SynchroFull")
"""Reasons for which a master takes no new synchronous transaction."""
OFF_LOOP_BYTES = 64 << 10
"""A longer payload is read in a thread: some 10 milliseconds of an update, in which the loop would serve nothing."""
KNOWN_TERMS_MAX = 1024
KNOWN_GRAPHS_MAX = 4
"""The terms of a write to more graphs are not kept: a body may name as many as fit it."""


class KnownTerms(NamedTuple):
    """The terms that these rules give to writes of these graphs."""

    rules: Sequence[GraphRule]
    terms: dict[WrittenGraphs, SynchronousTerms | None]


class SynchronousDoor:
    """``configuration``: the one in force at the stable end of this master's log."""

    def __init__(self, configuration: Callable[[], Configuration | None]) -> None:
        self._configuration = configuration
        self._known: KnownTerms = KnownTerms(NO_RULES, {})

    @property
    def rules(self) -> Sequence[GraphRule]:
        """The rules in force."""
        now = self._configuration()
        return NO_RULES if now is None else now.graphs

    def convert(self, one: Submission, request: SynchronousRequest) -> Submission:
        """The submission as it is logged. :class:`BadInput` where the request asks for less than a rule."""
        rules = self.rules
        if (not rules and request is NO_REQUEST) or one.kind not in _KINDS:
            return one
        terms = self._find_terms(one, rules, request)
        if terms is None:
            return one
        kind, key = _KINDS[one.kind], encode_synchronous_key(SynchronousKey(terms.quorum, terms.timeout_ms, one.key))
        return Submission(kind, key, one.payload, content_hash(kind, key, one.payload))

    async def convert_off_loop(self, one: Submission, request: SynchronousRequest) -> Submission:
        """As :meth:`convert`. A long payload delays no other request, and no message to the other masters."""
        if len(one.payload) < OFF_LOOP_BYTES or (not self.rules and request is NO_REQUEST):
            return self.convert(one, request)
        return await asyncio.get_running_loop().run_in_executor(None, self.convert, one, request)

    def _find_terms(
        self, one: Submission, rules: Sequence[GraphRule], request: SynchronousRequest
    ) -> SynchronousTerms | None:
        written = find_written_graphs(TransactionBody(one.kind, one.payload, 0)) if rules else NO_GRAPH
        if request is not NO_REQUEST or (isinstance(written, GraphSet) and len(written.named) > KNOWN_GRAPHS_MAX):
            return compute_terms(written, rules, request)
        known = self._known  # other threads may replace it
        if known.rules is not rules or len(known.terms) >= KNOWN_TERMS_MAX:
            self._known = known = KnownTerms(rules, {})
        if written not in known.terms:
            known.terms[written] = compute_terms(written, rules, request)
        return known.terms[written]


def is_synchronous(one: Submission) -> bool:
    """Whether the submission takes effect only where a quorum holds it."""
    return one.kind in SYNCHRONOUS_KINDS


class RecognisedAnswer(NamedTuple):
    """``is_synchronous``: whether the transaction that ``answer`` names takes effect only where a quorum holds it."""

    answer: SubmissionAccepted | Refused
    is_synchronous: bool


def recognise_repeat(
    status: MasterStatus,
    one: Submission,
    answer: SubmissionAccepted | Refused,
    request: SynchronousRequest = NO_REQUEST,
) -> RecognisedAnswer:
    """The answer to a submission, for a client that asked for ``request``. Two refusals are not true of a repeat:

    A master without a quorum refuses a submission before it looks for its key, and tells that nothing was logged. And
    a rule that has changed since the first try changes the terms, which are a part of the content. So the key seems to
    have come with another body."""
    found = RecognisedAnswer(answer, is_synchronous(one))
    log = status.log_state
    if log is None or not _may_be_untrue(answer):
        return found
    key = idempotency_key_of(one.kind, one.key)
    first = log.keys.find_first_use(key, log.last_stamp) if key else None
    if first is None:
        return found
    item = _read_first_try(status, first.txid)
    if item is None and isinstance(answer, Unavailable) and one.content.startswith(first.content):
        return found._replace(answer=SubmissionAccepted(first.txid, repeat=True))  # the journal knows no more of it
    if item is None or item.payload != one.payload or _ordinary_kind(item.kind) != _ordinary_kind(one.kind):
        return found
    if not _meets(item, request):
        return found._replace(answer=_other_terms(key, item, first.txid))
    return RecognisedAnswer(SubmissionAccepted(first.txid, repeat=True), item.kind in SYNCHRONOUS_KINDS)


def _may_be_untrue(answer: SubmissionAccepted | Refused) -> bool:
    if isinstance(answer, Unavailable):
        return answer.reason in _NOTHING_LOGGED
    return isinstance(answer, KeyTaken)


def _read_first_try(status: MasterStatus, txid: Txid) -> RunItem | None:
    """The transaction, if this master's journal still has it."""
    try:
        items = status.read_transactions(*txid.origin, txid.seq, 1, 1).items
    except JournalDamaged:
        return None
    return items[0] if items else None


def _ordinary_kind(kind: int) -> int:
    return next((ordinary for ordinary, synchronous in _KINDS.items() if synchronous == kind), kind)


def _meets(item: RunItem, request: SynchronousRequest) -> bool:
    """Whether a transaction in the log promises what the request asks for, or more."""
    if request == NO_REQUEST or request.declined:
        return True
    if item.kind not in SYNCHRONOUS_KINDS:
        return False
    terms = decode_synchronous_key(item.key)
    if request.quorum is not None and not implies_quorum(terms.quorum, request.quorum):
        return False
    return request.timeout_ms is None or least_timeout([terms.timeout_ms, request.timeout_ms]) == terms.timeout_ms


def _other_terms(key: str, item: RunItem, txid: Txid) -> KeyTaken:
    came = "not as a synchronous transaction"
    if item.kind in SYNCHRONOUS_KINDS:
        terms = decode_synchronous_key(item.key)
        came = f"with the quorum {format_quorum(terms.quorum)} and a time-out of {terms.timeout_ms} ms"
    return KeyTaken(
        f"Idempotency-Key {key[:80]!r} came before, {came}, and that counts; repeat it without terms of its own to be "
        f"answered about {txid}"
    )


def level_of(asked: WriteOptions) -> Durability:
    """The level that a synchronous write waits for. A cluster's default of ``accepted`` promises less than the rule
    asks for, so it is ``quorum``; a request that names ``accepted`` does not wait."""
    if asked.level is Durability.ACCEPTED and not asked.names_level:
        return Durability.QUORUM
    return asked.level
