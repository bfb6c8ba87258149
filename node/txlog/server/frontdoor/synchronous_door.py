"""Makes a write synchronous where a rule or its request asks for it: by the graphs that it may write.

The kind and key of a synchronous transaction say its terms. Both are part of its content, so that no master judges it
again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from txlog.http.write_options import WriteOptions
from txlog.model.configuration import Configuration
from txlog.model.durability import Durability
from txlog.model.entry import KIND_QUADS, KIND_UPDATE
from txlog.model.errors import Refused, Unavailable
from txlog.model.graph_set import NO_GRAPH
from txlog.model.hashes import content_hash
from txlog.model.synchronous import (
    NO_REQUEST,
    GraphRule,
    SynchronousRequest,
    SynchronousTerms,
    compute_terms,
)
from txlog.model.synchronous_entry import (
    KIND_SYNCHRONOUS_QUADS,
    KIND_SYNCHRONOUS_UPDATE,
    SYNCHRONOUS_KINDS,
    SynchronousKey,
    encode_synchronous_key,
    idempotency_key_of,
)
from txlog.protocol.events import Submission, SubmissionAccepted
from txlog.protocol.log.log_state import LogState
from txlog.sparql import TransactionBody
from txlog.sparql.analysis.written_graphs import find_written_graphs

_KINDS = {KIND_UPDATE: KIND_SYNCHRONOUS_UPDATE, KIND_QUADS: KIND_SYNCHRONOUS_QUADS}
NO_RULES: Sequence[GraphRule] = ()
_NOTHING_LOGGED = ("NoQuorum", "SynchroNone", "SynchroFull")
"""Reasons for which a master takes no new synchronous transaction."""
OFF_LOOP_BYTES = 64 << 10
"""A longer payload is read in a thread: some 10 milliseconds of an update, in which the loop would serve nothing."""


class SynchronousDoor:
    """``configuration``: the one in force at the stable end of this master's log."""

    def __init__(self, configuration: Callable[[], Configuration | None]) -> None:
        self._configuration = configuration

    @property
    def rules(self) -> Sequence[GraphRule]:
        """The rules in force."""
        now = self._configuration()
        return NO_RULES if now is None else now.graphs

    def convert(self, one: Submission, request: SynchronousRequest) -> Submission:
        """The submission as it is logged. :class:`BadInput` where the request asks for less than a rule, or for what
        this program does not serve."""
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

    @staticmethod
    def _find_terms(
        one: Submission, rules: Sequence[GraphRule], request: SynchronousRequest
    ) -> SynchronousTerms | None:
        written = find_written_graphs(TransactionBody(one.kind, one.payload, 0)) if rules else NO_GRAPH
        return compute_terms(written, rules, request)


def is_synchronous(one: Submission) -> bool:
    """Whether the submission takes effect only where a quorum holds it."""
    return one.kind in SYNCHRONOUS_KINDS


def recognise_repeat(
    log: LogState | None, one: Submission, answer: SubmissionAccepted | Refused
) -> SubmissionAccepted | Refused:
    """The answer to a submission. A master without a quorum refuses it before it looks for its key. If an earlier try
    is persisted here, it is not true that nothing was logged: the submission repeats that one."""
    if log is None or not isinstance(answer, Unavailable) or answer.reason not in _NOTHING_LOGGED:
        return answer
    key = idempotency_key_of(one.kind, one.key)
    first = log.keys.find_first_use(key, log.last_stamp) if key else None
    if first is None or not one.content.startswith(first.content):
        return answer
    return SubmissionAccepted(first.txid, repeat=True)


def level_of(asked: WriteOptions) -> Durability:
    """The level that a synchronous write waits for. A cluster's default of ``accepted`` promises less than the rule
    asks for, so it is ``quorum``; a request that names ``accepted`` does not wait."""
    if asked.level is Durability.ACCEPTED and not asked.names_level:
        return Durability.QUORUM
    return asked.level
