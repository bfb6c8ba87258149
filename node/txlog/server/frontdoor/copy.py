"""A copy of the data at one position of the log, in memory, that follows the log: where an update is evaluated once.

Everything here blocks; it runs in a thread, one call at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Final, NamedTuple

import pyoxigraph as ox

from txlog.model.entry import Position
from txlog.model.errors import BadInput, Conflict, TooLarge, Unavailable
from txlog.sparql import Draw, Evaluated, Part, Prepared, Skolem, Sums, effect_of, parses, sums_query
from txlog.workers.base import NOTHING, Adapter, Operation
from txlog.workers.netting import JOIN, update_texts

LOOKS_MAX: Final = 100_000
"""Quads that an update may look at. Every worker reads them all where the effect has its place, 10 to 40 us each."""


class Effect(NamedTuple):
    """What an evaluation did, as a transaction behind its condition. ``sums``: of what it looked at."""

    prepared: Prepared
    sums: Sums


def sums_in(store: ox.Store, looks_at: Sequence[str] | None) -> Sums:
    """Of the quads with these predicates, or of all."""
    found = store.query(sums_query(looks_at))
    assert isinstance(found, ox.QuerySolutions)
    [row] = list(found)
    return Sums(*(_integer(row[name]) for name in ("n", "a", "b")))


class Copy:
    """``quads`` as they are after the entry at ``position``."""

    def __init__(self, quads: Iterable[ox.Quad], position: Position) -> None:
        self._store = ox.Store()
        self._store.bulk_extend(quads)
        self.position = position

    @property
    def holds_something(self) -> bool:
        return any(True for _ in self._store)

    def follow(self, operations: Sequence[Operation], position: Position) -> None:
        """Carry out what follows in the log, as a worker of this engine does, up to ``position``."""
        text = JOIN.join(update_texts(operations))
        if text:
            try:
                self._store.update(text)
            except (RuntimeError, OSError, SyntaxError, ValueError) as wrong:
                raise Unavailable(
                    "NoWorker", f"an entry up to {position.index} cannot be carried out: {str(wrong)[:300]}"
                ) from None
        self.position = position

    def sums(self, looks_at: Sequence[str] | None) -> Sums:
        """Of the quads with these predicates, or of all."""
        return sums_in(self._store, looks_at)

    def evaluate(self, update: Evaluated, draw: Draw, bytes_max: int) -> Effect:
        """Carry the update out, see what changed, and undo it. ``draw`` gives 128 random bits for the names of blank
        nodes. :class:`BadInput` when it fails, :class:`TooLarge` when it changes more than ``bytes_max``,
        :class:`Conflict` when it looks at more than :data:`LOOKS_MAX` quads."""
        sums = self.sums(update.looks_at)
        if sums.count > LOOKS_MAX:
            which = "all there are" if update.looks_at is None else "those with its predicates"
            raise Conflict(
                f"this update is evaluated once, and looks at {sums.count} quads, {which}; {LOOKS_MAX} are possible. "
                "Name predicates that fewer have, or write it so that every store gives the same result"
            )
        before = set(self._matching(update.looks_at))
        try:
            self._carry_out(update)
        except (RuntimeError, OSError, SyntaxError, ValueError) as wrong:
            raise BadInput(f"MALFORMED QUERY: it fails where it is evaluated: {str(wrong)[:300]}") from None
        added: list[ox.Quad] = []
        for quad in self._matching(update.looks_at):
            if quad in before:
                before.discard(quad)
            else:
                added.append(quad)
        self._undo(before, added)
        size = sum(len(str(quad)) for quad in chain(before, added))
        if size > bytes_max:
            raise _too_large(size, bytes_max)
        deletes = [b"%s ." % str(quad).encode() for quad in before]
        adds, _ = Skolem(draw).body(b"\n".join(b"%s ." % str(quad).encode() for quad in added))
        prepared = effect_of(deletes, [line for line in adds.split(b"\n") if line], update.looks_at, sums)
        if len(prepared.payload) > bytes_max:
            raise _too_large(len(prepared.payload), bytes_max)
        # A worker would refuse it for ever, and hold the log up.
        assert parses(prepared.payload.decode()), prepared.payload[:1000]
        return Effect(prepared, sums)

    def _carry_out(self, update: Evaluated) -> None:
        for part in update.parts or (Part(update.text),):
            if part.shown:
                self._on_the_union(part)
            else:
                self._store.update(part.text)

    def _on_the_union(self, part: Part) -> None:
        """Find what an operation does where the default graph is the union of all, and do it: what goes first."""
        quads = list(self._store)
        named = {quad for quad in quads if not isinstance(quad.graph_name, ox.DefaultGraph)}
        union = ox.Store()
        union.bulk_extend(chain(quads, (ox.Quad(quad.subject, quad.predicate, quad.object) for quad in named)))
        union.update(part.text)
        drawn = {name: ox.NamedNode(name) for name, _ in part.shown}
        left = {
            quad
            for quad in union
            if not isinstance(quad.graph_name, ox.DefaultGraph) and quad.graph_name not in drawn.values()
        }
        (erased, _), *coming = part.shown
        gone = [
            quad
            for shown in union.quads_for_pattern(None, None, None, drawn[erased])
            for quad in self._store.quads_for_pattern(shown.subject, shown.predicate, shown.object, None)
        ]
        for quad in chain(gone, named - left):
            self._store.remove(quad)
        self._store.extend(left - named)
        for name, graph in coming:
            target = ox.NamedNode(graph[1:-1]) if graph else ox.DefaultGraph()
            found = union.quads_for_pattern(None, None, None, drawn[name])
            self._store.extend([ox.Quad(shown.subject, shown.predicate, shown.object, target) for shown in found])

    def _undo(self, removed: Iterable[ox.Quad], added: Iterable[ox.Quad]) -> None:
        for quad in added:
            self._store.remove(quad)
        self._store.extend(removed)

    def _matching(self, looks_at: Sequence[str] | None) -> Iterable[ox.Quad]:
        if looks_at is None:
            return self._store
        nodes = [ox.NamedNode(name[1:-1]) for name in looks_at]
        return chain.from_iterable(self._store.quads_for_pattern(None, node, None, None) for node in nodes)


def _integer(term: object) -> int:
    assert isinstance(term, ox.Literal), term
    return int(term.value)


def _too_large(size: int, bytes_max: int) -> TooLarge:
    return TooLarge(
        f"this update is logged as what it changes, {size} bytes, and one transaction may hold {bytes_max}; "
        "send it in parts"
    )


class _Foreign(Exception):
    """A blank node: the log brings none."""


def copied(adapter: Adapter, rows: bytes) -> Copy | None:
    """What a worker answered to ``everything``. None when it stands nowhere on a log: data is being loaded into it,
    somebody else wrote into it, or it has executed in another order."""
    ours: list[str] = []
    try:
        copy = Copy(_quads_in(rows, adapter.everything_media, ours.append), NOTHING.position)
    except _Foreign:
        return None
    system = adapter.system_of(ours)
    if system.loading or len(system.markers) > 1:
        return None
    if not system.markers:
        return None if copy.holds_something else copy
    if system.markers[0].unordered:
        return None
    copy.position = system.markers[0].position
    return copy


def _quads_in(rows: bytes, media: str, ours: Callable[[str], None]) -> Iterable[ox.Quad]:
    found = ox.parse_query_results(rows, ox.QueryResultsFormat.from_media_type(media))
    assert isinstance(found, ox.QuerySolutions)
    for graph, subject, predicate, value in found:
        if subject is None:
            assert isinstance(graph, ox.NamedNode)
            ours(graph.value)
        elif isinstance(subject, ox.BlankNode) or isinstance(value, ox.BlankNode):
            raise _Foreign
        else:
            yield ox.Quad(subject, predicate, value, graph)
