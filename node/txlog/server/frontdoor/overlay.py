"""What an open transaction sees once it has written, or from its first read on where its isolation level says so: a
copy of the data in memory with its own changes in it.

SPARQL over changes that stand nowhere yet cannot be asked of a worker, and workers have no transactions to ask in. So
the first such read copies everything from a worker, as of one moment, and the changes are carried out on the copy as
a worker of the same engine would. Nobody else's transactions are seen from then on.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import pyoxigraph as ox

from txlog.model.errors import BadInput, Conflict, NotAcceptable, Unavailable
from txlog.runtime.web import Request, Response, bytes_answer
from txlog.server.frontdoor.blank import blank_again, blank_quad, blank_term
from txlog.server.frontdoor.copy import sums_in
from txlog.server.frontdoor.forms import (
    BINARY_TABLE,
    BOOLEAN,
    FORMS,
    LIKED,
    RESULTS_JSON,
    TABLE_ALIASES,
    TABLES,
    Form,
)
from txlog.server.frontdoor.reads import Question, Reads
from txlog.server.frontdoor.tables import accepted
from txlog.sparql import Prepared, Sums
from txlog.sparql.binary import write_table
from txlog.sparql.ordering import totally_ordered
from txlog.workers.base import Operation
from txlog.workers.netting import JOIN, update_texts

COPY_BYTES_MAX: Final = 64 << 20
"""Of N-Quads: some 400,000 statements. In memory it takes three times as much."""
COPIES_MAX: Final = 4
"""At the same time in one master."""
THREADS: Final = 2
SECONDS_MAX: Final = 60.0
"""For one question. It cannot be stopped, but its client is answered."""

_pool = ThreadPoolExecutor(THREADS, "overlay")
_RESULTS: Final = {
    RESULTS_JSON: ox.QueryResultsFormat.JSON,
    "application/sparql-results+xml": ox.QueryResultsFormat.XML,
    "text/csv": ox.QueryResultsFormat.CSV,
    "text/tab-separated-values": ox.QueryResultsFormat.TSV,
}
T = TypeVar("T")


class Overlay:
    """One transaction's copy. Used by one request at a time."""

    def __init__(self, store: ox.Store, before: bytes) -> None:
        self._store = store
        self._before = before
        self._done = 0

    @classmethod
    async def copy(cls, reads: Reads, request: Request, *, keep: bool = False, advice: str) -> Overlay:
        """Everything that a worker holds now. ``keep``: for :meth:`sums_before`. :class:`Conflict`, with the
        ``advice``, when it is too much for memory."""
        pieces: list[bytes] = []
        size = 0
        async for piece in reads.everything(request):
            size += len(piece)
            if size > COPY_BYTES_MAX:
                raise Conflict(
                    "Transaction handling error: this transaction reads a copy of the repository, and "
                    f"this one is larger than {COPY_BYTES_MAX >> 20} MiB of N-Quads; {advice}"
                )
            pieces.append(piece)
        whole = b"".join(pieces)
        return cls(await _in_thread(lambda: _stored(whole)), whole if keep else b"")

    async def sums_before(self, looks_at: Sequence[str] | None) -> Sums:
        """Of the quads with these predicates, or of all, without the transaction's own changes."""
        return await _in_thread(lambda: sums_in(_stored(self._before), looks_at))

    async def follow(self, parts: Sequence[Prepared]) -> None:
        """Carry out what has been written since the last time."""
        news = [Operation(part.kind, part.payload) for part in parts[self._done :]]
        text = JOIN.join(update_texts(news))
        if text:
            await _in_thread(lambda: _carried_out(self._store, text))
        self._done = len(parts)

    async def query(self, asked: Question) -> Response:
        """The answer to a query, whole."""
        work = _in_thread(lambda: _answered(self._store, asked))
        try:
            return await asyncio.wait_for(work, min(asked.seconds or SECONDS_MAX, SECONDS_MAX))
        except TimeoutError:
            raise Unavailable("QueryTimeout", "the query took longer than it may; ask for less", 1) from None

    async def statements(
        self, terms: Sequence[str | None], graphs: Sequence[str] | None, form: Form
    ) -> tuple[bytes, int]:
        """What matches (canonical N-Triples, None for any), written in that form, and how many they are."""

        def work() -> tuple[bytes, int]:
            found = list(_matching(self._store, terms, graphs))
            out = io.BytesIO()
            form.write(map(blank_quad, found if form.quads else _merged(found)), out)
            return out.getvalue(), len(found)

        return await _in_thread(work)

    async def size(self, graphs: Sequence[str] | None) -> int:
        """The number of statements in these graphs, or in all."""
        return await _in_thread(lambda: sum(1 for _ in _matching(self._store, (None, None, None), graphs)))


