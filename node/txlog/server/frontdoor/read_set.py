"""What a SERIALIZABLE transaction has read: at its commit that must be unchanged (decision 27)."""

from __future__ import annotations

from collections.abc import Sequence

from txlog.model.entry import KIND_QUADS
from txlog.model.quads import decode_quads
from txlog.sparql import EvaluatedUpdate, TransactionBody
from txlog.sparql.analysis.predicates import UnknownPredicates, predicates_of_update
from txlog.sparql.update_effect import PREDICATES_MAX
from txlog.workers.adapter import StoreOperation
from txlog.workers.update_batches import OPERATION_SEPARATOR, update_texts


class ReadSet:
    """The predicates that a transaction has read. True once it has read something."""

    def __init__(self) -> None:
        self._predicates: set[str] = set()
        self._reads_all = False
        self._has_reads = False

    def __bool__(self) -> bool:
        return self._has_reads

    def add(self, predicates: frozenset[str] | None) -> None:
        """Adds statements with these predicates (``<iri>``), or with any (None)."""
        self._has_reads = True
        if predicates is None:
            self._reads_all = True
        else:
            self._predicates |= predicates

    def conditional_update(self, parts: Sequence[TransactionBody]) -> EvaluatedUpdate:
        """These changes as one update, conditional on what they depend on and on what was read."""
        text = OPERATION_SEPARATOR.join(update_texts([StoreOperation(part.kind, part.payload) for part in parts]))
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
