"""An in-memory copy of the data at one position of the log. It follows the log; updates are evaluated once on it.

Everything here blocks and may use any time and memory: it runs in a bounded process (``evaluator_process.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import IO, Any, Final

import msgspec
import pyoxigraph as ox

from txlog.config.units import AS_WRITTEN
from txlog.evaluation.form_rewriter import may_compute
from txlog.evaluation.literal_forms import LiteralForms, decode_bytes, decode_text, encode_term
from txlog.model.entry import KIND_QUADS, Position
from txlog.model.errors import BadInput, Conflict, TooLarge, Unavailable
from txlog.model.quads import encode_quads
from txlog.sparql import (
    EFFECT_CONDITION,
    DataFingerprint,
    EvaluatedOperation,
    EvaluatedUpdate,
    RandomBits,
    Skolemiser,
    TransactionBody,
    UnknownPredicates,
    build_effect,
    fingerprint_query,
    is_valid_update,
    restrict_to_predicates,
)
from txlog.sparql.update_effect import TRIPLE_DEPTH_MAX
from txlog.workers.adapter import EMPTY_MARKER, Adapter, StoreOperation
from txlog.workers.canonical_literals import lines_with_lower_tags
from txlog.workers.update_batches import OPERATION_SEPARATOR, update_texts

QUADS_READ_MAX: Final = 100_000
"""Quads that an update may read. Every worker reads all of them when it applies the effect, 10 to 40 us each."""


PARTIAL_COPY: Final = "OnlyAPart"
"""Reason of :class:`Unavailable`: the copy holds too few predicates to follow the log. It never reaches a client."""


class UpdateEffect(msgspec.Struct, frozen=True):
    """The effect of an evaluation, as a transaction with its condition. ``fingerprint``: of the quads that it read."""

    body: TransactionBody
    fingerprint: DataFingerprint


class DatasetCopy:
    """A copy of the data. ``quads``: the quads after the entry at ``position``: all with one of ``predicates``
    (``<iri>``), or all quads (None). ``forms``: the copy has literals as they were sent, as its store; None: in their
    canonical form."""

    def __init__(
        self,
        quads: Iterable[ox.Quad],
        position: Position,
        predicates: frozenset[str] | None = None,
        forms: LiteralForms | None = None,
    ) -> None:
        self.store = ox.Store()
        self.forms = forms
        self.store.bulk_extend(self._encoded(quads))
        self.position = position
        self.predicates = predicates

    @property
    def has_quads(self) -> bool:
        """Whether the copy holds a quad in any graph."""
        return any(True for _ in self.store)

    def query(self, text: str, **dataset: Any) -> ox.QuerySolutions | ox.QueryBoolean | ox.QueryTriples:
        """The result of a query, as :meth:`pyoxigraph.Store.query` gives it, in the terms of the copy."""
        if self.forms is None:
            return self.store.query(text, **dataset)
        return self.store.query(self.forms.rewrite(text), custom_functions=self.forms.functions, **dataset)

    def encode(self, term: Any) -> Any:
        """A term as the copy holds it."""
        return term if self.forms is None else encode_term(term)

    def decode(self, text: bytes) -> bytes:
        """What the copy gave, in one of RDF's or SPARQL's formats, with its literals as they were sent."""
        return text if self.forms is None else decode_bytes(text)

    def apply_operations(self, operations: Sequence[StoreOperation], position: Position | None) -> None:
        """Execute the next operations of the log up to ``position``, as a worker of this engine does. ``position``
        None: the operations belong to an open transaction; raises :class:`Conflict` when they fail. On a partial copy
        it raises :class:`Unavailable` with :data:`PARTIAL_COPY` where an operation needs all data."""
        self._refuse_computed_forms(operations, position)
        form = None if self.forms is None else lines_with_lower_tags
        text = OPERATION_SEPARATOR.join(update_texts(self._restrict_operations(operations), form))
        if text:
            try:
                self._update(self.store, text)
            except (RuntimeError, OSError, SyntaxError, ValueError) as wrong:
                if position is None:
                    raise _transaction_failed(wrong) from None
                raise Unavailable(
                    "NoWorker", f"an entry up to {position.index} cannot be carried out: {str(wrong)[:300]}"
                ) from None
        self.position = position or self.position

    def _refuse_computed_forms(self, operations: Sequence[StoreOperation], position: Position | None) -> None:
        """A store that keeps forms writes a computed value as its engine does (``1.50``), and Oxigraph as ``1.5``."""
        if self.forms is None or position is None:
            return
        for kind, payload in operations:
            text = "" if kind == KIND_QUADS else payload.decode()
            if text and EFFECT_CONDITION not in text and may_compute(text):
                raise Unavailable(PARTIAL_COPY, "only its store shows in which form it has written a value; try again")

    def _encoded(self, quads: Iterable[ox.Quad]) -> Iterable[ox.Quad]:
        return quads if self.forms is None else self.forms.encode(quads)

    def _update(self, store: ox.Store, text: str) -> None:
        if self.forms is None:
            store.update(text)
        else:
            store.update(self.forms.rewrite(text), custom_functions=self.forms.functions)

    def execute_update(self, update: EvaluatedUpdate, draw: RandomBits, bytes_max: int) -> bytes:
        """Execute an update of an open transaction and return what it deleted and added, as a payload of kind quads.
        ``draw`` returns 128 random bits for the names of blank nodes. Raises :class:`Conflict` when it fails and
        :class:`TooLarge` when it changes more than ``bytes_max``; then it has changed nothing."""
        deleted, added = self.execute_with_changes(update)
        deletes = [_line(quad) for quad in deleted]
        named, _ = Skolemiser(draw).skolemise(b"\n".join(map(_line, added)))
        adds = [line for line in named.split(b"\n") if line]
        payload = encode_quads(deletes, adds)
        if len(payload) > bytes_max:
            self._roll_back(deleted, added)
            raise _effect_too_large(len(payload), bytes_max)
        if any(b"_:" in str(quad).encode() for quad in added):
            for quad in added:
                self.store.remove(quad)
            self.store.extend(self._encoded(ox.parse(named, ox.RdfFormat.N_QUADS)))
        return payload

    def execute_with_changes(self, update: EvaluatedUpdate) -> tuple[list[ox.Quad], list[ox.Quad]]:
        """Execute an update of an open transaction and return the quads that it deleted and those that it added.
        :class:`Conflict` when it fails. A partial copy has all predicates of the update."""
        try:
            return self._execute_with_changes(update)
        except (RuntimeError, OSError, SyntaxError, ValueError) as wrong:
            raise _transaction_failed(wrong) from None

    def _execute_with_changes(self, update: EvaluatedUpdate) -> tuple[list[ox.Quad], list[ox.Quad]]:
        before = set(self._quads_with_predicates(update.read_predicates))
        self._execute(update)
        added: list[ox.Quad] = []
        for quad in self._quads_with_predicates(update.read_predicates):
            if quad in before:
                before.discard(quad)
            else:
                added.append(quad)
        return list(before), added

    def _restrict_operations(self, operations: Sequence[StoreOperation]) -> Sequence[StoreOperation]:
        if self.predicates is None:
            return operations
        found: list[StoreOperation] = []
        verbs = {predicate.encode() for predicate in self.predicates}
        try:
            for kind, payload in operations:
                if kind == KIND_QUADS:
                    lines = [line for line in payload.split(b"\n") if line and line.split(b" ", 3)[2] in verbs]
                    found.append(StoreOperation(kind, b"".join(line + b"\n" for line in lines)))
                else:
                    found.append(
                        StoreOperation(
                            kind,
                            OPERATION_SEPARATOR.join(
                                restrict_to_predicates(payload.decode(), self.predicates)
                            ).encode(),
                        )
                    )
        except UnknownPredicates:
            raise Unavailable(PARTIAL_COPY, "a part of the data does not show what an update did; try again") from None
        return found

    def fingerprint(self, looks_at: Sequence[str] | None) -> DataFingerprint:
        """The fingerprint of the quads with these predicates, or of all (None). Raises :class:`Conflict` for triple
        terms that nest too deeply."""
        for with_triples in (False, True):
            found = self.query(fingerprint_query(looks_at, with_triples=with_triples))
            assert isinstance(found, ox.QuerySolutions)
            [row] = list(found)
            if row["a"] is not None:
                count, first, second = (_parse_integer(row[name]) for name in ("n", "a", "b"))
                return DataFingerprint(count, first, second, with_triples)
        raise Conflict(
            "this update is evaluated once, and the data that it looks at holds more than "
            f"{TRIPLE_DEPTH_MAX} triples (RDF 1.2) inside one another"
        )

    def evaluate(
        self, update: EvaluatedUpdate, draw: RandomBits, bytes_max: int, looks_max: int = QUADS_READ_MAX
    ) -> UpdateEffect:
        """Execute the update, record what changed, and roll it back. ``draw`` returns 128 random bits for the names of
        blank nodes. Raises :class:`BadInput` when the update fails, :class:`TooLarge` when it changes more than
        ``bytes_max``, and :class:`Conflict` when it reads more than ``looks_max`` quads."""
        sums = self.fingerprint(update.read_predicates)
        if sums.count > looks_max:
            which = "all there are" if update.read_predicates is None else "those with its predicates"
            raise Conflict(
                f"this update is evaluated once, and looks at {sums.count} quads, {which}; {looks_max} are possible. "
                "Name predicates that fewer have, or write it so that every store gives the same result"
            )
        try:
            before, added = self._execute_with_changes(update)
        except (RuntimeError, OSError, SyntaxError, ValueError) as wrong:
            raise BadInput(f"MALFORMED QUERY: it fails where it is evaluated: {str(wrong)[:300]}") from None
        self._roll_back(before, added)
        size = sum(len(str(quad)) for quad in chain(before, added))
        if size > bytes_max:
            raise _effect_too_large(size, bytes_max)
        deletes = [_line(quad) for quad in before]
        adds, _ = Skolemiser(draw).skolemise(b"\n".join(map(_line, added)))
        lines = [line for line in adds.split(b"\n") if line]
        mark = "" if self.forms is None else AS_WRITTEN
        prepared = build_effect(deletes, lines, update.read_predicates, sums, literals=mark)
        if len(prepared.payload) > bytes_max:
            raise _effect_too_large(len(prepared.payload), bytes_max)
        # A worker would refuse an invalid update for ever, and block the log.
        assert is_valid_update(prepared.payload.decode()), prepared.payload[:1000]
        return UpdateEffect(prepared, sums)

    def _execute(self, update: EvaluatedUpdate) -> None:
        for part in update.operations or (EvaluatedOperation(update.text),):
            if part.output_graphs:
                self._execute_on_union(part)
            else:
                self._update(self.store, part.text)

    def _execute_on_union(self, part: EvaluatedOperation) -> None:
        """Compute the effect of an operation whose default graph is the union of all graphs, and apply it: deletions
        first."""
        quads = list(self.store)
        named = {quad for quad in quads if not isinstance(quad.graph_name, ox.DefaultGraph)}
        union = ox.Store()
        union.bulk_extend(chain(quads, (ox.Quad(quad.subject, quad.predicate, quad.object) for quad in named)))
        self._update(union, part.text)
        drawn = {name: ox.NamedNode(name) for name, _ in part.output_graphs}
        left = {
            quad
            for quad in union
            if not isinstance(quad.graph_name, ox.DefaultGraph) and quad.graph_name not in drawn.values()
        }
        (erased, _), *coming = part.output_graphs
        gone = [
            quad
            for shown in union.quads_for_pattern(None, None, None, drawn[erased])
            for quad in self.store.quads_for_pattern(shown.subject, shown.predicate, shown.object, None)
        ]
        for quad in chain(gone, named - left):
            self.store.remove(quad)
        self.store.extend(left - named)
        for name, graph in coming:
            target = ox.NamedNode(graph[1:-1]) if graph else ox.DefaultGraph()
            found = union.quads_for_pattern(None, None, None, drawn[name])
            self.store.extend([ox.Quad(shown.subject, shown.predicate, shown.object, target) for shown in found])

    def _roll_back(self, removed: Iterable[ox.Quad], added: Iterable[ox.Quad]) -> None:
        for quad in added:
            self.store.remove(quad)
        self.store.extend(removed)

    def _quads_with_predicates(self, looks_at: Sequence[str] | None) -> Iterable[ox.Quad]:
        if looks_at is None:
            return self.store
        nodes = [ox.NamedNode(name[1:-1]) for name in looks_at]
        return chain.from_iterable(self.store.quads_for_pattern(None, node, None, None) for node in nodes)


def _line(quad: ox.Quad) -> bytes:
    """The line of N-Quads, with its literal as it was sent."""
    return b"%s ." % decode_text(str(quad)).encode()


def _parse_integer(term: object) -> int:
    assert isinstance(term, ox.Literal), term
    return int(term.value)


def _transaction_failed(wrong: Exception) -> Conflict:
    return Conflict(f"Transaction handling error: {str(wrong)[:500]}; roll it back")


def _effect_too_large(size: int, bytes_max: int) -> TooLarge:
    return TooLarge(
        f"this update is logged as what it changes, {size} bytes, and one transaction may hold {bytes_max}; "
        "send it in parts"
    )


def load_copy(
    adapter: Adapter, rows: IO[bytes], predicates: frozenset[str] | None = None
) -> tuple[DatasetCopy, Position | None]:
    """The copy from a worker's answer to ``dump`` (with these predicates), and its position on the log. None: the data
    is at no position of the log. Then a load runs, another program wrote into the worker, or the worker has executed
    entries in another order."""
    ours: list[str] = []
    foreign: list[ox.Quad] = []
    copy = DatasetCopy(
        _parse_rows(rows, adapter.dump_media_type, ours.append, foreign.append),
        EMPTY_MARKER.position,
        predicates,
        LiteralForms() if adapter.engine == AS_WRITTEN else None,
    )
    system = adapter.system_graphs_from_names(ours)
    if foreign or system.loading or len(system.markers) > 1:
        return copy, None
    if not system.markers:
        return copy, None if copy.has_quads else copy.position
    if system.markers[0].unordered:
        return copy, None
    copy.position = system.markers[0].position
    return copy, copy.position


def dump_position(adapter: Adapter, rows: IO[bytes]) -> Position | None:
    """The position of a worker's answer to ``dump``, read as a stream; None where its data is at no position of the
    log, as in :func:`load_copy`."""
    ours: list[str] = []
    foreign: list[ox.Quad] = []
    rows.seek(0)
    has_quads = False
    for _ in _parse_rows(rows, adapter.dump_media_type, ours.append, foreign.append):
        has_quads = True
    system = adapter.system_graphs_from_names(ours)
    if foreign or system.loading or len(system.markers) > 1:
        return None
    if not system.markers:
        return None if has_quads else EMPTY_MARKER.position
    return None if system.markers[0].unordered else system.markers[0].position


def dump_quads(adapter: Adapter, rows: IO[bytes]) -> Iterator[ox.Quad]:
    """The quads of a worker's answer to ``dump``, one after the other, without its system graphs."""
    rows.seek(0)
    yield from _parse_rows(rows, adapter.dump_media_type, lambda _: None, lambda _: None)


def _parse_rows(
    rows: IO[bytes], media: str, ours: Callable[[str], None], foreign: Callable[[ox.Quad], None]
) -> Iterable[ox.Quad]:
    """Parse the rows of a dump. Quads with a blank node are ``foreign``: the log never writes one. One is reported."""
    found = ox.parse_query_results(rows, ox.QueryResultsFormat.from_media_type(media))
    assert isinstance(found, ox.QuerySolutions)
    met = False
    for graph, subject, predicate, value in found:
        if subject is None:
            assert isinstance(graph, ox.NamedNode)
            ours(graph.value)
            continue
        quad = ox.Quad(subject, predicate, value, graph)
        if not met and (isinstance(subject, ox.BlankNode) or isinstance(value, ox.BlankNode)):
            met = True
            foreign(quad)
        yield quad