def _stored(nquads: bytes) -> ox.Store:
    store = ox.Store()
    store.load(nquads, ox.RdfFormat.N_QUADS)
    return store


async def _in_thread(work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(_pool, work)


def _carried_out(store: ox.Store, text: str) -> None:
    try:
        store.update(text)
    except (RuntimeError, OSError, ValueError) as wrong:
        raise Conflict(f"Transaction handling error: {str(wrong)[:500]}; roll it back") from None


def _merged(quads: Sequence[ox.Quad]) -> list[ox.Quad]:
    """For a form without graphs: a statement that stands in several once."""
    return list(dict.fromkeys(ox.Quad(q.subject, q.predicate, q.object) for q in quads))


def _matching(store: ox.Store, terms: Sequence[str | None], graphs: Sequence[str] | None) -> list[ox.Quad]:
    subject, predicate, value = (None if term is None else _term(term) for term in terms)
    names = [None] if graphs is None else [_term(g) if g else ox.DefaultGraph() for g in graphs]
    found: dict[ox.Quad, None] = {}
    for name in names:
        found.update(dict.fromkeys(store.quads_for_pattern(subject, predicate, value, name)))  # type: ignore[arg-type]
    return list(found)


def _term(text: str) -> ox.NamedNode | ox.BlankNode | ox.Literal | ox.Triple:
    quads: list[ox.Quad] = list(ox.parse(f"<x:s> <x:p> {text} .", ox.RdfFormat.N_TRIPLES))
    return quads[0].object


def _answered(store: ox.Store, asked: Question) -> Response:
    graphs: list[ox.NamedNode | ox.BlankNode | ox.DefaultGraph] = [ox.NamedNode(g) for g in asked.default]
    try:
        found = store.query(
            totally_ordered(asked.text),
            use_default_graph_as_union=asked.union,
            default_graph=graphs or None,
            named_graphs=[ox.NamedNode(g) for g in asked.named] or None,
        )
    except (SyntaxError, ValueError) as wrong:
        raise BadInput(f"MALFORMED QUERY: {wrong}") from None
    if isinstance(found, ox.QueryTriples):
        media = accepted(asked.accept, LIKED, {})
        if media is None:
            raise NotAcceptable(f"Accept: {asked.accept[:100]}; there are {', '.join(FORMS)}")
        out = io.BytesIO()
        FORMS[media].write((blank_quad(ox.Quad(t.subject, t.predicate, t.object)) for t in found), out)
        return bytes_answer(out.getvalue(), media)
    own = BOOLEAN if isinstance(found, ox.QueryBoolean) else BINARY_TABLE
    media = accepted(asked.accept, (*TABLES, own), TABLE_ALIASES)
    if media is None:
        raise NotAcceptable(f"Accept: {asked.accept[:100]}; there are {', '.join((*TABLES, own))}")
    if media == BOOLEAN:
        return bytes_answer(b"true" if found else b"false", BOOLEAN)
    if media == BINARY_TABLE:
        assert isinstance(found, ox.QuerySolutions)
        names = [variable.value for variable in found.variables]
        out = io.BytesIO()
        write_table(names, ([blank_term(row[name]) for name in names] for row in found), out)
        return bytes_answer(out.getvalue(), media)
    body = found.serialize(format=_RESULTS[media])
    assert body is not None
    return bytes_answer(blank_again(media, body), media)
