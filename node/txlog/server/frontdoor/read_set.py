"""What a SERIALIZABLE transaction has read: at its commit that must be unchanged (decisions 27 and 58)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from txlog.evaluation.pipe_protocol import CountRequest, MatchRequest, QueryRequest, TransactionStep
from txlog.model.entry import KIND_QUADS
from txlog.model.errors import Refused
from txlog.model.quads import decode_quads
from txlog.server.frontdoor.evaluator_pool import RemoteCopy
from txlog.server.frontdoor.transaction_view import TransactionView
from txlog.sparql import DataFingerprint, EvaluatedUpdate, TransactionBody
from txlog.sparql.analysis.predicates import UnknownPredicates, predicates_of_update
from txlog.sparql.update_effect import PREDICATES_MAX
from txlog.workers.adapter import StoreOperation
from txlog.workers.canonical_literals import lines_with_lower_tags
from txlog.workers.update_batches import OPERATION_SEPARATOR, update_texts

STEPS_MAX: Final = 1000
"""A transaction with more steps is not carried out again; then every change to a predicate that it has read counts."""
STEPS_BYTES_MAX: Final = 4 << 20
"""The same, of the bytes of its changes."""


class ReadSet:
    """The predicates that a transaction has read, and its reads and changes in their order. True once it has read
    something. ``as_written``: stores hold literals as they were sent."""

    def __init__(self, *, as_written: bool = False) -> None:
        self._form = lines_with_lower_tags if as_written else None
        self._predicates: set[str] = set()
        self._reads_all = False
        self._has_reads = False
        self._steps: list[TransactionStep] | None = []
        self._steps_bytes = 0

    def __bool__(self) -> bool:
        return self._has_reads

    def add_read(self, predicates: frozenset[str] | None, read: QueryRequest | MatchRequest | CountRequest) -> None:
        """Adds a read of statements with these predicates (``<iri>``), or with any (None)."""
        self._add_predicates(predicates)
        self._add_step(TransactionStep(read=read), 0)

    def add_change(self, part: TransactionBody) -> None:
        """Adds a change that reads nothing: quads, or the removal of statements from graphs that are not named."""
        self._add_step(TransactionStep(change=part.payload, kind=part.kind), len(part.payload))

    def add_update(self, update: EvaluatedUpdate) -> None:
        """Adds an update, which reads what its patterns name."""
        self._add_predicates(None if update.read_predicates is None else frozenset(update.read_predicates))
        self._add_step(TransactionStep(update=update), len(update.text))

    def _add_predicates(self, predicates: frozenset[str] | None) -> None:
        self._has_reads = True
        if predicates is None:
            self._reads_all = True
        else:
            self._predicates |= predicates

    def _add_step(self, step: TransactionStep, size: int) -> None:
        self._steps_bytes += size
        if self._steps is None or len(self._steps) >= STEPS_MAX or self._steps_bytes > STEPS_BYTES_MAX:
            self._steps = None
        else:
            self._steps.append(step)

    def conditional_update(self, parts: Sequence[TransactionBody]) -> EvaluatedUpdate:
        """These changes as one update, conditional on what they depend on and on what was read."""
        operations = [StoreOperation(part.kind, part.payload) for part in parts]
        text = OPERATION_SEPARATOR.join(update_texts(operations, self._form))
        return EvaluatedUpdate(text, None if self._reads_all else self._predicates_with(parts))

    def _predicates_with(self, parts: Sequence[TransactionBody]) -> tuple[str, ...] | None:
        found = set(self._predicates)
        try:
            for part in parts:
                if part.kind == KIND_QUADS:
                    found.update(line.split(b" ", 2)[1].decode() for _, line in decode_quads(part.payload))
                else:
                    found |= predicates_of_update(part.payload.decode())
        except UnknownPredicates:
            return None
        return tuple(sorted(found)) if len(found) <= PREDICATES_MAX else None

    async def condition(self, view: TransactionView, predicates: tuple[str, ...] | None) -> ReadCondition:
        """That other data is to this transaction as the data which its ``view`` began with. ``predicates``: of the
        conditional update."""
        steps = None if self._steps is None else tuple(self._steps)
        return ReadCondition(view, predicates, await view.fingerprint_before(predicates), steps)


class ReadCondition:
    """Whether a transaction would have read and changed the same in other data: where that has the fingerprint
    ``seen``, or else where the transaction's steps, carried out again, come to the same."""

    def __init__(
        self,
        view: TransactionView,
        predicates: tuple[str, ...] | None,
        seen: DataFingerprint,
        steps: tuple[TransactionStep, ...] | None,
    ) -> None:
        self._view = view
        self._predicates = predicates
        self._seen = seen
        self._steps = steps
        self._digest: bytes | None = None

    async def holds_in(self, copy: RemoteCopy) -> bool:
        """For the data of ``copy``, which is of all quads, or of these predicates at least."""
        if await copy.fingerprint(self._predicates) == self._seen:
            return True
        if self._steps is None or copy.predicates is not None:
            return False
        try:
            if self._digest is None:
                self._digest = await self._view.replay_before(self._steps)
            return await copy.replay(self._steps) == self._digest
        except Refused:
            return False  # something that went well before takes too much there, or fails
