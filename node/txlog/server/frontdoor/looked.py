"""What a SERIALIZABLE transaction has looked at: at its commit that must be as it was (decision 27)."""

from __future__ import annotations

from collections.abc import Sequence

from txlog.model.entry import KIND_QUADS
from txlog.model.quads import decode_quads
from txlog.sparql import Evaluated, Prepared
from txlog.sparql.effects import PREDICATES_MAX
from txlog.sparql.looks import Everything, predicates_of_update
from txlog.workers.base import Operation
from txlog.workers.netting import JOIN, update_texts


class Looked:
    """True once it has read something."""

    def __init__(self) -> None:
        self._predicates: set[str] = set()
        self._everything = False
        self._read = False

    def __bool__(self) -> bool:
        return self._read

    def at(self, predicates: frozenset[str] | None) -> None:
        """Statements with these predicates (``<iri>``), or with any."""
        self._read = True
        if predicates is None:
            self._everything = True
        else:
            self._predicates |= predicates

    def update_of(self, parts: Sequence[Prepared]) -> Evaluated:
        """These changes as one update that looks at what they do and at what was read."""
        text = JOIN.join(update_texts([Operation(part.kind, part.payload) for part in parts]))
        return Evaluated(text, None if self._everything else self._with(parts))

    def _with(self, parts: Sequence[Prepared]) -> tuple[str, ...] | None:
        found = set(self._predicates)
        try:
            for part in parts:
                if part.kind == KIND_QUADS:
                    found.update(line.split(b" ", 2)[1].decode() for _, line in decode_quads(part.payload))
                else:
                    found |= predicates_of_update(part.payload.decode())
        except Everything:
            return None
        return tuple(sorted(found)) if len(found) <= PREDICATES_MAX else None
